//! TCP: checks whether its congestion control paces connections within this machine.

use estafette_measure::fingerprint::Fingerprint;

use super::finding::Finding;

pub(super) fn findings() -> Option<Finding> {
    Fingerprint::take().tcp_congestion_control.map(|name| congestion_control(&name))
}

fn congestion_control(name: &str) -> Finding {
    const WHAT: &str = "TCP congestion control";
    if Fingerprint::is_paced(name) {
        return Finding::note(
            WHAT,
            format!(
                "{name}, which paces packets: a stream within this machine takes up to 5 times as long, and varies"
            ),
            "to compare libraries: sysctl -w net.ipv4.tcp_congestion_control=cubic",
        );
    }
    Finding::ok(WHAT, name)
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingVerdict;
    use super::*;

    #[test]
    fn what_paces_packets_is_noted() {
        assert_eq!(congestion_control("cubic").verdict, FindingVerdict::Ok);
        assert_eq!(congestion_control("bbr").verdict, FindingVerdict::Note);
    }
}
