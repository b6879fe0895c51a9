//! UNIX stream sockets, in the file system and abstract.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

use socket2::{Domain, SockAddr, Socket, Type};

use super::socket::{SocketLink, accept, socket};
use super::{Link, Listener, Listening, Opened, Options, Transport};
use crate::Address;
use crate::address::Place;

/// The scheme of their addresses.
pub(super) const SCHEME: &str = "unix";

pub(crate) struct Unix;

fn socket_address(address: &Address) -> io::Result<SockAddr> {
    match address.place() {
        Place::Path(path) => SockAddr::unix(path),
        // The name of an abstract socket starts with a zero byte.
        Place::Name(name) => SockAddr::unix(format!("\0{name}")),
        Place::Host(..) => {
            Err(io::Error::new(ErrorKind::InvalidInput, format!("{address} is not the address of a UNIX socket")))
        }
    }
}

/// The address of an end, if it has one; the connecting end has none.
pub(super) fn named(scheme: &str, address: &SockAddr) -> Option<Address> {
    if let Some(path) = address.as_pathname() {
        return format!("{scheme}://{}", path.to_str()?).parse().ok();
    }
    format!("{scheme}://@{}", std::str::from_utf8(address.as_abstract_namespace()?).ok()?).parse().ok()
}

impl Transport for Unix {
    fn connect(&self, address: &Address, options: &Options) -> io::Result<Opened> {
        let socket = socket(Domain::UNIX, Type::STREAM, None, options)?;
        socket.connect(&socket_address(address)?).map_err(|error| match error.kind() {
            // The backlog is full. No readiness event will report when it is not.
            ErrorKind::WouldBlock => io::Error::new(ErrorKind::ConnectionRefused, "the listener's backlog is full"),
            _ => error,
        })?;
        Ok(Opened::Stream(Box::new(SocketLink::connecting(socket, SCHEME))))
    }

    fn listen(&self, address: &Address, options: &Options) -> io::Result<Listening> {
        let at = socket_address(address)?;
        let socket = socket(Domain::UNIX, Type::STREAM, None, options)?;
        match (socket.bind(&at), address.path()) {
            (Err(error), Some(path)) if error.kind() == ErrorKind::AddrInUse && is_stale(path, &at)? => {
                fs::remove_file(path)?;
                socket.bind(&at)?;
            }
            (bound, _) => bound?,
        }
        socket.listen(options.backlog.min(i32::MAX as u32) as i32)?;
        let file = match address.path() {
            Some(path) => Some((path.to_owned(), identity(path)?)),
            None => None,
        };
        Ok(Listening::Streams(Box::new(UnixListener { socket, file })))
    }
}

/// Whether a socket file was left behind by a dead process: connecting to it is refused.
///
/// The probe is a datagram socket. A live listener does not notice it: the system reports that the
/// type is wrong (`EPROTOTYPE`), and `ECONNREFUSED` only if the file belongs to no socket.
fn is_stale(path: &std::path::Path, at: &SockAddr) -> io::Result<bool> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Ok(false);
    }
    let probe = Socket::new(Domain::UNIX, Type::DGRAM.nonblocking().cloexec(), None)?;
    Ok(probe.connect(at).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused))
}

/// Identifies a file by device and inode, to notice when another one takes its path.
fn identity(path: &std::path::Path) -> io::Result<(u64, u64)> {
    let file = fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

struct UnixListener {
    socket: Socket,
    /// The socket's file, removed when the listener closes.
    file: Option<(PathBuf, (u64, u64))>,
}

impl Listener for UnixListener {
    fn source(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn accept(&self) -> io::Result<Box<dyn Link>> {
        Ok(Box::new(SocketLink::accepted(accept(&self.socket)?, SCHEME)))
    }

    fn local(&self) -> Option<Address> {
        named(SCHEME, &self.socket.local_addr().ok()?)
    }

    fn close(&self) {
        if let Some((path, ours)) = &self.file
            && identity(path).is_ok_and(|current| current == *ours)
        {
            // It may have been removed in between, which is fine.
            fs::remove_file(path).ok();
        }
    }
}
