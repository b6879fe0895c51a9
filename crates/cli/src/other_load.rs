//! Reports the processor time that other processes used.

use estafette_measure::other_load::DISTURBING;
use estafette_measure::record::Record;

/// The warning before a run if other processes use so much that they disturb it.
pub(crate) fn warning(share: Option<f64>) -> Option<String> {
    let percent = disturbing_percent(share)?;
    Some(format!(
        "warning: other processes use {percent:.0} % of the processor time. Results vary more and can be slower: \
         end these processes, or run again later"
    ))
}

/// The same of the other host, whose name is `address`.
pub(crate) fn warning_of_peer(share: Option<f64>, address: &str) -> Option<String> {
    let percent = disturbing_percent(share)?;
    Some(format!(
        "warning: other processes use {percent:.0} % of the processor time of {address}. Results vary more and can be \
         slower: end these processes, or run again later"
    ))
}

/// The sentence below the tables of a record.
pub(crate) fn sentence(record: &Record) -> Option<String> {
    let here = disturbing_percent(record.other_load)
        .map(|percent| format!("Other processes used {percent:.0} % of the processor time before the first round, so bounds may be too high."));
    let there = disturbing_percent(record.peer.as_ref().and_then(|peer| peer.other_load)).map(|percent| {
        format!("Other processes used {percent:.0} % of the processor time of the other host before the first round.")
    });
    let sentences: Vec<String> = here.into_iter().chain(there).collect();
    (!sentences.is_empty()).then(|| format!("{}\n", sentences.join("\n")))
}

fn disturbing_percent(share: Option<f64>) -> Option<f64> {
    share.filter(|share| *share > DISTURBING).map(|share| share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_load_causes_no_warning() {
        assert_eq!([None, Some(0.0), Some(0.1)].map(warning), [None, None, None]);
        assert!(warning(Some(0.534)).is_some_and(|text| text.contains("use 53 % of")));
        assert_eq!(warning_of_peer(Some(0.1), "tcp://box:1"), None);
        let text = warning_of_peer(Some(0.534), "tcp://box:1").unwrap();
        assert!(text.contains("use 53 % of the processor time of tcp://box:1"), "{text}");
    }
}
