//! Creation of a channel, and the handles that pass its ends to other processes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::layout::ChannelControls;
use super::peer::Peer;
use super::receiver::Receiver;
use super::ring::{End, Ring};
use super::sender::Sender;
use crate::error::OpenError;
use crate::fd_passing::{recv_fds, send_fds};
use crate::file::{Kind, MAX_CAPACITY, Pages, SharedFile};
use crate::memory::Memory;
use crate::wait::WaitMode;

const CHANNEL: Kind = Kind {
    what: "a channel",
    name: "estafette-channel",
    magic: *b"estafCH\0",
    controls: size_of::<ChannelControls>(),
    has_descriptors: true,
    pages: Pages::AtOnce,
};

/// The options of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    capacity: usize,
    wait: WaitMode,
    max_message: usize,
}

impl Default for Options {
    /// 1 MiB, adaptive waiting, messages of up to 64 MiB.
    fn default() -> Self {
        Self { capacity: 1 << 20, wait: WaitMode::default(), max_message: 64 << 20 }
    }
}

impl Options {
    /// The default options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the ring's capacity in bytes, rounded up to a power of two and to a page. A message
    /// takes whole cache lines: a multiple of 64 bytes, and at least 64.
    #[must_use]
    pub fn capacity(self, capacity: usize) -> Self {
        Self { capacity, ..self }
    }

    /// Sets how both ends wait.
    #[must_use]
    pub fn wait(self, wait: WaitMode) -> Self {
        Self { wait, ..self }
    }

    /// Sets the longest message in bytes. A message that fits into the ring can always be sent.
    /// Longer messages use separate memory; up to eight of them can be in flight.
    #[must_use]
    pub fn max_message(self, max_message: usize) -> Self {
        Self { max_message, ..self }
    }

    /// Encodes the options: the two lowest bits are the wait mode, the others `max_message`.
    fn parameter(self) -> u64 {
        let wait = match self.wait {
            WaitMode::Spin => 0,
            WaitMode::Adaptive => 1,
            WaitMode::Block => 2,
        };
        (self.max_message.min(MAX_CAPACITY) as u64) << 2 | wait
    }

    fn from_parameter(parameter: u64, capacity: usize) -> Option<Self> {
        let wait = match parameter & 3 {
            0 => WaitMode::Spin,
            1 => WaitMode::Adaptive,
            2 => WaitMode::Block,
            _ => return None,
        };
        let max_message = usize::try_from(parameter >> 2).ok()?;
        (capacity > 0 && max_message <= MAX_CAPACITY).then_some(Self { capacity, wait, max_message })
    }
}

/// Creates a channel for two processes, and returns a handle of each end. Handles and channels have
/// no name in the file system; they vanish with the last process that has them.
///
/// # Errors
///
/// If the system has no memory or file descriptor left, or the options are out of range.
pub fn channel(options: &Options) -> Result<(SenderHandle, ReceiverHandle), OpenError> {
    let file = SharedFile::create(CHANNEL, options.capacity.max(1), options.parameter())?;
    let (sender, receiver) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(OpenError::system("make a pair of sockets"))?;
    let clone = file.try_clone().map_err(OpenError::system("copy a descriptor"))?;
    Ok((SenderHandle(Handle { file, socket: sender }), ReceiverHandle(Handle { file: clone, socket: receiver })))
}

#[derive(Debug)]
struct Handle {
    file: SharedFile,
    socket: OwnedFd,
}

impl Handle {
    fn into_fds(self) -> [OwnedFd; 2] {
        [self.file.into_fd(), self.socket]
    }

    fn from_fds([file, socket]: [OwnedFd; 2]) -> Result<Self, OpenError> {
        Ok(Self { file: SharedFile::from_fd(CHANNEL, file)?, socket })
    }

    fn send_over(self, socket: &UnixStream) -> io::Result<()> {
        send_fds(socket, &[self.file.as_fd(), self.socket.as_fd()])
    }

    fn recv_from(socket: &UnixStream) -> Result<Self, OpenError> {
        let fds = recv_fds(socket).map_err(OpenError::system("receive a channel's descriptors"))?;
        let fds = fds.try_into().map_err(|fds: Vec<OwnedFd>| OpenError::NotOurs {
            what: CHANNEL.what,
            reason: format!("received {} descriptors, not 2", fds.len()),
        })?;
        Self::from_fds(fds)
    }

    fn open(self, end: End) -> Result<(Ring, Peer, usize), OpenError> {
        let options = Options::from_parameter(self.file.parameter(), self.file.capacity())
            .ok_or_else(|| OpenError::NotOurs { what: CHANNEL.what, reason: "its options are invalid".into() })?;
        let ring = Ring::new(Memory::map(&self.file)?, options.wait);
        if !ring.claim_end(end) {
            let end = if end == End::Sender { "sender" } else { "receiver" };
            return Err(OpenError::Taken { end });
        }
        if options.wait == WaitMode::Adaptive {
            // Measured here, not while the first message waits.
            crate::spin::time();
        }
        let peer = Peer::watch(self.socket, ring.clone(), end)?;
        Ok((ring, peer, options.max_message))
    }
}

/// The sending end of a channel, before it is opened. If it is dropped, the receiver gets
/// `PeerDied`.
#[derive(Debug)]
pub struct SenderHandle(Handle);

impl SenderHandle {
    /// The file descriptors of the memory and the socket. They are close-on-exec.
    #[must_use]
    pub fn into_fds(self) -> [OwnedFd; 2] {
        self.0.into_fds()
    }

    /// Makes a handle from descriptors that arrived by other means.
    ///
    /// # Errors
    ///
    /// If they are not a channel of this version, or its size is not sealed.
    pub fn from_fds(fds: [OwnedFd; 2]) -> Result<Self, OpenError> {
        Handle::from_fds(fds).map(Self)
    }

    /// Sends the handle to another process. Blocks while the socket is full.
    ///
    /// # Errors
    ///
    /// If the socket fails.
    pub fn send_over(self, socket: &UnixStream) -> io::Result<()> {
        self.0.send_over(socket)
    }

    /// Receives a handle from another process. Blocks until it arrives.
    ///
    /// # Errors
    ///
    /// If the socket fails, or receives something else.
    pub fn recv_from(socket: &UnixStream) -> Result<Self, OpenError> {
        Handle::recv_from(socket).map(Self)
    }

    /// Opens the end in this process. Each end can be opened once.
    ///
    /// # Errors
    ///
    /// If the memory cannot be mapped, or the end was opened before.
    pub fn open(self) -> Result<Sender, OpenError> {
        let (ring, peer, max_message) = self.0.open(End::Sender)?;
        Ok(Sender::new(ring, peer, max_message))
    }
}

/// The receiving end of a channel, before it is opened. If it is dropped, the sender gets
/// `PeerDied`.
#[derive(Debug)]
pub struct ReceiverHandle(Handle);

impl ReceiverHandle {
    /// The file descriptors of the memory and the socket. They are close-on-exec.
    #[must_use]
    pub fn into_fds(self) -> [OwnedFd; 2] {
        self.0.into_fds()
    }

    /// Makes a handle from descriptors that arrived by other means.
    ///
    /// # Errors
    ///
    /// If they are not a channel of this version, or its size is not sealed.
    pub fn from_fds(fds: [OwnedFd; 2]) -> Result<Self, OpenError> {
        Handle::from_fds(fds).map(Self)
    }

    /// Sends the handle to another process. Blocks while the socket is full.
    ///
    /// # Errors
    ///
    /// If the socket fails.
    pub fn send_over(self, socket: &UnixStream) -> io::Result<()> {
        self.0.send_over(socket)
    }

    /// Receives a handle from another process. Blocks until it arrives.
    ///
    /// # Errors
    ///
    /// If the socket fails, or receives something else.
    pub fn recv_from(socket: &UnixStream) -> Result<Self, OpenError> {
        Handle::recv_from(socket).map(Self)
    }

    /// Opens the end in this process. Each end can be opened once.
    ///
    /// # Errors
    ///
    /// If the memory cannot be mapped, or the end was opened before.
    pub fn open(self) -> Result<Receiver, OpenError> {
        let (ring, peer, _) = self.0.open(End::Receiver)?;
        Ok(Receiver::new(ring, peer))
    }
}
