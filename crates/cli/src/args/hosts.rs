//! The arguments of measurements between two hosts: of `peer`, and those of `bench` that name the
//! other host.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::ValueHint;

use crate::hosts::target::Target;

/// What `peer` prints below its options.
pub(crate) const PEER_HELP: &str = "\
On the other host:
  estafette peer --listen 0.0.0.0:7000        prints the command to run here, with a token
Here:
  ESTAFETTE_TOKEN=... estafette bench net --to tcp://HOST:7000

Where ssh works, nothing is started by hand:
  estafette bench net --to ssh://HOST

Whoever has the token can use the cores and the network of this host for
measurements. No file and no other program can be reached. How this is enforced
is explained in docs/between-hosts.md.

Exit codes:
  0  the session has ended (--stdio, --once)
  2  wrong usage, or a session that failed (--stdio, --once)
130  interrupted";

#[derive(Debug, clap::Args)]
pub(crate) struct Peer {
    /// Wait for coordinators at this address, encrypted and with a token, one after the other; port
    /// 0 for any free one
    #[arg(long, value_name = "ADDRESS:PORT", required_unless_present = "stdio", conflicts_with = "stdio")]
    pub(crate) listen: Option<SocketAddr>,

    /// Serve one session over the standard input and output: what `bench --to ssh://` starts
    #[arg(long)]
    pub(crate) stdio: bool,

    /// The address of this host at which the measured programs listen, if it is not the one of the
    /// session
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) address: Option<IpAddr>,

    /// Read the token from a file instead of ESTAFETTE_TOKEN. Without either, a random one is made
    /// and printed
    #[arg(long, value_hint = ValueHint::FilePath, value_name = "FILE", conflicts_with = "stdio")]
    pub(crate) token_file: Option<PathBuf>,

    /// End after one session
    #[arg(long, conflicts_with = "stdio")]
    pub(crate) once: bool,
}

/// The other host of `bench`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ToHost {
    /// Measure between two hosts: the receiving ends run on this one. tcp://HOST:PORT, where
    /// `estafette peer --listen` runs, or ssh://[USER@]HOST[:PORT]. Only the network's mechanisms.
    /// With
    /// --load, times are from one host to the other, and the clocks of both are compared over UDP
    #[arg(long, value_name = "URL")]
    pub(crate) to: Option<Target>,

    /// With --to: the address of this host for the measured connections, if it is not the one of
    /// the session
    #[arg(long, value_name = "ADDRESS", requires = "to")]
    pub(crate) address: Option<IpAddr>,

    /// With --to ssh://: the address of the other host for the measured connections, if it is not
    /// the one of ssh
    #[arg(long, value_name = "ADDRESS", requires = "to")]
    pub(crate) peer_address: Option<IpAddr>,

    /// With --to ssh://: the command that starts the program there, for its shell [default:
    /// estafette]
    #[arg(long, value_name = "COMMAND", requires = "to")]
    pub(crate) peer_command: Option<String>,

    /// With --to tcp://: read the token from a file instead of ESTAFETTE_TOKEN
    #[arg(long, value_hint = ValueHint::FilePath, value_name = "FILE", requires = "to")]
    pub(crate) token_file: Option<PathBuf>,
}
