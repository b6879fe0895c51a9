//! The arguments of `choose`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueHint;
use estafette_measure::case::{Load, Pattern, Payload, PayloadKind, Place};
use estafette_measure::spec::{Runtime, Scope, Wait};

use super::parse::{parse_budget, parse_capacity, parse_producers, parse_seed, parse_size};

#[derive(Debug, clap::Args)]
pub(crate) struct Choose {
    /// Only these mechanisms, by name or pattern such as 'process/unix-*'
    #[arg(value_name = "MECHANISM")]
    pub(crate) what: Vec<String>,

    /// Answer from this record, as `bench` or `choose` wrote it, instead of a short run
    #[arg(long, value_name = "RECORD.json", value_hint = ValueHint::FilePath)]
    pub(crate) record: Option<PathBuf>,

    /// Answer from the newest record in this folder, instead of a short run
    #[arg(long, value_hint = ValueHint::DirPath, value_name = "DIR", conflicts_with = "record")]
    pub(crate) dir: Option<PathBuf>,

    /// How far messages travel: task, thread, process, network, sandbox; same-process (task and
    /// thread); same-host (between processes of one machine: process, and network by the loopback
    /// interface); or several of them
    #[arg(long, value_delimiter = ',', value_name = "SCOPE")]
    pub(crate) scope: Vec<ScopeName>,

    /// The pattern, such as ping-pong, stream, fan-in, request-reply. A short run without it
    /// measures round trips and streams, or what a rate or several producers need
    #[arg(long, value_name = "PATTERN")]
    pub(crate) pattern: Option<Pattern>,

    /// The message size: 64, 4KiB, 1MiB. The nearest size in the record answers
    #[arg(long, value_parser = parse_size, value_name = "SIZE", allow_negative_numbers = true)]
    pub(crate) size: Option<Payload>,

    /// The kind of payload: none, u64, bytes, inline, shared, unread, message
    #[arg(long, value_name = "KIND")]
    pub(crate) payload: Option<PayloadKind>,

    /// The number of senders (1 to 2048), in patterns with several: clients, subscribers or
    /// connections too. The nearest number in the record answers
    #[arg(long, value_parser = parse_producers, value_name = "COUNT", allow_negative_numbers = true)]
    #[arg(visible_aliases = ["clients", "subscribers"])]
    pub(crate) producers: Option<usize>,

    /// The capacity in messages; 0 for a rendezvous. The nearest capacity in the record answers
    #[arg(long, value_parser = parse_capacity, value_name = "COUNT", allow_negative_numbers = true)]
    pub(crate) capacity: Option<usize>,

    /// How the ends wait: spin, adaptive, block. A short run without it measures every way between
    /// threads, and elsewhere ends that sleep (block)
    #[arg(long)]
    pub(crate) wait: Option<Wait>,

    /// The runtime of the ends, such as thread or tokio-multi
    #[arg(long)]
    pub(crate) runtime: Option<Runtime>,

    /// The core placement: other-core, same-core, free
    #[arg(long)]
    pub(crate) place: Option<Place>,

    /// The load: saturated, or a rate such as 10k/s, at which the 99th percentile of the latency is
    /// compared
    #[arg(long, visible_alias = "rate")]
    pub(crate) load: Option<Load>,

    /// What the mechanism must promise; several are separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NEED")]
    pub(crate) need: Vec<Need>,

    /// About how long a short run may take, with its preparation (1s or more). It ends earlier once
    /// every table detects differences of 3 %
    #[arg(long, value_parser = parse_budget, default_value = "45s", value_name = "TIME")]
    #[arg(conflicts_with_all = ["record", "dir"])]
    pub(crate) budget: Duration,

    /// The seed of the order and the messages of a short run; random by default
    #[arg(long, value_parser = parse_seed, value_name = "NUMBER", allow_negative_numbers = true)]
    #[arg(conflicts_with_all = ["record", "dir"])]
    pub(crate) seed: Option<u64>,

    /// The folder for the record of a short run
    #[arg(long, default_value = "estafette-results", value_hint = ValueHint::DirPath, value_name = "DIR")]
    #[arg(conflicts_with_all = ["record", "dir"])]
    pub(crate) out: PathBuf,

    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl Choose {
    /// The scopes that the user named, each once, nearest first.
    pub(crate) fn scopes(&self) -> Vec<Scope> {
        let named: Vec<Scope> = self.scope.iter().flat_map(|scope| scope.scopes()).copied().collect();
        Scope::ALL.into_iter().filter(|scope| named.contains(scope)).collect()
    }

    /// Whether the user said nothing about the question.
    pub(crate) fn is_without_question(&self) -> bool {
        let Choose {
            what, scope, pattern, size, payload, producers, capacity, wait, runtime, place, load, need, ..
        } = self;
        what.is_empty()
            && scope.is_empty()
            && need.is_empty()
            && (pattern.is_none() && size.is_none() && payload.is_none() && producers.is_none() && capacity.is_none())
            && (wait.is_none() && runtime.is_none() && place.is_none() && load.is_none())
    }
}

/// How far messages travel: a scope, or several that can replace each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScopeName {
    Scope(Scope),
    /// Between tasks or threads of one process.
    SameProcess,
    /// Between processes of one machine. Channels between threads do not reach another process.
    SameHost,
}

impl ScopeName {
    /// The scopes of which each reaches this far.
    pub(crate) fn scopes(&self) -> &[Scope] {
        match self {
            ScopeName::Scope(scope) => std::slice::from_ref(scope),
            ScopeName::SameProcess => &[Scope::Task, Scope::Thread],
            ScopeName::SameHost => &[Scope::Process, Scope::Network],
        }
    }
}

impl fmt::Display for ScopeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScopeName::Scope(scope) => scope.fmt(f),
            ScopeName::SameProcess => f.pad("same-process"),
            ScopeName::SameHost => f.pad("same-host"),
        }
    }
}

impl FromStr for ScopeName {
    type Err = String;

    fn from_str(text: &str) -> Result<ScopeName, String> {
        match text {
            "same-process" => Ok(ScopeName::SameProcess),
            "same-host" => Ok(ScopeName::SameHost),
            _ => match text.parse() {
                Ok(scope) => Ok(ScopeName::Scope(scope)),
                Err(error) => Err(format!("{error}, same-process, same-host")),
            },
        }
    }
}

/// What a mechanism must promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Need {
    /// It never loses a message
    NoLoss,
    /// All messages arrive in the order in which they were sent
    Order,
    /// The messages of each producer arrive in the order in which it sent them
    OrderPerProducer,
    /// The value moves to the receiver
    Owned,
    /// Messages are written and read in the mechanism's memory
    InPlace,
    /// It passes values of a type, not bytes only
    Typed,
    /// Its ends are futures, measured on an async runtime
    Async,
    /// The other end can be in another language: a call of the kernel, a network protocol, or a
    /// library or server that exists for other languages
    OtherLanguages,
    /// It needs no library: the kernel or the standard library has it
    NoDependencies,
}

impl Need {
    pub(crate) const ALL: [Need; 9] = [
        Need::NoLoss,
        Need::Order,
        Need::OrderPerProducer,
        Need::Owned,
        Need::InPlace,
        Need::Typed,
        Need::Async,
        Need::OtherLanguages,
        Need::NoDependencies,
    ];

    /// What it asks for, as words after "it must".
    pub(crate) fn words(self) -> &'static str {
        match self {
            Need::NoLoss => "never lose a message",
            Need::Order => "keep the order of all messages",
            Need::OrderPerProducer => "keep the order of each producer's messages",
            Need::Owned => "move the value to the receiver",
            Need::InPlace => "let messages be written and read in its own memory",
            Need::Typed => "pass values of a type, not bytes only",
            Need::Async => "have ends that are futures",
            Need::OtherLanguages => {
                "be open to other languages (the kernel's calls, network protocols, libraries for several)"
            }
            Need::NoDependencies => "do without a library",
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Need::NoLoss => "no-loss",
            Need::Order => "order",
            Need::OrderPerProducer => "order-per-producer",
            Need::Owned => "owned",
            Need::InPlace => "in-place",
            Need::Typed => "typed",
            Need::Async => "async",
            Need::OtherLanguages => "other-languages",
            Need::NoDependencies => "no-dependencies",
        })
    }
}

impl FromStr for Need {
    type Err = String;

    fn from_str(text: &str) -> Result<Need, String> {
        let known = || Need::ALL.map(|need| need.to_string()).join(", ");
        Need::ALL
            .into_iter()
            .find(|need| need.to_string() == text)
            .ok_or_else(|| format!("unknown need `{text}`; known: {}", known()))
    }
}
