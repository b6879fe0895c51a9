//! Sending and receiving ends over a socket or queue that preserves message boundaries. A mechanism
//! implements [`PacketSocket`]; [`PacketTx`] and [`PacketRx`] have the buffers.
//!
//! [`byte_stream`](crate::byte_stream) is the same for sockets that do not preserve boundaries.

use std::io;
use std::os::fd::OwnedFd;

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::{Ends, Generator, Rendezvous, Rx, Tx, Verifier};

use crate::buffer::Buffer;
use crate::fd_passing::{self, DescriptorChannel};

/// A socket or queue that preserves message boundaries.
///
/// Mark both methods `#[inline(always)]` if they end in a system call; see
/// [`byte_stream`](crate::byte_stream).
pub trait PacketSocket: Send + 'static {
    /// Sends a message whole. Blocks until there is capacity for it, unless the mechanism may lose
    /// messages.
    ///
    /// # Errors
    ///
    /// If the message was not sent whole, or the other side is known to have closed.
    fn send_packet(&mut self, packet: &[u8]) -> io::Result<()>;

    /// Receives a message into `buffer`, which is one byte longer than a message should be. Returns
    /// the message's length, which may exceed the buffer's.
    ///
    /// # Errors
    ///
    /// If the other side is known to have closed. [`io::ErrorKind::TimedOut`] as in [`Rx::recv`].
    fn recv_packet(&mut self, buffer: &mut [u8]) -> io::Result<usize>;
}

/// A sending end: sends each message from one buffer to one or more sockets.
#[derive(Debug)]
pub struct PacketTx<S> {
    sockets: Vec<S>,
    buffer: Buffer,
}

impl<S> PacketTx<S> {
    /// Creates a sender of messages of `len` bytes.
    pub fn new(socket: S, len: usize) -> PacketTx<S> {
        PacketTx::to_each([socket], len)
    }

    /// Creates a sender that sends each message of `len` bytes to all sockets, one after the other.
    pub fn to_each(sockets: impl IntoIterator<Item = S>, len: usize) -> PacketTx<S> {
        PacketTx { sockets: sockets.into_iter().collect(), buffer: Buffer::new(len) }
    }
}

impl<S: PacketSocket> Tx for PacketTx<S> {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        source.fill(&mut self.buffer);
        self.sockets.iter_mut().try_for_each(|socket| socket.send_packet(&self.buffer))
    }
}

/// A receiving end: receives each message into one buffer.
#[derive(Debug)]
pub struct PacketRx<S> {
    socket: S,
    buffer: Buffer,
}

impl<S> PacketRx<S> {
    /// Creates a receiver of messages of `len` bytes.
    pub fn new(socket: S, len: usize) -> PacketRx<S> {
        // One byte longer than a message, to detect a message that is too long.
        PacketRx { socket, buffer: Buffer::new(len + 1) }
    }
}

impl<S: PacketSocket> Rx for PacketRx<S> {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        let len = self.socket.recv_packet(&mut self.buffer)?;
        verifier.bytes(&self.buffer[..len.min(self.buffer.len())]);
        Ok(())
    }
}

/// Opens a party's ends, for sockets that are descriptors of one direction each.
///
/// `make` gets `forward` or `reply`, and returns the sender's and the receiver's descriptor.
///
/// # Errors
///
/// If a descriptor cannot be created, or the other party has exited.
pub fn open<S: PacketSocket + From<OwnedFd>>(
    case: &Case,
    role: Role,
    rendezvous: &mut Rendezvous,
    make: impl Fn(&str) -> Result<(OwnedFd, OwnedFd)>,
) -> Result<Ends<PacketTx<S>, PacketRx<S>>> {
    let len = case.payload.len();
    let tx = |descriptor: OwnedFd| PacketTx::new(S::from(descriptor), len);
    let rx = |descriptor: OwnedFd| PacketRx::new(S::from(descriptor), len);
    let forward = || make("forward").map(|(theirs, ours)| ([theirs], rx(ours)));
    if case.pattern == Pattern::PubSub {
        let to_each = |descriptors: Vec<OwnedFd>| PacketTx::to_each(descriptors.into_iter().map(S::from), len);
        return fd_passing::open_pub_sub(case, role, rendezvous, forward, |descriptors| Ok(to_each(descriptors)));
    }
    let reply = || make("reply").map(|(ours, theirs)| ([theirs], tx(ours)));
    let tx = |[forward]: [OwnedFd; 1]| Ok(tx(forward));
    let rx = |[reply]: [OwnedFd; 1]| Ok(rx(reply));
    DescriptorChannel { forward, reply, tx, rx }.open(case, role, rendezvous)
}
