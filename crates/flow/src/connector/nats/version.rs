//! The oldest version of the server that is supported for messages that must not be lost.

/// The oldest version that was tested: major, minor, patch.
///
/// Older servers can remove the first message of a full stream to store another one. After a kill,
/// they can take the acknowledgement of one message for that of all messages before it. 2.10.0 has
/// both faults.
const OLDEST: [u32; 3] = [2, 10, 27];

/// Why a server with this version cannot be used for messages that must not be lost. None if it
/// can, or if the version is unknown.
pub(super) fn too_old(version: &str) -> Option<String> {
    let release = version.split(['-', '+']).next().unwrap_or_default();
    let numbers: Vec<u32> = release.split('.').map_while(|number| number.parse().ok()).collect();
    let [major, minor, patch] = OLDEST;
    (numbers.len() == OLDEST.len() && numbers.as_slice() < OLDEST.as_slice()).then(|| {
        format!(
            "the NATS server has version {version}, which can lose messages of `delivery: at-least-once`; use \
             {major}.{minor}.{patch} or newer"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(["2.9.10", "1.4.1", "2.10.26", "2.10.0-RC.1"].iter().all(|version| too_old(version).is_some()));
        let accepted = ["2.10.27", "2.11.0", "2.15.2", "3.0.0-dev", "", "unknown"];
        assert!(accepted.iter().all(|version| too_old(version).is_none()));
    }
}
