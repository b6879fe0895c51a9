//! Why the result of an instance does not count.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The maximum part of the cores' time that the hypervisor may take. Above it an instance is
/// discarded.
pub const MAX_STEAL: f64 = 0.01;

/// Why an instance is discarded. Only these causes count, which were defined before the run. None
/// depends on the measured value, except that [`Discarded::OtherLoad`] is for instances without any
/// message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Discarded {
    /// The hypervisor took time from the instance's cores.
    StolenTime {
        /// The part of their time, from 0 to 1.
        share: f64,
    },
    /// The hypervisor of the other host took time from the cores of the instance there.
    StolenTimeOfPeer {
        /// The part of their time, from 0 to 1.
        share: f64,
    },
    /// Other processes used the instance's cores, and no message arrived within its window.
    OtherLoad {
        /// The part of the cores' time, from 0 to 1.
        share: f64,
    },
    /// Other processes used the cores of the other host, and no message arrived within the window.
    OtherLoadOfPeer {
        /// The part of the cores' time, from 0 to 1.
        share: f64,
    },
    /// The host moved the cores during the instance, and too few slices were measured before or
    /// after it.
    CoresMoved,
    /// The sender of an open loop was late before the mechanism got the messages.
    LateSender {
        /// The part of the messages, from 0 to 1.
        share: f64,
    },
    /// The mechanism broke a promise.
    FailedVerification,
    /// The reason in a record of an older version.
    #[serde(untagged)]
    Text(String),
}

impl fmt::Display for Discarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Discarded::StolenTime { share } => write!(f, "steal {:.1} %", share * 100.0),
            Discarded::StolenTimeOfPeer { share } => write!(f, "steal {:.1} % on the other host", share * 100.0),
            Discarded::OtherLoad { share } => {
                write!(f, "no message arrived, while other processes used {:.0} % of the cores", share * 100.0)
            }
            Discarded::OtherLoadOfPeer { share } => write!(
                f,
                "no message arrived, while other processes used {:.0} % of the cores of the other host",
                share * 100.0
            ),
            Discarded::CoresMoved => f.write_str("the hypervisor moved the virtual CPUs"),
            Discarded::LateSender { share } => {
                write!(f, "{:.1} % of the messages were late before they were sent", share * 100.0)
            }
            Discarded::FailedVerification => f.write_str("failed verification"),
            Discarded::Text(text) => f.write_str(text),
        }
    }
}

impl Discarded {
    /// Whether the cause is outside of the mechanism, so that the instance is repeated.
    ///
    /// A late sender is not such a cause: it may be late because of the mechanism, if both share a
    /// thread.
    pub fn is_external(&self) -> bool {
        matches!(
            self,
            Discarded::StolenTime { .. }
                | Discarded::StolenTimeOfPeer { .. }
                | Discarded::OtherLoad { .. }
                | Discarded::OtherLoadOfPeer { .. }
                | Discarded::CoresMoved
        )
    }

    /// The cause without its figures, for counting instances by cause.
    pub fn cause(&self) -> &str {
        match self {
            Discarded::StolenTime { .. } => "the hypervisor took time",
            Discarded::StolenTimeOfPeer { .. } => "the hypervisor of the other host took time",
            Discarded::OtherLoad { .. } => "no message arrived while other processes used the cores",
            Discarded::OtherLoadOfPeer { .. } => {
                "no message arrived while other processes used the cores of the other host"
            }
            Discarded::CoresMoved => "the hypervisor moved the virtual CPUs",
            Discarded::LateSender { .. } => "messages were late before they were sent",
            Discarded::FailedVerification => "failed verification",
            Discarded::Text(text) if text.starts_with("steal ") && text.ends_with("other host") => {
                "the hypervisor of the other host took time"
            }
            Discarded::Text(text) if text.starts_with("steal ") => "the hypervisor took time",
            Discarded::Text(text) => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_does_not_depend_on_its_figures() {
        let [a, b] = [0.1, 0.2].map(|share| Discarded::StolenTime { share });
        assert_eq!(a.cause(), b.cause());
        assert_ne!(a.to_string(), b.to_string());
        assert_eq!(Discarded::Text(String::from("steal 3.0 %")).cause(), a.cause());
    }

    #[test]
    fn reasons_are_read_as_they_were_written_and_from_older_records() {
        for reason in [
            Discarded::StolenTime { share: 0.25 },
            Discarded::StolenTimeOfPeer { share: 0.25 },
            Discarded::OtherLoad { share: 0.5 },
            Discarded::OtherLoadOfPeer { share: 0.5 },
            Discarded::CoresMoved,
            Discarded::LateSender { share: 0.125 },
            Discarded::FailedVerification,
            Discarded::Text(String::from("steal 3.0 %")),
        ] {
            let json = serde_json::to_string(&reason).unwrap();
            assert_eq!(serde_json::from_str::<Discarded>(&json).unwrap(), reason, "{json}");
        }
        assert_eq!(serde_json::to_string(&Discarded::FailedVerification).unwrap(), r#""failed_verification""#);
        assert_eq!(Discarded::StolenTime { share: 0.25 }.to_string(), "steal 25.0 %");
    }
}
