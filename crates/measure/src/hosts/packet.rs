//! The packets of a session between two hosts. They surround the packets of the child protocol
//! ([`crate::protocol`]), one session for all children.
//!
//! | coordinator → peer | peer → coordinator |
//! |---|---|
//! | `hello` | `hello`, or `refused` |
//! | `ping` | `pong` |
//! | `measure_link` | `link_ports` |
//! | `load` | `load` |
//! | `open_clock` | `clock_port` |
//! | `start`, then `child` | `child`, then `ended` |
//! | `child` with `go`, then `probe` | `began`, then `probe` |
//! | `kill` | `ended` |
//! | `end` | |
//! | any | `refused`, and the session has ended |

use std::net::IpAddr;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::clock_offset::ClockPort;
use super::{HostLoad, SessionLink, frame};
use crate::fingerprint::Fingerprint;
use crate::limits::link::Ports;
use crate::protocol::{self, Assignment, ToChild, ToCoordinator};

/// The value of [`Hello::format`].
const FORMAT: &str = "estafette-session";
/// The version of the session's packets.
const VERSION: u32 = 5;
/// The maximum length of a text about a host, in bytes.
const MAX_TEXT: usize = 256;

/// The first packet of each side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Always `estafette-session`.
    format: String,
    /// The version of the session's packets.
    session: u32,
    /// The version of the child protocol.
    protocol: u32,
    /// The version of the tool.
    pub tool: String,
    /// The commit of the tool's sources, if it is known.
    pub commit: Option<String>,
    /// The global allocator of this side's children. Empty before version 5 of the session.
    #[serde(default)]
    allocator: String,
    /// The host.
    pub fingerprint: Fingerprint,
    /// The address at which this side listens for the measured messages, if it knows it.
    pub address: Option<IpAddr>,
    /// The address of the other side, if this side knows it better. Over ssh only the peer knows
    /// it.
    pub address_of_other: Option<IpAddr>,
}

impl Hello {
    /// The packet of this host. `commit` is that of the tool's sources.
    pub fn of_this_host(commit: Option<&str>) -> Hello {
        Hello {
            format: FORMAT.to_owned(),
            session: VERSION,
            protocol: protocol::VERSION,
            tool: env!("CARGO_PKG_VERSION").to_owned(),
            commit: commit.map(str::to_owned),
            allocator: String::from("system"),
            fingerprint: Fingerprint::take(),
            address: None,
            address_of_other: None,
        }
    }

    /// Sets the global allocator of this side's children, which is the system's otherwise.
    #[must_use]
    pub fn with_allocator(self, allocator: &str) -> Hello {
        Hello { allocator: allocator.to_owned(), ..self }
    }

    /// Adds the addresses of this side, and of the other one as far as this side knows it better.
    #[must_use]
    pub fn with_addresses(self, ours: IpAddr, theirs: Option<IpAddr>) -> Hello {
        Hello { address: Some(ours), address_of_other: theirs, ..self }
    }

    /// Checks what the other side sent. `who` names it in errors.
    fn check(&self, ours: &Hello, who: &str) -> Result<()> {
        if self.format != FORMAT {
            bail!("{who} does not speak Estafette's session protocol");
        }
        let texts = [
            &self.tool,
            &self.allocator,
            &self.fingerprint.cpu,
            &self.fingerprint.architecture,
            &self.fingerprint.kernel,
        ];
        let more = [&self.fingerprint.clock_source];
        let of_machine = &self.fingerprint;
        let optional = [&self.commit, &of_machine.governor, &of_machine.machine, &of_machine.tcp_congestion_control];
        let mut all = texts.into_iter().chain(more).chain(optional.into_iter().flatten());
        if all.any(|text| text.len() > MAX_TEXT) {
            bail!("{who} describes itself with a text of more than {MAX_TEXT} bytes");
        }
        if self.tool != ours.tool {
            bail!(
                "{who} is Estafette {}, and this one is {}: install the same version on both hosts",
                self.tool,
                ours.tool
            );
        }
        if (self.session, self.protocol) != (ours.session, ours.protocol) {
            bail!(
                "{who} speaks versions {} and {} of the session and child protocols, and this one {} and {}: install the same build on both hosts",
                self.session,
                self.protocol,
                ours.session,
                ours.protocol
            );
        }
        if self.allocator != ours.allocator {
            bail!(
                "{who} uses the allocator {}, and this one {}: set ESTAFETTE_ALLOCATOR to the same value on both hosts",
                self.allocator,
                ours.allocator
            );
        }
        Ok(())
    }
}

/// A packet from the coordinator to the peer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToPeer {
    Hello(Box<Hello>),
    /// Asks for a `pong` with the same number.
    Ping {
        number: u64,
    },
    /// Asks the peer to answer one measurement of the link.
    MeasureLink {},
    /// Asks how busy the peer's host was since the session began.
    Load {},
    /// Has no effect. It is sent after a packet that should not be late. If that was lost, the
    /// acknowledgement of this one makes TCP repeat it within a round trip, and not after 200 ms or
    /// more.
    Probe {},
    /// Starts a child. `id` is new in this session. The peer replaces the assignment's directory,
    /// address and cores by its own.
    Start {
        id: u64,
        assignment: Box<Assignment>,
    },
    /// Asks where the peer answers with its clock.
    OpenClock {},
    /// A packet for a child. The time in `go` is of the peer's clock, or [`protocol::AT_ONCE`].
    Child {
        id: u64,
        packet: ToChild,
    },
    /// Ends a child.
    Kill {
        id: u64,
    },
    /// Ends the session.
    End {},
}

/// A packet from the peer to the coordinator.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FromPeer {
    Hello(Box<Hello>),
    /// The peer refuses the session, or ends it because of an error. The reason is for the user.
    Refused {
        reason: String,
    },
    Pong {
        number: u64,
    },
    /// Where the peer answers the measurement of the link.
    LinkPorts {
        ports: Ports,
    },
    /// How busy the host was since the session began.
    Load {
        load: HostLoad,
    },
    /// Where the peer answers with its clock, until the session ends.
    ClockPort {
        port: ClockPort,
    },
    /// As [`ToPeer::Probe`].
    Probe {},
    /// A packet of a child.
    Child {
        id: u64,
        packet: ToCoordinator,
    },
    /// A child has got `go`.
    Began {
        id: u64,
    },
    /// A child has ended. It is the last packet about it.
    Ended {
        id: u64,
        ended: Ended,
    },
}

/// How a child ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// The status as `wait` returns it.
    pub(crate) status: i32,
    /// The last lines that it wrote to stderr.
    pub(crate) stderr: String,
    /// The number of processes that it left running. They have been ended.
    pub(crate) strays: usize,
    /// How busy its host was while it ran.
    pub(crate) load: HostLoad,
}

/// The coordinator's greeting: sends `ours` and returns the peer's.
///
/// # Errors
/// When the peer refuses, is no peer, or has another version.
pub(super) fn greet(link: &mut SessionLink, ours: &Hello) -> Result<Hello> {
    // If this fails, what the other side has sent says more.
    let sent = frame::write(&mut link.writer, &ToPeer::Hello(Box::new(ours.clone()))).context("greeting the peer");
    match frame::read(&mut link.reader).context("waiting for the greeting of the peer")? {
        Some(FromPeer::Hello(theirs)) => theirs.check(ours, "the peer").map(|()| *theirs),
        Some(FromPeer::Refused { reason }) => {
            let reason: String = reason.chars().take(1_000).collect();
            bail!("the peer refuses the session: {reason}")
        }
        Some(_) => bail!("the peer does not speak Estafette's session protocol"),
        None => sent.and_then(|()| bail!("the peer closed the connection without a greeting")),
    }
}

/// The peer's greeting: returns the coordinator's and sends `ours`. If the versions differ, it
/// refuses the session.
///
/// # Errors
/// When the coordinator is no coordinator or has another version.
pub(super) fn receive_greeting(link: &mut SessionLink, ours: &Hello) -> Result<Hello> {
    match frame::read(&mut link.reader).context("waiting for the greeting of the coordinator")? {
        Some(ToPeer::Hello(theirs)) => {
            if let Err(error) = theirs.check(ours, "the coordinator") {
                // An error is ignored: the coordinator has gone.
                let _ = frame::write(&mut link.writer, &FromPeer::Refused { reason: format!("{error:#}") });
                return Err(error);
            }
            frame::write(&mut link.writer, &FromPeer::Hello(Box::new(ours.clone())))
                .context("greeting the coordinator")?;
            Ok(*theirs)
        }
        Some(_) => bail!("the coordinator did not greet"),
        None => bail!("the coordinator closed the connection without a greeting"),
    }
}

/// Refuses a session. `reason` is for the user and names the remedy.
pub fn refuse(link: &mut SessionLink, reason: &str) {
    // Its greeting is read first: closing a socket with unread data would discard the answer.
    let _ = frame::read::<ToPeer>(&mut link.reader);
    // An error is ignored: the coordinator has gone.
    let _ = frame::write(&mut link.writer, &FromPeer::Refused { reason: reason.to_owned() });
}
