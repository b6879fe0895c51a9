//! The child protocol: the packets between the coordinator and the children of an instance.
//!
//! Each child has one UNIX `SOCK_SEQPACKET` socket to the coordinator, inherited as descriptor 0.
//! Every packet is a JSON object with one key, the packet's name. Descriptors are sent with
//! `publish` and `published` as `SCM_RIGHTS`. `docs/child-protocol.md` describes the protocol for
//! programs in other languages.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::case::{Case, Role};
use crate::message::{Faults, StreamCount};
use crate::pace::LinkEstimate;
use crate::pattern_figures::PatternFigures;
use crate::slices::SliceCounts;
use crate::usage::Usage;
use crate::window::{TAIL_NS, Window};

/// The protocol's version. A child that does not support it must report that and exit.
pub const VERSION: u32 = 4;
/// The maximum length of a packet in bytes.
pub const MAX_PACKET: usize = 160 * 1024;
/// The maximum number of descriptors in one packet.
pub const MAX_DESCRIPTORS: usize = 16;

/// The task of a child. It is the first packet that a child receives.
///
/// If the instance is measured in slices, a descriptor comes with it: a file of two native 64-bit
/// numbers, the current turn and the nanoseconds that the instance has been stopped before it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Assignment {
    /// [`VERSION`].
    pub protocol: u32,
    /// The case.
    pub case: Case,
    /// The role that the child runs.
    pub role: Role,
    /// The window to measure.
    pub window: Window,
    /// The seed of the messages' contents, below 2^53.
    pub seed: u64,
    /// The secret with which message bodies are made; below 2^53.
    pub secret: u64,
    /// The instance's private directory. It is removed after the instance.
    pub dir: PathBuf,
    /// The address of the child's host, at which it listens.
    #[serde(default = "loopback")]
    pub address: IpAddr,
    /// How long producers continue to send after the window, in nanoseconds, so that consumers
    /// close their windows while messages still flow. Longer if the ends are on two hosts.
    #[serde(default = "tail")]
    pub tail_ns: u64,
    /// What is known of the link, if the ends are on two hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkEstimate>,
    /// The core of each party that the child runs, first the producers, then the consumers. `null`
    /// if a party is not pinned.
    pub cpus: Vec<Option<usize>>,
}

/// The address of a child on the coordinator's own host.
pub(crate) fn loopback() -> IpAddr {
    IpAddr::V4(Ipv4Addr::LOCALHOST)
}

/// The tail of an instance on one host.
fn tail() -> u64 {
    TAIL_NS
}

/// The time in `go` with which a child of another host starts when that arrives.
pub(crate) const AT_ONCE: u64 = 0;

/// A packet from the coordinator to a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToChild {
    /// Probe the effective capacity of this case, before any assignment. Only sent to children that
    /// run this program.
    EffectiveCapacity(Box<Case>),
    /// The task of the child.
    Assignment(Box<Assignment>),
    /// The reply to `request`.
    Published(Publication),
    /// Every child is ready: begin at this time.
    Go {
        /// The start of the warm-up in `CLOCK_MONOTONIC` nanoseconds. Between two hosts also 0,
        /// which the other host replaces by a time of its own: at once.
        start_ns: u64,
    },
    /// Every party has reported. Only sent to a broker, which has nothing more to forward.
    AllReported {},
    /// Every child has reported: close everything and exit.
    Done {},
}

/// A packet from a child to the coordinator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToCoordinator {
    /// The reply to `effective_capacity`.
    EffectiveCapacity {
        /// The result of [`crate::mechanism::Mechanism::effective_capacity`].
        effective_capacity: Option<u64>,
    },
    /// Something that other children can request by its name.
    Publish(Publication),
    /// Requests what is published, now or later, under a name.
    Request {
        /// The name.
        name: String,
    },
    /// The ends are open.
    Ready {
        /// The address in its memory where the child notes the step of its current round trip; see
        /// `exchange.rs`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exchange: Option<u64>,
    },
    /// The role has been played.
    Report(Report),
    /// The child cannot go on.
    Failed {
        /// The reason, for the user.
        error: String,
    },
}

/// What a child publishes for the others: a name and a value. Descriptors may come with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Publication {
    /// The name under which it is published.
    pub name: String,
    /// An address, or empty.
    #[serde(default)]
    pub value: String,
}

/// The measurements of a child.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Report {
    /// The report of each party that it played. Empty for a broker.
    pub parties: Vec<PartyReport>,
    /// Processor time and context switches of the whole child within the window of its lead party.
    /// That is the consumer, if the child runs one.
    pub usage: Option<Usage>,
    /// By how many bytes the memory of the child had grown shortly after that window, since the
    /// mechanism was opened: anonymous memory, and its part of shared memory. `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
}

impl Report {
    /// Whether a party stopped at a damaged message. Then other parties of the child may not have
    /// reported.
    pub(crate) fn is_damaged(&self) -> bool {
        self.parties.iter().any(|party| party.faults.damaged > 0)
    }
}

/// Whether a field can be omitted from a packet. Omitting fields lets more reports fit in one
/// packet.
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The measurements of one party.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PartyReport {
    /// The role of the party.
    pub role: Role,
    /// Messages sent over the whole instance, without end marks.
    pub sent: u64,
    /// Messages received over the whole instance, by producer.
    #[serde(default)]
    pub received: Vec<StreamCount>,
    /// The faults of the received messages.
    #[serde(default)]
    pub faults: Faults,
    /// Messages received within the window, or sent if the party does not receive.
    pub messages: u64,
    /// The part of `messages` that came from each producer, if there are several. Only for a
    /// consumer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<u64>,
    /// Messages of an open loop that were late before the mechanism got them, over the whole
    /// instance.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub late: u64,
    /// What only its pattern has. Only for a consumer.
    #[serde(flatten)]
    #[cfg_attr(test, schemars(with = "crate::pattern_figures::Fields"))]
    pub of_pattern: PatternFigures,
    /// Messages lost within the window, for a mechanism that may lose messages.
    #[serde(default)]
    pub lost: u64,
    /// The actual length of the window in nanoseconds.
    pub window_ns: u64,
    /// The longest time between two readings of the clock, in nanoseconds.
    #[serde(default)]
    pub longest_stall_ns: u64,
    /// The counts in each slice, if the instance was measured in slices. Only for a party that
    /// receives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<SliceCounts>,
    /// Latencies: round-trip times, from the side that sends requests; in an open loop the times
    /// from due to received, from the consumer.
    pub latency: Option<LatencyCounts>,
}

impl PartyReport {
    /// The report of a party that has not done anything yet.
    pub fn new(role: Role) -> PartyReport {
        PartyReport {
            role,
            sent: 0,
            received: Vec::new(),
            faults: Faults::default(),
            messages: 0,
            shares: Vec::new(),
            late: 0,
            of_pattern: PatternFigures::None,
            lost: 0,
            window_ns: 0,
            longest_stall_ns: 0,
            slices: Vec::new(),
            latency: None,
        }
    }
}

/// The distribution of latencies.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LatencyCounts {
    /// The number of round trips timed together, if one is too short for the clock. Each time is
    /// the mean of a batch.
    pub batch: u64,
    /// Pairs of a time in nanoseconds and how often it occurred.
    pub counts: Vec<(u64, u64)>,
}

/// Sends one packet. Blocks in a child until the coordinator reads. Does not block in the
/// coordinator, whose sockets are non-blocking.
///
/// # Errors
/// When the peer has closed. In the coordinator also when the child does not read.
pub fn send(socket: impl AsFd, packet: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    let text = serde_json::to_vec(packet).context("writing a packet")?;
    if text.len() > MAX_PACKET {
        bail!("a packet of {} bytes: the maximum is {MAX_PACKET}", text.len());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
        bail!("{} descriptors in a packet: the maximum is {MAX_DESCRIPTORS}", descriptors.len());
    }
    rustix::io::retry_on_intr(|| sendmsg(&socket, &[IoSlice::new(&text)], &mut beside, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives one packet and its descriptors. `None` when the peer has closed.
///
/// # Errors
/// When the packet cannot be received or does not belong to this protocol.
pub fn receive<T: DeserializeOwned>(socket: impl AsFd) -> Result<Option<(T, Vec<OwnedFd>)>> {
    let mut text = vec![0; MAX_PACKET];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(&socket, &mut [IoSliceMut::new(&mut text)], &mut beside, RecvFlags::CMSG_CLOEXEC)
    });
    let received = match received {
        Ok(received) => received,
        Err(rustix::io::Errno::CONNRESET) => return Ok(None),
        Err(error) => return Err(io::Error::from(error).into()),
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        bail!("a packet longer than {MAX_PACKET} bytes or with over {MAX_DESCRIPTORS} descriptors");
    }
    let mut descriptors = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let text = &text[..received.bytes];
    let packet = serde_json::from_slice(text).with_context(|| {
        format!("not a packet of the child protocol: {}", String::from_utf8_lossy(&text[..text.len().min(200)]))
    })?;
    Ok(Some((packet, descriptors)))
}
