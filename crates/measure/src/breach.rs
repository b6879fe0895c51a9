//! Which promise a mechanism broke.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::message::Faults;
use crate::spec::{Loss, Ordering, Spec};

/// What a mechanism did to messages that its description rules out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Breach {
    /// The faults that break a promise. The others are 0.
    Faults(Faults),
    /// The description in a record of an older version.
    Text(String),
}

impl Breach {
    /// Returns the faults that break a promise of `spec`. `None` if there are none.
    pub(crate) fn of(spec: &Spec, faults: Faults) -> Option<Breach> {
        let lost = if spec.loss == Loss::Never { faults.lost } else { 0 };
        let reordered = if spec.ordering == Ordering::Unordered { 0 } else { faults.reordered };
        let broken = Faults { lost, reordered, ..faults };
        (!broken.is_empty()).then_some(Breach::Faults(broken))
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Faults { lost, duplicated, reordered, damaged } = match self {
            Breach::Faults(faults) => *faults,
            Breach::Text(text) => return f.write_str(text),
        };
        let counts = [(lost, "lost"), (duplicated, "duplicated"), (reordered, "reordered"), (damaged, "damaged")];
        let broken = counts.iter().filter(|(count, _)| *count > 0);
        let noun = |nth: usize, count: u64| match (nth, count) {
            (0, 1) => " message",
            (0, _) => " messages",
            _ => "",
        };
        let broken: Vec<String> =
            broken.enumerate().map(|(nth, (count, what))| format!("{count}{} {what}", noun(nth, *count))).collect();
        f.write_str(&broken.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_broken_promises_are_breaches() {
        let text = |spec: &Spec, faults| Breach::of(spec, faults).map(|breach| breach.to_string());
        let lossy = Spec::new("network/udp").loss(Loss::BestEffort);
        let faults = Faults { lost: 3, ..Faults::default() };
        assert_eq!(text(&lossy, faults), None);
        assert_eq!(text(&Spec::new("process/pipe"), faults).as_deref(), Some("3 messages lost"));
        let faults = Faults { damaged: 1, duplicated: 2, ..faults };
        assert_eq!(text(&lossy, faults).as_deref(), Some("2 messages duplicated, 1 damaged"));
        let unordered = Spec::new("process/pipe").ordering(Ordering::Unordered);
        assert_eq!(text(&unordered, Faults { reordered: 1, ..Faults::default() }), None);
    }

    #[test]
    fn breaches_of_older_records_are_read() {
        let read = |json: &str| serde_json::from_str::<Breach>(json).unwrap();
        assert_eq!(read(r#""messages 3 lost""#), Breach::Text(String::from("messages 3 lost")));
        let faults = Faults { lost: 3, ..Faults::default() };
        let breach = Breach::Faults(faults);
        assert_eq!(read(&serde_json::to_string(&breach).unwrap()), breach);
    }
}
