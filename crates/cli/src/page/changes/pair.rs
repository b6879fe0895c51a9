//! Two runs and their comparison.

use estafette_measure::record::Record;

use crate::comparison::{Comparison, Incomparable};

/// The names of the two runs in a report.
pub(super) const NAMES: [&str; 2] = ["A", "B"];

/// Two runs and their comparison.
pub(crate) struct Pair<'a> {
    /// The names of the files, without their folders.
    pub(crate) files: [String; 2],
    pub(crate) records: [&'a Record; 2],
    pub(crate) comparison: Result<Comparison, Incomparable>,
}

impl<'a> Pair<'a> {
    /// Compares two records.
    ///
    /// # Errors
    /// If one of them is damaged. Records that are sound, but cannot be compared, are no error.
    pub(crate) fn of(files: [String; 2], records: [&'a Record; 2]) -> Result<Pair<'a>, Incomparable> {
        match Comparison::of(records[0], records[1], NAMES) {
            Err(error) if error.is_damage() => Err(error),
            comparison => Ok(Pair { files, records, comparison }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::record;

    #[test]
    fn a_damaged_record_is_an_error() {
        let (a, mut b) = (record(), record());
        b.rounds_planned = usize::MAX;
        assert!(Pair::of(["a", "b"].map(String::from), [&a, &b]).is_err());
    }
}
