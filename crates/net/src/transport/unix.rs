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

/// What its addresses begin with.
pub(super) const SCHEME: &str = "unix";

pub(crate) struct Unix;

fn socket_address(address: &Address) -> io::Result<SockAddr> {
    match address.place() {
        Place::Path(path) => SockAddr::unix(path),
        // The name of an abstract socket begins with a byte of 0.
        Place::Name(name) => SockAddr::unix(format!("\0{name}")),
        Place::Host(..) => {
            Err(io::Error::new(ErrorKind::InvalidInput, format!("{address} is not the address of a UNIX socket")))
        }
    }
}

/// The address of an end that has one: that of one that only connected has none.
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
            // The backlog is full, which no readiness ever tells of.
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

/// Whether a socket's file was left behind by a process that is gone: nobody listens there.
fn is_stale(path: &std::path::Path, at: &SockAddr) -> io::Result<bool> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Ok(false);
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
    Ok(probe.connect(at).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused))
}

/// What tells a file from another that came to lie at its path.
fn identity(path: &std::path::Path) -> io::Result<(u64, u64)> {
    let file = fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

struct UnixListener {
    socket: Socket,
    /// The socket's file, which goes with it.
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
            && identity(path).is_ok_and(|there| there == *ours)
        {
            // Another may have removed it in between: nothing is left to do then.
            fs::remove_file(path).ok();
        }
    }
}
