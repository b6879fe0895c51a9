//! The child protocol: what the coordinator and the children of an instance say to each other.
//!
//! Each child has one UNIX `SOCK_SEQPACKET` socket to the coordinator, inherited as descriptor 0. Every packet is one
//! JSON object with one key, the packet's name; descriptors travel beside an `offer` as `SCM_RIGHTS`.
//! `docs/child-protocol.md` describes it for programs in other languages.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::burst::Held;
use crate::case::{Case, Role};
use crate::codec::CodecFigures;
use crate::message::{Faults, StreamCount};
use crate::slices::SliceCounts;
use crate::usage::Usage;
use crate::window::Window;

/// The protocol's version; a child that does not know it must say so and end.
pub const VERSION: u32 = 1;
/// The longest packet in bytes.
pub const MAX_PACKET: usize = 160 * 1024;
/// The most descriptors in one packet.
pub const MAX_DESCRIPTORS: usize = 16;

/// What a child is to do: the first packet it receives. Where the instance takes turns with others, a descriptor comes with it:
/// a file of two native 64-bit numbers, the turn under way and how many nanoseconds the instance has been stopped until then.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Assignment {
    /// [`VERSION`].
    pub protocol: u32,
    /// The case.
    pub case: Case,
    /// The child's part in it.
    pub role: Role,
    /// What to measure.
    pub window: Window,
    /// What messages are made of; below 2^53.
    pub seed: u64,
    /// The instance's own directory, gone after it.
    pub dir: PathBuf,
    /// The core for each party that the child plays, in the order producers, consumers; `null` where it is not pinned.
    pub cpus: Vec<Option<usize>>,
}

/// From the coordinator to a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToChild {
    /// Try how much room this case's mechanism has, before any assignment. Only this program is asked.
    EffectiveCapacity(Box<Case>),
    /// What to do.
    Assignment(Box<Assignment>),
    /// The answer to `want`.
    Offer(Offer),
    /// Every child is ready: begin at this time.
    Go {
        /// In `CLOCK_MONOTONIC` nanoseconds; the warm-up starts here.
        start_ns: u64,
    },
    /// Every other child has reported: to a broker, which has nothing to pass on any more.
    Over {},
    /// Every child has reported: close everything and exit.
    Done {},
}

/// From a child to the coordinator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToCoordinator {
    /// The answer to `room`.
    EffectiveCapacity {
        /// As [`crate::entry::Entry::effective_capacity`] tried it.
        effective_capacity: Option<u64>,
    },
    /// Something that other children may want, under a name.
    Offer(Offer),
    /// Asks for what is or will be offered under a name.
    Want {
        /// The name.
        name: String,
    },
    /// The ends are open.
    Ready {},
    /// The work is done.
    Report(Report),
    /// The work cannot be done.
    Failed {
        /// Why.
        error: String,
    },
}

/// A name, a value and, beside it, descriptors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Offer {
    /// The name it is wanted by.
    pub name: String,
    /// An address, or nothing.
    #[serde(default)]
    pub value: String,
}

/// What a child measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// One for each party it played; none from a broker.
    pub parties: Vec<PartyReport>,
    /// What the whole child spent within the window of its lead party, the consumer where it plays one.
    pub usage: Option<Usage>,
}

/// Whether a field may be left out of a packet, which has room for the reports of many parties.
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What one party did and saw.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PartyReport {
    /// Which.
    pub role: Role,
    /// Messages sent over the whole instance, end marks not counted.
    pub sent: u64,
    /// What was received over the whole instance, by producer.
    #[serde(default)]
    pub received: Vec<StreamCount>,
    /// What was wrong with it.
    #[serde(default)]
    pub faults: Faults,
    /// Messages sent, or where it receives, received, within the window.
    pub messages: u64,
    /// The part of `messages` that came from each producer, where there are several; only of a consumer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<u64>,
    /// Receives that were dropped while they waited, over the whole instance.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
    /// Messages of an open loop that were late before they were sent, over the whole instance.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub late: u64,
    /// What a codec's message cost within the window; only of its consumer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codec: Option<CodecFigures>,
    /// What a burst took of memory; only of its consumer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// Messages lost within the window, of a mechanism that may lose.
    #[serde(default)]
    pub lost: u64,
    /// The length of the window as it was, in nanoseconds.
    pub window_ns: u64,
    /// The longest time without progress, in nanoseconds, as far as it was noticed.
    #[serde(default)]
    pub longest_stall_ns: u64,
    /// What it counted in each turn, where the instance took turns with others; only of a side that receives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<SliceCounts>,
    /// Round-trip times; only of the side that asks in a ping-pong.
    pub latency: Option<LatencyCounts>,
}

impl PartyReport {
    /// Of a party that did nothing yet.
    pub fn new(role: Role) -> PartyReport {
        PartyReport {
            role,
            sent: 0,
            received: Vec::new(),
            faults: Faults::default(),
            messages: 0,
            shares: Vec::new(),
            dropped: 0,
            late: 0,
            codec: None,
            held: None,
            lost: 0,
            window_ns: 0,
            longest_stall_ns: 0,
            slices: Vec::new(),
            latency: None,
        }
    }
}

/// How often which round-trip time was seen.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LatencyCounts {
    /// Round trips timed together, where one is too short for the clock; the times are means over so many.
    pub batch: u64,
    /// Pairs of a time in nanoseconds and how often it was seen.
    pub counts: Vec<(u64, u64)>,
}

/// Sends one packet. A child waits until the coordinator reads; the coordinator, whose sockets do not block, waits for
/// nobody.
///
/// # Errors
/// When the other side has gone, or does not read what the coordinator sends.
pub fn send(socket: impl AsFd, packet: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    let text = serde_json::to_vec(packet).context("writing a packet")?;
    if text.len() > MAX_PACKET {
        bail!("a packet of {} bytes: the longest is {MAX_PACKET}", text.len());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
        bail!("{} descriptors in a packet: the most is {MAX_DESCRIPTORS}", descriptors.len());
    }
    rustix::io::retry_on_intr(|| sendmsg(&socket, &[IoSlice::new(&text)], &mut beside, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives one packet and its descriptors; `None` when the other side has closed.
///
/// # Errors
/// When it cannot be received or is not a packet of this protocol.
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
