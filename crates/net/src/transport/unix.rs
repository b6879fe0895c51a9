//! UNIX stream sockets, in the file system and abstract.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;

use socket2::{Domain, SockAddr, Socket, Type};

use super::platform::{self, accept};
use super::socket::{SocketLink, socket};
use super::{Link, Listener, Listening, Opened, Options, Transport};
use crate::Address;
use crate::address::Place;

/// All permissions of a file.
const MAX_MODE: u32 = 0o777;

/// The scheme of their addresses.
pub(super) const SCHEME: &str = "unix";

pub(crate) struct Unix;

fn socket_address(address: &Address) -> io::Result<SockAddr> {
    match address.place() {
        Place::Path(path) => SockAddr::unix(path),
        Place::Name(name) => platform::abstract_address(name),
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
        let socket = bound(address, options)?;
        socket.listen(options.backlog.min(i32::MAX as u32) as i32)?;
        let file = match address.path() {
            Some(path) => Some((path.to_owned(), identity(path)?)),
            None => None,
        };
        Ok(Listening::Streams(Box::new(UnixListener { socket, file })))
    }
}

/// Creates a socket that is bound and does not listen: connecting to it is refused.
fn bound(address: &Address, options: &Options) -> io::Result<Socket> {
    let at = socket_address(address)?;
    let socket = socket(Domain::UNIX, Type::STREAM, None, options)?;
    let permissions = permissions(address, options)?;
    let Some(path) = address.path() else { return socket.bind(&at).map(|()| socket) };
    if let Some(mode) = permissions {
        platform::limit_permissions(&socket, mode)?;
    }
    match socket.bind(&at) {
        Err(error) if error.kind() == ErrorKind::AddrInUse && is_stale(path, &at)? => {
            fs::remove_file(path)?;
            socket.bind(&at)?;
        }
        bound => bound?,
    }
    if let Some(mode) = permissions {
        // Adds what the umask removed.
        fs::set_permissions(path, Permissions::from_mode(mode)).inspect_err(|_| drop(fs::remove_file(path)))?;
    }
    Ok(socket)
}

/// The permissions that were asked for.
///
/// # Errors
///
/// If the socket cannot have them.
fn permissions(address: &Address, options: &Options) -> io::Result<Option<u32>> {
    let invalid = |what| Err(io::Error::new(ErrorKind::InvalidInput, what));
    match (options.permissions, address.place()) {
        (None, _) => Ok(None),
        (Some(mode), _) if mode > MAX_MODE => {
            invalid(format!("{mode:#o} is not a mode: permissions are at most {MAX_MODE:#o}"))
        }
        (Some(_), Place::Name(_)) => invalid(
            "an abstract socket has no permissions: use a path, or check Handle::peer_credentials of who connects"
                .to_owned(),
        ),
        (mode, _) => Ok(mode),
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
    let probe = platform::new_socket(Domain::UNIX, Type::DGRAM, None)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_has_its_permissions_before_anybody_can_connect() {
        let folder = tempfile::tempdir().unwrap();
        // The usual umask removes 0o022, which the last mode has.
        for mode in [0o600, 0o660, 0o777] {
            let path = folder.path().join(format!("{mode:o}"));
            let address = format!("unix://{}", path.display()).parse().unwrap();
            let socket = bound(&address, &Options::default().permissions(mode)).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & MAX_MODE, mode);
            let peer = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
            let to = SockAddr::unix(&path).unwrap();
            assert_eq!(peer.connect(&to).unwrap_err().kind(), ErrorKind::ConnectionRefused);
            socket.listen(1).unwrap();
            peer.connect(&to).unwrap();
        }
    }

    #[test]
    fn the_file_of_a_socket_is_created_with_no_more_than_its_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        // What `bound` does before it binds. A wider file would have mode 0o755 or the like.
        platform::limit_permissions(&socket, 0o600).unwrap();
        socket.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & MAX_MODE, 0o600);
    }
}
