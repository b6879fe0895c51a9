//! The command-line arguments as parsed. Each command decides what they mean.

mod choose;
#[cfg(feature = "flow")]
mod flow;
mod hosts;
mod parse;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueHint};
use estafette_measure::case::{Arrivals, Load, Pattern, Payload, PayloadKind, Place};
use estafette_measure::spec::{Runtime, Wait};
use estafette_measure::suite::Profile;

use crate::allocator::Allocator;

pub(crate) use self::choose::{Choose, Need, ScopeName};
#[cfg(feature = "flow")]
pub(crate) use self::flow::{Flow, FlowCheck, FlowCommand, FlowNew, FlowReload, FlowRun, FlowStatus, LogFormat};
pub(crate) use self::hosts::{Peer, ToHost};
pub(crate) use self::parse::Slice;
use self::parse::{
    parse_budget, parse_capacity, parse_percentage, parse_ping_timeout, parse_producers, parse_round_trips,
    parse_rounds, parse_seed, parse_size, parse_slice, parse_timeout, parse_window,
};

const EXIT_CODES: &str = "\
Exit codes:
  0  success, even if some mechanisms are not available here
  2  wrong usage, a failed instance, or no instance that counts
  4  a message lost, reordered, duplicated or damaged although the mechanism guarantees otherwise
130  interrupted";

const ALL_EXIT_CODES: &str = "\
Exit codes:
  0  success, even if some mechanisms are not available here
  1  `gate`: a case is slower than allowed
  2  wrong usage, a failed instance, or no instance that counts
  3  `gate` or `choose`: the measurement does not decide
  4  a message lost, reordered, duplicated or damaged although the mechanism guarantees otherwise
130  interrupted";

const CHOOSE_HELP: &str = "\
Examples:
  estafette choose                                 asks, in a terminal
  estafette choose --scope same-host --pattern ping-pong --size 1KiB
  estafette choose process/tcp process/unix-stream --pattern ping-pong --size 1KiB
  estafette choose --scope task --pattern fan-in --producers 64 --size 100 --load 200k/s
  estafette choose --record RECORD.json --scope process --need no-loss

Exit codes:
  0  decided, or several mechanisms are equal within 5 %
  2  wrong usage, or the record has no such case
  3  undecided, or no mechanism meets the needs
  4  a mechanism broke its promise during the short run
130  interrupted";

const GATE_EXIT_CODES: &str = "\
Exit codes:
  0  no case is slower than allowed
  1  a case is slower, or more of its instances failed
  2  wrong usage, or the records or builds cannot be compared
  3  undecided: too noisy, or the new record lacks cases
  4  a mechanism broke its promise in the new record or build
130  interrupted";

/// Measures every way to pass a message on this machine, and shows each beside its physical bound.
#[derive(Debug, Parser)]
#[command(name = "estafette", version, after_help = ALL_EXIT_CODES, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure mechanisms and compare them: the main command
    #[command(after_help = EXIT_CODES)]
    Bench(Box<Bench>),
    /// Run the receiving ends for `bench --to` on this host
    #[command(after_help = hosts::PEER_HELP)]
    Peer(Peer),
    /// Measure one mechanism's round trip and print a summary
    #[command(after_help = EXIT_CODES)]
    Ping(Ping),
    /// Check that mechanisms keep their guarantees: every kind of case they support, for a moment
    /// each
    #[command(after_help = EXIT_CODES)]
    Verify(Verify),
    /// Measure what sets the bounds on this machine: cache lines, copies, wakes, system calls
    Limits(Limits),
    /// List the mechanisms and their guarantees
    List(List),
    /// Find what would disturb a measurement here, and mechanisms that are not available
    Doctor(Doctor),
    /// Print the tables of a record again, or write its report: a page, Markdown or charts
    Report(Report),
    /// Answer which mechanism to use: by a short run made for the question, or from a record
    #[command(after_help = CHOOSE_HELP)]
    Choose(Box<Choose>),
    /// Compare two records of the same machine
    Compare(Compare),
    /// Fail if a case is slower in a new record or build than in an older one: for continuous
    /// integration
    #[command(after_help = GATE_EXIT_CODES)]
    Gate(Gate),
    /// Show how times changed from run to run: did a mechanism get slower?
    History(History),
    /// Write a crate that measures a channel of your own beside the built-in ones, by `cargo bench`
    NewMechanism(NewMechanism),
    /// Print a script that completes this command in a shell
    Completions(Completions),
    /// Print the manual page, or write one for each command
    Man(Man),
    /// Run pipelines of WASM functions: check, run, reload, watch
    #[cfg(feature = "flow")]
    Flow(Flow),
}

impl Command {
    /// Whether it runs mechanisms, whose allocator the environment may choose.
    pub(crate) fn measures(&self) -> bool {
        use Command::{Bench, Choose, Gate, Peer, Ping, Verify};
        matches!(self, Bench(_) | Peer(_) | Ping(_) | Verify(_) | Choose(_) | Gate(_))
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Bench {
    /// A suite (overview, channels, ipc, ipc-typed, net, flow) or mechanisms, by name or pattern
    /// such as 'process/*'
    #[arg(value_name = "SUITE|MECHANISM")]
    pub(crate) what: Vec<String>,

    /// quick: 9 rounds, each with a warm-up of 15 ms and a window of 30 ms, and up to 18 more for
    /// tables that do not yet detect differences of 3 %, if there is time within 55 s; standard:
    /// more cells, 12 rounds of 100 + 250 ms; full: 6 rounds of a fixed number of messages
    /// (ipc-typed: 12 of 100 + 1000 ms)
    #[arg(long, default_value = "quick", value_name = "quick|standard|full")]
    pub(crate) profile: Profile,

    /// Patterns instead of the suite's: ping-pong, stream, duplex, fan-in, writers, connections,
    /// request-reply, pub-sub, merge, mpmc, cancel, burst, codec, same-thread; and pipelines of
    /// functions: send-receive, send-checksum, send-compete
    #[arg(long, value_delimiter = ',', value_name = "PATTERN")]
    pub(crate) pattern: Vec<Pattern>,

    /// Message sizes instead of the suite's: 64, 4KiB, 1MiB
    #[arg(long, value_delimiter = ',', value_parser = parse_size, value_name = "SIZE", allow_negative_numbers = true)]
    pub(crate) size: Vec<Payload>,

    /// Only cells with this kind of payload: none, u64, bytes, inline, shared, unread, message
    #[arg(long, value_name = "KIND")]
    pub(crate) payload: Option<PayloadKind>,

    /// Numbers of senders instead of the suite's (1 to 2048), in patterns with several. In mpmc it
    /// is also the number of receivers, in request-reply that of clients, in pub-sub of
    /// subscribers, in connections of connections
    #[arg(long, value_delimiter = ',', value_parser = parse_producers, value_name = "COUNT")]
    #[arg(visible_aliases = ["clients", "subscribers"])]
    #[arg(allow_negative_numbers = true)]
    pub(crate) producers: Vec<usize>,

    /// Capacities in messages instead of the suite's; 0 for a rendezvous
    #[arg(long, value_delimiter = ',', value_parser = parse_capacity, value_name = "COUNT")]
    #[arg(allow_negative_numbers = true)]
    pub(crate) capacity: Vec<usize>,

    /// Runtimes instead of the suite's: thread, tokio-multi, tokio-current,
    /// tokio-multi-unconstrained, tokio-current-unconstrained (without tokio's cooperative budget)
    #[arg(long, value_delimiter = ',', value_name = "RUNTIME")]
    pub(crate) runtime: Vec<Runtime>,

    /// Wait modes instead of the suite's: spin, adaptive, block
    #[arg(long, value_delimiter = ',', value_name = "WAIT")]
    pub(crate) wait: Vec<Wait>,

    /// Core placements instead of the suite's: other-core, same-core, free; with --to always
    /// other-host
    #[arg(long, value_delimiter = ',', value_name = "PLACE")]
    pub(crate) place: Vec<Place>,

    /// Loads instead of the suite's: saturated, or a rate such as 100k/s at which messages are due
    /// (up to 2M/s)
    #[arg(long, value_delimiter = ',', value_name = "LOAD", allow_negative_numbers = true)]
    pub(crate) load: Vec<Load>,

    /// When the messages of a rate are due: constant (at equal intervals) or poisson (at random,
    /// independent times)
    #[arg(long, value_delimiter = ',', value_name = "ARRIVALS")]
    pub(crate) arrivals: Vec<Arrivals>,

    /// Global allocator of the measured processes: system, or mimalloc in a build with the feature
    /// `mimalloc`. With both, each candidate has a second row, whose name ends with @ and the
    /// second
    #[arg(long, value_delimiter = ',', value_enum, hide_possible_values = true, value_name = "ALLOCATOR")]
    pub(crate) allocator: Vec<Allocator>,

    #[command(flatten)]
    pub(crate) hosts: ToHost,

    /// How often each case is measured in a fresh instance (1 to 1000). With 1, nothing is decided
    /// and system calls are not counted
    #[arg(long, value_parser = parse_rounds, value_name = "COUNT", allow_negative_numbers = true)]
    pub(crate) rounds: Option<usize>,

    /// How long each instance is measured, after a warm-up of half of it (1ms to 60s)
    #[arg(long, value_parser = parse_window, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) window: Option<u64>,

    /// The length of the slices in which the mechanisms of a table take turns (1ms to 100ms), or
    /// `off` to measure each in one piece, which follows the drift of a busy machine less closely
    #[arg(long, value_parser = parse_slice, default_value = "2ms", value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) slice: Slice,

    /// How long an instance may take beyond its window before it counts as hung (100ms to 10min)
    #[arg(long, value_parser = parse_timeout, default_value = "5s", value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) timeout: Duration,

    /// The seed of the order and the messages; random by default
    #[arg(long, value_parser = parse_seed, value_name = "NUMBER", allow_negative_numbers = true)]
    pub(crate) seed: Option<u64>,

    /// Read options that are not given here from a file, whose keys are these options and `what`: a
    /// sweep
    #[arg(long, value_hint = ValueHint::FilePath, value_name = "FILE.toml")]
    pub(crate) config: Option<PathBuf>,

    /// After the rounds of the profile or of --rounds, measure more until every table
    /// detects differences from 5 %, for at most this time in all (10min)
    #[arg(long, value_parser = parse_budget, value_name = "TIME", num_args = 0..=1, default_missing_value = "10min", require_equals = true)]
    pub(crate) until_decided: Option<Duration>,

    /// The folder for the record and the CSV table
    #[arg(long, default_value = "estafette-results", value_hint = ValueHint::DirPath, value_name = "DIR")]
    pub(crate) out: PathBuf,

    /// Show the tables in a full screen while they converge; they are printed at the end as usual
    #[arg(long)]
    pub(crate) live: bool,

    /// Do not write the HTML page beside the record
    #[arg(long)]
    pub(crate) no_report: bool,

    /// Print a table for each cell too, where several that differ in one value are shown as one
    /// matrix
    #[arg(long)]
    pub(crate) details: bool,

    /// Print the record as JSON instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Ping {
    /// The mechanism, for example process/pipe
    pub(crate) mechanism: String,

    /// How many round trips are measured (1 to 1,000,000,000)
    #[arg(short, long, default_value = "10000", value_parser = parse_round_trips, allow_negative_numbers = true)]
    pub(crate) count: u64,

    /// The message size: 64, 4KiB; u64 for a word, none for no bytes. The default is 64 bytes, or
    /// what the mechanism carries
    #[arg(short, long, value_name = "SIZE", allow_negative_numbers = true)]
    pub(crate) size: Option<Payload>,

    /// How the ends wait: spin, adaptive, block. The default is the mechanism's first mode
    #[arg(long)]
    pub(crate) wait: Option<Wait>,

    /// The core placement: other-core, same-core, free. The default is other-core, and free for
    /// tasks
    #[arg(long)]
    pub(crate) place: Option<Place>,

    /// How long all round trips may take before the mechanism counts as hung (100ms to 1440min)
    #[arg(long, value_parser = parse_ping_timeout, default_value = "5min", value_name = "TIME")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) timeout: Duration,

    /// Print the summary as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Verify {
    /// The mechanisms, by name or pattern such as 'process/*'
    #[arg(value_name = "MECHANISM", required = true)]
    pub(crate) what: Vec<String>,

    /// How long a case may take beyond its window before the mechanism counts as hung (100ms to
    /// 10min)
    #[arg(long, value_parser = parse_timeout, default_value = "5s", value_name = "TIME")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) timeout: Duration,

    /// The seed of the messages, to repeat a run
    #[arg(long, value_parser = parse_seed, value_name = "NUMBER", allow_negative_numbers = true)]
    pub(crate) seed: Option<u64>,

    /// Print each case and its result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Limits {
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Only these mechanisms, by name or pattern such as 'process/*'
    #[arg(value_name = "MECHANISM")]
    pub(crate) what: Vec<String>,

    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Report {
    /// The record, as `bench` wrote it; it may be compressed with gzip
    #[arg(value_name = "RECORD.json", value_hint = ValueHint::FilePath)]
    pub(crate) record: PathBuf,

    /// A later record of the same machine: shows what changed, as `compare` does
    #[arg(value_name = "OTHER.json", value_hint = ValueHint::FilePath, conflicts_with = "details")]
    pub(crate) other: Option<PathBuf>,

    /// Write an HTML page with the answers, charts and tables, which needs no network; `-` is the standard output
    #[arg(short, long, value_name = "FILE.html", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// Write the charts as SVG: all of them to a folder, or the one that the file is named after
    #[arg(long, value_name = "DIR|FILE.svg", value_hint = ValueHint::AnyPath)]
    pub(crate) svg: Option<PathBuf>,

    /// Print the answers and tables as Markdown
    #[arg(long, conflicts_with_all = ["details", "json"])]
    pub(crate) markdown: bool,

    /// Print a table for each cell too, where several that differ in one value are shown as one
    /// matrix
    #[arg(long)]
    pub(crate) details: bool,

    /// Print the record as JSON instead of tables; of two records, the comparison
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Compare {
    /// The record to compare with
    #[arg(value_name = "A.json", value_hint = ValueHint::FilePath)]
    pub(crate) a: PathBuf,

    /// The record to compare
    #[arg(value_name = "B.json", value_hint = ValueHint::FilePath)]
    pub(crate) b: PathBuf,

    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Gate {
    /// The record of the state before the change, and the record of the state after it. With
    /// --rerun: a suite, or mechanisms by name or pattern; by default a program's own
    #[arg(value_name = "BASE.json NEW.json|MECHANISM", value_hint = ValueHint::FilePath)]
    pub(crate) what: Vec<String>,

    /// Measure this program and PROGRAM, an older build of it, in alternating slices instead of
    /// reading records: 36 rounds, and up to 36 more of noisy cases
    #[arg(long, value_name = "PROGRAM", value_hint = ValueHint::FilePath)]
    pub(crate) rerun: Option<PathBuf>,

    /// With --rerun: options of `bench`, such as `-- --pattern stream --size 4KiB`
    #[arg(last = true, value_name = "OPTION", requires = "rerun")]
    pub(crate) bench: Vec<String>,

    /// How much longer a message may take in each case, such as 5% (0% to 1000%)
    #[arg(long, value_parser = parse_percentage, default_value = "5%", value_name = "PERCENT")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) allow: f64,

    /// The form of the output
    #[arg(long, value_enum, default_value_t = GateFormat::Text)]
    pub(crate) format: GateFormat,

    /// Print as JSON: the same as --format json
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
}

impl Gate {
    /// The form of the output.
    pub(crate) fn format(&self) -> GateFormat {
        if self.json { GateFormat::Json } else { self.format }
    }
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum GateFormat {
    /// A table for a terminal
    Text,
    /// A table for a comment on a change
    Markdown,
    /// XML that systems for continuous integration read
    Junit,
    Json,
}

#[derive(Debug, clap::Args)]
pub(crate) struct History {
    /// The folder with the records, as `bench` and `choose` wrote them; they may be compressed with
    /// gzip
    #[arg(default_value = "estafette-results", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,

    /// The mechanisms whose cases are shown, by name or pattern such as 'process/*'. By default the
    /// first of each table of the newest run
    #[arg(long, value_delimiter = ',', value_name = "MECHANISM")]
    pub(crate) mechanism: Vec<String>,

    /// Write a chart of the shown cases of the newest run's machine and plan
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,

    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct NewMechanism {
    /// The name of the crate, of its folder, and of its mechanism thread/NAME: lower-case letters,
    /// digits, `-` and `_`
    pub(crate) name: String,

    /// Depend on the crates of this checkout of Estafette, and on the versions in its Cargo.lock.
    /// Without it, on the crates of this version in the registry: until they are published there,
    /// --path is needed to build
    #[arg(long, value_hint = ValueHint::DirPath, value_name = "DIR")]
    pub(crate) path: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// Write estafette.1, estafette-bench.1 and so on into this folder
    #[arg(long, value_hint = ValueHint::DirPath, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}
