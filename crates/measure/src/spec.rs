//! What a mechanism says of itself: the facts that decide where it may run and whom it may be ranked against.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::case::{Pattern, PayloadKind};

/// The distance a message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Between async tasks of one process.
    Task,
    /// Between threads of one process.
    Thread,
    /// Between processes of one machine.
    Process,
    /// Through the network stack.
    Network,
    /// Through a function inside a WASM sandbox.
    Sandbox,
}

impl Scope {
    /// Every scope, nearest first.
    pub const ALL: [Scope; 5] = [Scope::Task, Scope::Thread, Scope::Process, Scope::Network, Scope::Sandbox];

    /// Whether both ends live in one child process.
    pub fn in_process(self) -> bool {
        matches!(self, Scope::Task | Scope::Thread)
    }
}

/// What an end does while it has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// It polls and never gives up its core.
    Spin,
    /// It polls for a while, then sleeps.
    Adaptive,
    /// It sleeps until it is woken.
    Block,
}

/// What becomes of a message's bytes on their way; rankings are made within one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ownership {
    /// The sender gives a value away and the receiver owns it.
    Owned,
    /// The bytes are copied out of the sender's buffer and into the receiver's.
    Borrowed,
    /// The sender writes into memory of the mechanism and the receiver reads it there.
    Loaned,
}

/// The order in which a receiver sees messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ordering {
    /// One order for all, the order of sending.
    Strict,
    /// The messages of one producer stay in order; those of several may be interleaved otherwise than sent.
    PerProducer,
    /// None is promised.
    Unordered,
}

/// Whether messages may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// A lost message is a defect.
    Never,
    /// A message may be lost under load; how many is part of the result.
    #[serde(alias = "counted")]
    BestEffort,
}

/// Whether a receive that is pending may be dropped, as `select!` and time-outs do, without losing a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Cancel {
    /// Its documentation says so.
    Safe,
    /// Its documentation says that it may not.
    Unsafe,
    /// Its documentation does not say.
    #[default]
    #[serde(alias = "unsaid")]
    Undocumented,
}

/// Where the code of the two ends runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Runtime {
    /// One OS thread an end.
    Thread,
    /// Tokio's multi-threaded runtime, one worker a core.
    TokioMulti,
    /// Tokio's current-thread runtime.
    TokioCurrent,
    /// Tokio's multi-threaded runtime without its cooperative budget, which makes a task yield after 128 operations.
    TokioMultiUnconstrained,
    /// Tokio's current-thread runtime without that budget.
    TokioCurrentUnconstrained,
}

/// What a mechanism stands for in a ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// A way to pass a message that a program might choose.
    Candidate,
    /// The least that can be written: the reference that candidates are compared with.
    #[serde(alias = "limit")]
    Reference,
    /// A hand-written program doing the same work, to check the instrument itself. Not part of the default run.
    Baseline,
}

/// In which runs a mechanism stands that nobody asked for by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// In the overview, and wherever else it can.
    #[default]
    Overview,
    /// In the suite of its distance.
    Suite,
    /// In the suite of its distance, from the profile `standard` on, in every cell.
    #[serde(alias = "throughout")]
    StandardAllCells,
    /// In the suite of its distance, from the profile `standard` on; where a suite has more mechanisms than time, in the cells
    /// that others lie around.
    Standard,
}

macro_rules! names {
    ($type:ident, $what:literal, $($variant:ident = $name:literal),+ $(,)?) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(match self { $(Self::$variant => $name),+ })
            }
        }
        impl std::str::FromStr for $type {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($name => Ok(Self::$variant),)+
                    _ => Err(format!("unknown {} `{text}`; known: {}", $what, [$($name),+].join(", "))),
                }
            }
        }
    };
}
pub(crate) use names;

names!(Scope, "scope", Task = "task", Thread = "thread", Process = "process", Network = "network", Sandbox = "sandbox");
names!(Wait, "wait mode", Spin = "spin", Adaptive = "adaptive", Block = "block");
names!(Ownership, "ownership class", Owned = "owned", Borrowed = "borrowed", Loaned = "loaned");
names!(Ordering, "ordering", Strict = "strict", PerProducer = "per-producer", Unordered = "unordered");
names!(Cancel, "cancel safety", Safe = "safe", Unsafe = "unsafe", Undocumented = "undocumented");
names!(Loss, "loss", Never = "never", BestEffort = "best-effort");
names!(
    Runtime,
    "runtime",
    Thread = "thread",
    TokioMulti = "tokio-multi",
    TokioCurrent = "tokio-current",
    TokioMultiUnconstrained = "tokio-multi-unconstrained",
    TokioCurrentUnconstrained = "tokio-current-unconstrained",
);

/// A mechanism's description of itself. Built from [`Spec::new`] and the methods named after the fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Spec {
    /// `scope/name`.
    pub name: String,
    /// The distance, taken from the name.
    pub scope: Scope,
    /// The version of the library, or `kernel`.
    pub version: String,
    /// What it is made of, in a few words.
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
    /// What becomes of the bytes.
    pub ownership: Ownership,
    /// The order it promises.
    pub ordering: Ordering,
    /// Whether it may lose.
    pub loss: Loss,
    /// Whether a pending receive may be dropped, as documented; of ends that are futures.
    #[serde(default)]
    pub cancel: Cancel,
    /// The longest message in bytes, where there is a limit.
    pub max_message: Option<usize>,
    /// The least capacity it can have; 0 where it offers a rendezvous.
    #[serde(default = "one")]
    pub least_capacity: usize,
    /// The most producers one receiver can have, where there is a limit.
    pub max_producers: Option<usize>,
    /// Whether messages can be due at times; so for all that the instrument's own loops drive.
    #[serde(default)]
    pub open_loop: bool,
    /// What it stands for in a ranking.
    pub standing: Standing,
    /// In which runs it stands unasked.
    #[serde(default, alias = "joins")]
    pub tier: Tier,
}

/// What records say that are older than the field.
fn one() -> usize {
    1
}

impl Runtime {
    /// Tokio's, in which ends are tasks.
    pub const TASKS: [Runtime; 4] = [
        Runtime::TokioMulti,
        Runtime::TokioCurrent,
        Runtime::TokioMultiUnconstrained,
        Runtime::TokioCurrentUnconstrained,
    ];
}

impl Spec {
    /// Whether its producers look for the highest rate at which it loses little: one that may lose, sent one way.
    pub(crate) fn is_paced(&self, pattern: Pattern) -> bool {
        self.loss == Loss::BestEffort && !pattern.both_ways()
    }

    /// A mechanism `scope/name` with the commonest answers: it blocks, on threads, carries bytes by copy, ping-pong
    /// and stream, one producer, strictly ordered, lossless, without a size limit.
    ///
    /// # Panics
    /// If `name` is not `scope/name` with a known scope and a name of lower-case letters, digits, `-`, `_` or `.`:
    /// a mistake of the program's author, found the first time the program starts.
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
    fn an_unknown_scope_is_the_authors_mistake() {
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
