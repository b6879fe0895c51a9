//! File descriptor passing over a UNIX socket. Processes share memory this way.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// The maximum number of descriptors in one message.
pub const MAX_FDS: usize = 64;

/// Sends descriptors, together with two bytes of data. Blocks while the socket is full.
///
/// # Errors
///
/// If there are more than [`MAX_FDS`] or none, or the socket fails.
pub fn send_fds(socket: &UnixStream, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_with(socket.as_fd(), fds, 0, SendFlags::NOSIGNAL)
}

/// As [`send_fds`], over any UNIX socket, and with a number.
pub(crate) fn send_with(
    socket: BorrowedFd<'_>,
    fds: &[BorrowedFd<'_>],
    number: u8,
    flags: SendFlags,
) -> io::Result<()> {
    if fds.is_empty() || fds.len() > MAX_FDS {
        return Err(io::Error::new(ErrorKind::InvalidInput, format!("1 to {MAX_FDS} descriptors can be sent at once")));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(fds));
    let bytes = [fds.len() as u8, number];
    retry_on_intr(|| sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, flags))?;
    Ok(())
}

/// Receives the descriptors of one [`send_fds`]. Blocks until they arrive. They are close-on-exec.
///
/// # Errors
///
/// If the other end was closed or sent something else, or the socket fails.
pub fn recv_fds(socket: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    Ok(recv_with(socket.as_fd(), RecvFlags::CMSG_CLOEXEC)?.1)
}

/// As [`recv_fds`], over any UNIX socket. Returns the number too.
pub(crate) fn recv_with(socket: BorrowedFd<'_>, flags: RecvFlags) -> io::Result<(u8, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 2];
    let received = retry_on_intr(|| recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags))?;
    if received.bytes == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    match fds.len() == usize::from(bytes[0]) {
        true => Ok((bytes[1], fds)),
        false => {
            Err(io::Error::new(ErrorKind::InvalidData, "descriptors are missing: is a limit of open files reached?"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::{recv_fds, send_fds};

    #[test]
    fn descriptors_arrive() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        send_fds(&ours, &[ours.as_fd(), theirs.as_fd()]).unwrap();
        send_fds(&ours, &[ours.as_fd()]).unwrap();
        assert_eq!(recv_fds(&theirs).unwrap().len(), 2);
        assert_eq!(recv_fds(&theirs).unwrap().len(), 1);
        assert!(send_fds(&ours, &[]).is_err());
        drop(ours);
        assert!(recv_fds(&theirs).is_err());
    }
}
