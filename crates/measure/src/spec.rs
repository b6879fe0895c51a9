//! The description of a mechanism. It decides which cases the mechanism can run and which others it
//! is ranked with.

use serde::{Deserialize, Serialize};

use crate::case::{Cell, Load, Pattern, PayloadKind};
pub use crate::environment::{Runtime, Scope, Wait};
use crate::names::names;

/// Who owns the bytes of a message while it is passed. Tables show it in the column `data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Ownership {
    /// A value is moved from the sender to the receiver.
    Owned,
    /// The bytes are copied out of the sender's buffer and into the receiver's.
    Borrowed,
    /// The sender writes into memory of the mechanism, and the receiver reads it there.
    Loaned,
}

/// The order in which a receiver sees messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Ordering {
    /// All messages arrive in the order in which they were sent.
    Strict,
    /// The messages of each producer arrive in order. Messages of different producers may be
    /// interleaved in any way.
    PerProducer,
    /// No order is promised.
    Unordered,
}

/// Whether messages may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// A lost message is a defect.
    Never,
    /// Messages may be lost under load. The number of lost messages is part of the result.
    #[serde(alias = "counted")]
    BestEffort,
}

/// Whether a pending receive can be dropped without losing a message, as `select!` and time-outs do
/// (cancel safety).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Cancel {
    /// The documentation says that it can.
    Safe,
    /// The documentation says that it cannot.
    Unsafe,
    /// The documentation does not mention it.
    #[default]
    #[serde(alias = "unsaid")]
    Undocumented,
}

/// Whether a mechanism is a candidate, a reference or a baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// A way to pass a message that a program can choose.
    Candidate,
    /// The smallest possible implementation: the reference that candidates are compared with.
    #[serde(alias = "limit")]
    Reference,
    /// A hand-written program that does the same work, to check the harness itself. Not part of the
    /// default run.
    Baseline,
}

/// In which runs a mechanism takes part when the user does not name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// The overview, and its scope's suite in every profile.
    #[default]
    Overview,
    /// Its scope's suite in every profile.
    Suite,
    /// Its scope's suite in the profiles `standard` and `full`, in every cell.
    #[serde(alias = "throughout")]
    StandardAllCells,
    /// The same, but in the profile `standard` of the suites `ipc` and `net` only in the base cells of
    /// each pattern.
    Standard,
}

names!(Ownership, "ownership class", Owned = "owned", Borrowed = "borrowed", Loaned = "loaned");
names!(Ordering, "ordering", Strict = "strict", PerProducer = "per-producer", Unordered = "unordered");
names!(Cancel, "cancel safety", Safe = "safe", Unsafe = "unsafe", Undocumented = "undocumented");
names!(Loss, "loss", Never = "never", BestEffort = "best-effort");
/// The description of a mechanism. Built with [`Spec::new`] and the methods named after the fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Spec {
    /// `scope/name`.
    pub name: String,
    /// The distance a message travels: the first part of the name.
    pub scope: Scope,
    /// The version of the library, or `kernel`.
    pub version: String,
    /// What it is implemented with, in a few words.
    #[serde(alias = "stands_on")]
    pub implementation: String,
    /// The ways it can wait.
    pub waits: Vec<Wait>,
    /// The runtimes its ends can run on.
    pub runtimes: Vec<Runtime>,
    /// The patterns it can play.
    pub patterns: Vec<Pattern>,
    /// The kinds of payload it carries.
    pub payloads: Vec<PayloadKind>,
    /// Who owns the bytes of a message.
    pub ownership: Ownership,
    /// The order it promises.
    pub ordering: Ordering,
    /// Whether it may lose messages.
    pub loss: Loss,
    /// Whether a pending receive may be dropped, as documented. Only for ends that are futures.
    #[serde(default)]
    pub cancel: Cancel,
    /// The maximum length of a message in bytes, if there is a limit.
    pub max_message: Option<usize>,
    /// The smallest capacity it can have. 0 if it supports a rendezvous channel, which buffers
    /// nothing.
    #[serde(default = "one")]
    pub least_capacity: usize,
    /// The maximum number of producers of one receiver, if there is a limit.
    pub max_producers: Option<usize>,
    /// How many times the kernel copies a message from its sender to its receiver. 0 if its bytes
    /// do not pass through the kernel. `None` if unknown, as in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_copies: Option<u8>,
    /// Whether its library exists for other languages or documents what it sends, so that the other
    /// end may be a program in any of them. The kernel's mechanisms and network protocols need not
    /// say so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub any_language: bool,
    /// Whether its ends find each other by [`Rendezvous::address`](crate::Rendezvous::address) and
    /// [`Rendezvous::publish`](crate::Rendezvous::publish) alone, so that they can be on two hosts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub between_hosts: bool,
    /// Whether it supports an open loop, in which each message is due at a set time. True for every
    /// mechanism that the harness's own loops drive.
    #[serde(default)]
    pub open_loop: bool,
    /// Whether it is a candidate, a reference or a baseline.
    pub standing: Standing,
    /// The runs that include it when the user does not name it.
    #[serde(default, alias = "joins")]
    pub tier: Tier,
}

/// The default of `least_capacity` in records that are older than the field.
fn one() -> usize {
    1
}

impl Spec {
    /// Whether its producers search for the highest rate at which it loses few messages. True for a
    /// lossy mechanism in a pattern that sends in one direction, if the case has no rate.
    pub(crate) fn is_paced(&self, cell: &Cell) -> bool {
        self.may_lose_stream(cell.pattern) && cell.load == Load::Saturated
    }

    /// Whether messages of a stream may be lost.
    pub(crate) fn may_lose_stream(&self, pattern: Pattern) -> bool {
        self.loss == Loss::BestEffort && !pattern.is_bidirectional()
    }

    /// A description of the mechanism `scope/name` with the most common properties: blocking ends
    /// on threads, bytes that are copied, ping-pong and stream, one producer, strict order, no loss
    /// and no size limit. The kernel copies a message twice in the scope `network`, and never
    /// within a process; in the other scopes that is unknown.
    ///
    /// # Panics
    /// If `name` is not `scope/name` with a known scope and a name of lower-case letters, digits,
    /// `-`, `_` or `.`. That is a programming error, and it shows the first time the program
    /// starts.
    pub fn new(name: &str) -> Spec {
        let (scope, rest) = name.split_once('/').unwrap_or_else(|| panic!("`{name}` is not `scope/name`"));
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
        assert!(!rest.is_empty() && rest.chars().all(plain), "`{name}`: a name has a-z, 0-9, '-', '_' and '.' only");
        let scope: Scope = scope.parse().unwrap_or_else(|error| panic!("`{name}`: {error}"));
        Spec {
            name: name.to_owned(),
            scope,
            version: String::from("kernel"),
            implementation: String::new(),
            waits: vec![Wait::Block],
            runtimes: vec![Runtime::Thread],
            patterns: vec![Pattern::PingPong, Pattern::Stream],
            payloads: vec![PayloadKind::Bytes],
            ownership: Ownership::Borrowed,
            ordering: Ordering::Strict,
            loss: Loss::Never,
            cancel: Cancel::Undocumented,
            max_message: None,
            least_capacity: 1,
            max_producers: Some(1),
            kernel_copies: match scope {
                Scope::Task | Scope::Thread => Some(0),
                Scope::Network => Some(2),
                Scope::Process | Scope::Sandbox => None,
            },
            any_language: false,
            between_hosts: false,
            open_loop: false,
            standing: Standing::Candidate,
            tier: Tier::Overview,
        }
    }
}

macro_rules! setters {
    ($($field:ident: $type:ty => $value:expr),+ $(,)?) => {
        impl Spec {
            $(
                #[doc = concat!("Sets [`Spec::", stringify!($field), "`].")]
                #[must_use]
                pub fn $field(mut self, $field: $type) -> Spec {
                    self.$field = $value;
                    self
                }
            )+
        }
    };
}

setters! {
    version: &str => version.to_owned(),
    implementation: &str => implementation.to_owned(),
    waits: &[Wait] => waits.to_vec(),
    runtimes: &[Runtime] => runtimes.to_vec(),
    patterns: &[Pattern] => patterns.to_vec(),
    payloads: &[PayloadKind] => payloads.to_vec(),
    ownership: Ownership => ownership,
    ordering: Ordering => ordering,
    loss: Loss => loss,
    cancel: Cancel => cancel,
    max_message: usize => Some(max_message),
    least_capacity: usize => least_capacity,
    max_producers: Option<usize> => max_producers,
    kernel_copies: u8 => Some(kernel_copies),
    any_language: bool => any_language,
    between_hosts: bool => between_hosts,
    standing: Standing => standing,
    tier: Tier => tier,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_gives_the_scope() {
        assert_eq!(Spec::new("process/pipe").scope, Scope::Process);
    }

    #[test]
    #[should_panic(expected = "unknown scope `planet`")]
    fn an_unknown_scope_panics() {
        let _ = Spec::new("planet/pipe");
    }

    #[test]
    fn descriptions_of_older_records_are_read() {
        let mut old = serde_json::to_value(Spec::new("process/pipe")).unwrap();
        for field in ["cancel", "least_capacity", "open_loop", "tier"] {
            assert!(old.as_object_mut().unwrap().remove(field).is_some(), "{field}");
        }
        assert_eq!(serde_json::from_value::<Spec>(old).unwrap(), Spec::new("process/pipe"));
    }

    #[test]
    fn names_round_trip() {
        for scope in Scope::ALL {
            assert_eq!(scope.to_string().parse(), Ok(scope));
        }
        assert!("x".parse::<Wait>().unwrap_err().contains("spin, adaptive, block"));
    }
}
