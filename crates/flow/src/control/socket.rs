//! A UNIX socket that carries JSON and file descriptors.
//!
//! A message is one packet of JSON, preceded by as many packets of descriptors as it needs: the
//! kernel allows at most 253 descriptors in one packet.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair, sockopt,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The number of descriptors in one packet.
const DESCRIPTORS_A_PACKET: usize = 200;
/// The maximum number of descriptors of one message.
const MAX_DESCRIPTORS: usize = 4096;
/// The maximum JSON length of one message in bytes. The kernel's default for a socket's buffer is
/// 208 KiB.
const MAX_JSON: usize = 128 << 10;

/// The kind of a packet: its first byte.
const JSON: u8 = b'J';
const DESCRIPTORS: u8 = b'D';

/// Which messages an end accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepts {
    /// Messages with or without descriptors.
    Descriptors,
    /// Messages without descriptors. A message with descriptors is an error, and the kernel closes
    /// them.
    JsonOnly,
}

/// One end of the socket.
#[derive(Debug)]
pub(crate) struct Socket {
    socket: OwnedFd,
    accepts: Accepts,
    /// Received descriptors whose message has not arrived yet.
    received: Vec<OwnedFd>,
    buffer: Vec<u8>,
}

impl Socket {
    /// Creates the supervisor's end and the host's. Descriptors can be sent only from the first to
    /// the second.
    ///
    /// # Errors
    ///
    /// If the process has no file descriptor left.
    pub(crate) fn pair() -> io::Result<(Socket, Socket)> {
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let supervisor = Socket { accepts: Accepts::JsonOnly, ..Socket::new(a) };
        Ok((supervisor, Socket::new(b)))
    }

    /// A host's end, from an inherited descriptor.
    pub(crate) fn new(socket: OwnedFd) -> Socket {
        let (accepts, buffer) = (Accepts::Descriptors, vec![0; MAX_JSON + 1]);
        Socket { socket, accepts, received: Vec::new(), buffer }
    }

    /// Duplicates this end, to send from another thread.
    ///
    /// # Errors
    ///
    /// If the process has no file descriptor left.
    pub(crate) fn try_clone(&self) -> io::Result<Socket> {
        Ok(Socket::new(self.socket.try_clone()?))
    }

    /// Sets how long [`Socket::send`] may block.
    ///
    /// # Errors
    ///
    /// If the system call fails.
    pub(crate) fn set_send_timeout(&self, timeout: Duration) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(&self.socket, sockopt::Timeout::Send, Some(timeout))?)
    }

    /// The underlying file descriptor. Received descriptors of an incomplete message are closed.
    pub(crate) fn into_fd(self) -> OwnedFd {
        self.socket
    }

    /// Sends a message with descriptors. Blocks while the other end's buffer is full.
    ///
    /// # Errors
    ///
    /// If the other end is gone, or the message is too long.
    pub(crate) fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut json = vec![JSON];
        serde_json::to_writer(&mut json, message)?;
        if json.len() > MAX_JSON || descriptors.len() > MAX_DESCRIPTORS {
            return Err(io::Error::new(ErrorKind::InvalidInput, "a control message is too long"));
        }
        for some in descriptors.chunks(DESCRIPTORS_A_PACKET) {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_A_PACKET))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            ancillary.push(SendAncillaryMessage::ScmRights(some));
            self.send_packet(&[DESCRIPTORS], &mut ancillary)?;
        }
        self.send_packet(&json, &mut SendAncillaryBuffer::default())
    }

    fn send_packet(&self, bytes: &[u8], ancillary: &mut SendAncillaryBuffer<'_, '_, '_>) -> io::Result<()> {
        retry_on_intr(|| sendmsg(&self.socket, &[IoSlice::new(bytes)], ancillary, SendFlags::NOSIGNAL))?;
        Ok(())
    }

    /// Receives the next message and its descriptors, or none when the other end is closed. Blocks
    /// until then.
    ///
    /// # Errors
    ///
    /// If the other end sends anything but messages.
    pub(crate) fn recv<T: DeserializeOwned>(&mut self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        loop {
            if let Some(message) = self.recv_packet(RecvFlags::empty())? {
                return Ok(message);
            }
        }
    }

    /// As [`Socket::recv`], but does not block. Returns [`ErrorKind::WouldBlock`] if there is no
    /// message.
    ///
    /// # Errors
    ///
    /// Those of [`Socket::recv`].
    pub(crate) fn try_recv<T: DeserializeOwned>(&mut self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        loop {
            if let Some(message) = self.recv_packet(RecvFlags::DONTWAIT)? {
                return Ok(message);
            }
        }
    }

    /// Receives one packet: a message, or the end of the connection. `None` if it was a packet of
    /// descriptors.
    #[expect(clippy::type_complexity, reason = "the message or the end, or neither")]
    fn recv_packet<T: DeserializeOwned>(&mut self, flags: RecvFlags) -> io::Result<Option<Option<(T, Vec<OwnedFd>)>>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_A_PACKET))];
        let mut ancillary = match self.accepts {
            Accepts::Descriptors => RecvAncillaryBuffer::new(&mut space),
            Accepts::JsonOnly => RecvAncillaryBuffer::default(),
        };
        let mut slices = [IoSliceMut::new(&mut self.buffer)];
        let flags = flags | RecvFlags::CMSG_CLOEXEC;
        let packet = match retry_on_intr(|| recvmsg(&self.socket, &mut slices, &mut ancillary, flags)) {
            Err(Errno::CONNRESET) => return Ok(Some(None)),
            packet => packet?,
        };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.received.extend(descriptors);
            }
        }
        let is_json_only = self.accepts == Accepts::JsonOnly;
        let invalid = |what: &str| io::Error::new(ErrorKind::InvalidData, what.to_owned());
        if is_json_only && packet.flags.contains(ReturnFlags::CTRUNC) {
            return Err(invalid("descriptors, which a host never sends"));
        }
        if packet.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) || self.received.len() > MAX_DESCRIPTORS {
            return Err(invalid("a control message is too long, or no descriptor is left for it"));
        }
        match self.buffer[..packet.bytes].split_first() {
            None => Ok(Some(None)),
            Some((&DESCRIPTORS, _)) if !is_json_only => Ok(None),
            Some((&JSON, json)) => {
                let message = serde_json::from_slice(json).map_err(|error| invalid(&error.to_string()))?;
                Ok(Some(Some((message, std::mem::take(&mut self.received)))))
            }
            Some(_) => Err(invalid("not a control message")),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_with_their_descriptors() {
        let (a, mut b) = Socket::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        a.send(&"one", &vec![file.as_fd(); 450]).unwrap();
        a.send(&"two", &[]).unwrap();
        drop(a);
        let (message, descriptors) = b.recv::<String>().unwrap().unwrap();
        assert_eq!((message.as_str(), descriptors.len()), ("one", 450));
        let (message, descriptors) = b.recv::<String>().unwrap().unwrap();
        assert_eq!((message.as_str(), descriptors.len()), ("two", 0));
        assert!(b.recv::<String>().unwrap().is_none());
    }

    #[test]
    fn an_invalid_packet_is_an_error() {
        for bytes in [&b"J{"[..], b"X", b"J3"] {
            let (a, mut b) = Socket::pair().unwrap();
            a.send_packet(bytes, &mut SendAncillaryBuffer::default()).unwrap();
            assert_eq!(b.recv::<String>().unwrap_err().kind(), ErrorKind::InvalidData, "{bytes:?}");
        }
    }

    #[test]
    fn a_supervisor_accepts_no_descriptors_from_a_host() {
        let (mut supervisor, host) = Socket::pair().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        host.send(&"event", &[writer.as_fd()]).unwrap();
        drop(writer);
        let error = supervisor.try_recv::<String>().unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidData && error.to_string().contains("descriptors"), "{error}");
        // The writer that was sent was closed, so the pipe has ended.
        assert_eq!(rustix::io::read(&reader, &mut [0]).unwrap(), 0);
        // A descriptor packet without descriptors is an error too: otherwise a flood of them would
        // be read forever.
        let (mut supervisor, host) = Socket::pair().unwrap();
        host.send_packet(&[DESCRIPTORS], &mut SendAncillaryBuffer::default()).unwrap();
        assert_eq!(supervisor.try_recv::<String>().unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn try_recv_without_a_message_would_block() {
        let (_a, mut b) = Socket::pair().unwrap();
        assert_eq!(b.try_recv::<String>().unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}
