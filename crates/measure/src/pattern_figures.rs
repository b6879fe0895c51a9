//! Figures that only the instances of one pattern have.

use serde::{Deserialize, Serialize};

use crate::burst_memory::BurstMemory;
use crate::stats::median;

/// The figures of an instance that only its pattern has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Fields", into = "Fields")]
pub enum PatternFigures {
    /// None: its pattern has no figures of its own.
    #[default]
    None,
    /// Of [`Pattern::Cancel`](crate::Pattern::Cancel). If none was dropped, it is `None` in records.
    Cancel {
        /// Pending receives that were dropped, over the whole instance.
        dropped_receives: u64,
    },
    /// Of [`Pattern::Codec`](crate::Pattern::Codec).
    Codec(CodecFigures),
    /// Of [`Pattern::Burst`](crate::Pattern::Burst).
    Burst(BurstMemory),
}

/// The cost of a codec's message within the window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CodecFigures {
    /// Nanoseconds to encode a message, from the median batch.
    pub encode_ns: f64,
    /// Nanoseconds to decode a message and read every byte of it, from the median batch.
    pub decode_ns: f64,
    /// The mean encoded length in bytes.
    pub encoded_bytes: f64,
}

/// How records and reports have them: beside the other figures.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Fields {
    /// Pending receives that were dropped, over the whole instance. Only in the pattern `cancel`.
    #[serde(default, alias = "dropped", skip_serializing_if = "is_zero")]
    dropped_receives: u64,
    /// The cost of a codec's message. Only in the pattern `codec`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    codec: Option<CodecFigures>,
    /// The memory that a burst took. Only in the pattern `burst`.
    #[serde(default, alias = "held", skip_serializing_if = "Option::is_none")]
    burst_memory: Option<BurstMemory>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl From<Fields> for PatternFigures {
    fn from(fields: Fields) -> PatternFigures {
        match fields {
            Fields { codec: Some(codec), .. } => PatternFigures::Codec(codec),
            Fields { burst_memory: Some(memory), .. } => PatternFigures::Burst(memory),
            Fields { dropped_receives: 0, .. } => PatternFigures::None,
            Fields { dropped_receives, .. } => PatternFigures::Cancel { dropped_receives },
        }
    }
}

impl From<PatternFigures> for Fields {
    fn from(figures: PatternFigures) -> Fields {
        let none = Fields::default();
        match figures {
            PatternFigures::None => none,
            PatternFigures::Cancel { dropped_receives } => Fields { dropped_receives, ..none },
            PatternFigures::Codec(codec) => Fields { codec: Some(codec), ..none },
            PatternFigures::Burst(memory) => Fields { burst_memory: Some(memory), ..none },
        }
    }
}

impl PatternFigures {
    /// The cost of a codec's message, if it is one.
    pub fn codec(&self) -> Option<CodecFigures> {
        match self {
            PatternFigures::Codec(codec) => Some(*codec),
            _ => None,
        }
    }
}

/// The results of a mechanism that only its pattern has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum PatternResult {
    /// None: its pattern has no figures of its own.
    #[default]
    None,
    /// Sums over all instances.
    Cancel {
        /// Pending receives that were dropped.
        dropped_receives: u64,
        /// Messages that were lost.
        lost: u64,
    },
    /// Medians over the instances.
    Codec(CodecFigures),
    /// The memory of the channel in bytes: when it was opened, with the whole burst in it, and
    /// after all messages were received. Medians over the instances.
    Burst([f64; 3]),
}

impl PatternResult {
    /// The result of instances of a codec.
    pub(crate) fn of_codec(instances: &[PatternFigures]) -> PatternResult {
        let codecs: Vec<CodecFigures> = instances.iter().filter_map(PatternFigures::codec).collect();
        let middle = |of: fn(&CodecFigures) -> f64| median(&codecs.iter().map(of).collect::<Vec<_>>());
        let encode_ns = middle(|codec| codec.encode_ns);
        let others = middle(|codec| codec.decode_ns).zip(middle(|codec| codec.encoded_bytes));
        encode_ns.zip(others).map_or(PatternResult::None, |(encode_ns, (decode_ns, encoded_bytes))| {
            PatternResult::Codec(CodecFigures { encode_ns, decode_ns, encoded_bytes })
        })
    }

    /// The result of instances with dropped receives, which lost this number of messages together.
    pub(crate) fn of_cancel(instances: &[PatternFigures], lost: u64) -> PatternResult {
        let dropped = instances.iter().map(|figures| match figures {
            PatternFigures::Cancel { dropped_receives } => *dropped_receives,
            _ => 0,
        });
        PatternResult::Cancel { dropped_receives: dropped.sum(), lost }
    }

    /// The result of bursts.
    pub(crate) fn of_burst(instances: &[PatternFigures]) -> PatternResult {
        let sizes: Vec<[u64; 3]> = instances
            .iter()
            .filter_map(|figures| match figures {
                PatternFigures::Burst(memory) => Some([memory.empty, memory.full, memory.after]),
                _ => None,
            })
            .collect();
        let middle = |at: usize| median(&sizes.iter().map(|sizes| sizes[at] as f64).collect::<Vec<_>>());
        match [middle(0), middle(1), middle(2)] {
            [Some(empty), Some(full), Some(after)] => PatternResult::Burst([empty, full, after]),
            _ => PatternResult::None,
        }
    }

    /// The cost of a codec's message, if it is one.
    pub fn codec(&self) -> Option<CodecFigures> {
        match self {
            PatternResult::Codec(codec) => Some(*codec),
            _ => None,
        }
    }

    /// The memory of a burst in bytes, if it is one.
    pub fn burst_memory(&self) -> Option<[f64; 3]> {
        match self {
            PatternResult::Burst(sizes) => Some(*sizes),
            _ => None,
        }
    }

    /// The dropped receives and the lost messages, if receives were dropped.
    pub fn dropped(&self) -> Option<[u64; 2]> {
        match self {
            PatternResult::Cancel { dropped_receives, lost } => Some([*dropped_receives, *lost]),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_kind_returns_from_json() {
        let codec = CodecFigures { encode_ns: 1.0, decode_ns: 2.0, encoded_bytes: 3.0 };
        let memory = BurstMemory { empty: 1, full: 2, after: 3 };
        let cancel = PatternFigures::Cancel { dropped_receives: 5 };
        for figures in [PatternFigures::None, cancel, PatternFigures::Codec(codec), PatternFigures::Burst(memory)] {
            let json = serde_json::to_value(figures).unwrap();
            assert_eq!(serde_json::from_value::<PatternFigures>(json).unwrap(), figures);
        }
        assert_eq!(serde_json::to_value(cancel).unwrap(), json!({ "dropped_receives": 5 }));
        assert_eq!(serde_json::to_value(PatternFigures::None).unwrap(), json!({}));
    }

    #[test]
    fn older_records_have_every_field() {
        let old = json!({ "dropped_receives": 0, "codec": null, "held": { "empty": 1, "full": 2, "after": 3 } });
        let memory = BurstMemory { empty: 1, full: 2, after: 3 };
        assert_eq!(serde_json::from_value::<PatternFigures>(old).unwrap(), PatternFigures::Burst(memory));
        let old = json!({ "dropped_receives": 0, "codec": null, "burst_memory": null });
        assert_eq!(serde_json::from_value::<PatternFigures>(old).unwrap(), PatternFigures::None);
        let report = json!({ "dropped": 7 });
        assert_eq!(
            serde_json::from_value::<PatternFigures>(report).unwrap(),
            PatternFigures::Cancel { dropped_receives: 7 }
        );
    }

    #[test]
    fn results_are_sums_and_medians() {
        let drops = [1, 4].map(|dropped_receives| PatternFigures::Cancel { dropped_receives });
        assert_eq!(PatternResult::of_cancel(&drops, 2).dropped(), Some([5, 2]));
        let bursts = [1, 9, 2].map(|empty| PatternFigures::Burst(BurstMemory { empty, full: 2, after: 3 }));
        assert_eq!(PatternResult::of_burst(&bursts).burst_memory(), Some([2.0, 2.0, 3.0]));
        let codecs = [1.0, 9.0, 2.0]
            .map(|encode_ns| PatternFigures::Codec(CodecFigures { encode_ns, decode_ns: 2.0, encoded_bytes: 3.0 }));
        assert_eq!(PatternResult::of_codec(&codecs).codec().unwrap().encode_ns, 2.0);
        assert_eq!(PatternResult::of_codec(&[]), PatternResult::None);
    }
}
