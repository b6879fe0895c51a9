//! The arguments of the command `flow`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum, ValueHint};
use estafette_flow::config::Language;

const RUN_EXIT_CODES: &str = "\
Exit codes:
  0  all work is done, or drained
  2  the pipeline's file is wrong, or a function failed permanently
130  stopped with messages in flight";

const CHECK_EXIT_CODES: &str = "\
Exit codes:
  0  no errors; there may be warnings
  2  errors, or the file cannot be read";

const RELOAD_EXIT_CODES: &str = "\
Exit codes:
  0  every instance of the function runs the new code
  2  the old code still runs or the pipeline has ended, with the reason on stderr; or the timeout \
     passed, and the reload continues";

#[derive(Debug, clap::Args)]
pub(crate) struct Flow {
    #[command(subcommand)]
    pub(crate) command: FlowCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FlowCommand {
    /// Run a pipeline until its work is done; Ctrl-C drains it, a second one stops it
    #[command(after_help = RUN_EXIT_CODES)]
    Run(FlowRun),
    /// Check a pipeline: report all errors, where they are, and what to do
    #[command(after_help = CHECK_EXIT_CODES)]
    Check(FlowCheck),
    /// Replace a function's code in a running pipeline, between two batches, and wait until all its
    /// instances run it
    Reload(FlowReload),
    /// Show what a running pipeline is doing
    Status(FlowStatus),
    /// Write a working example of a pipeline into an empty folder
    New(FlowNew),
}

#[derive(Debug, clap::Args)]
pub(crate) struct FlowCheck {
    /// The pipeline's file
    #[arg(value_name = "PIPELINE.yml", value_hint = ValueHint::FilePath)]
    pub(crate) pipeline: PathBuf,

    /// Check for this host, if the pipeline has `hosts`: the modules and files of others need not
    /// exist
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<String>,

    /// Also ask the NATS server what it lacks for topics that cross hosts; nothing is changed there
    #[arg(long)]
    pub(crate) server: bool,

    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FlowNew {
    /// The folder, empty or new
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,

    /// The language of the function: wat (needs no compiler), rust, go, c
    #[arg(long, default_value_t, value_name = "LANGUAGE")]
    pub(crate) language: Language,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FlowRun {
    /// The pipeline's file
    #[arg(value_name = "PIPELINE.yml", value_hint = ValueHint::FilePath)]
    pub(crate) pipeline: PathBuf,

    /// Run the part of this host, if the pipeline has `hosts`
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<String>,

    /// Reload a function when the file of its module changes
    #[arg(long)]
    pub(crate) watch: bool,

    /// How long to process messages in flight after the first Ctrl-C (0s to 24h)
    #[arg(long, default_value = "30s", value_parser = parse_time, value_name = "TIME")]
    pub(crate) drain_timeout: Duration,

    /// Serve /metrics for Prometheus and /health at this loopback address: 127.0.0.1:9464
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<SocketAddr>,

    /// The format of the log on stderr
    #[arg(long, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    pub(crate) log: LogFormat,

    /// Also log starts and ends of functions
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Do not draw the live view on a terminal
    #[arg(long)]
    pub(crate) no_view: bool,

    /// Print the status as JSON at the end
    #[arg(long)]
    pub(crate) json: bool,
}

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line of text for each event
    Text,
    /// A JSON object for each event
    Json,
}

#[derive(Debug, clap::Args)]
#[command(after_help = RELOAD_EXIT_CODES)]
pub(crate) struct FlowReload {
    /// The function
    #[arg(value_name = "NAME")]
    pub(crate) function: String,

    /// The pipeline, by name or process identifier, if several run
    #[arg(long, value_name = "NAME|PID")]
    pub(crate) pipeline: Option<String>,

    /// How long to wait until all instances run the new code (0s to 24h); the reload continues
    /// after that
    #[arg(long, default_value = "3min", value_parser = parse_time, value_name = "TIME")]
    pub(crate) timeout: Duration,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FlowStatus {
    /// The pipeline, by name or process identifier, if several run
    #[arg(value_name = "NAME|PID")]
    pub(crate) pipeline: Option<String>,

    /// Print the status as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let time: Duration =
        humantime::parse_duration(text).map_err(|_| String::from("write a number and a unit: 30s, 5min"))?;
    if time <= Duration::from_secs(24 * 3600) { Ok(time) } else { Err(String::from("choose 0s to 24h")) }
}
