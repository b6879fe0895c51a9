//! Options of sockets: shared ports, permissions and credentials of UNIX sockets, abstract names.

mod common;

use std::fs;
use std::io::Read;
use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use common::{Seen, Side, connected, until};
use estafette_net::{Error, Options};

fn refused(address: &str, options: &Options) -> String {
    Side::new().handle.listen_with(address, options).unwrap_err().to_string()
}

#[test]
fn nodes_that_share_a_port_share_its_connections() {
    let options = Options::default().reuse_port(true);
    let (mut a, mut b) = (Side::new(), Side::new());
    let listener = a.handle.listen_with("tcp+msg://127.0.0.1:0", &options).unwrap();
    let at = a.handle.local_address(listener).unwrap();
    let second = b.handle.listen_with(&at, &options).unwrap();
    // The kernel chooses a listener by a hash. The chance that all of them get the same one is 2^-63.
    let _peers: Vec<_> = (0..64).map(|_| TcpStream::connect(("127.0.0.1", at.port().unwrap())).unwrap()).collect();
    until(&mut a, &mut b, "accepted", |a, b| a.accepted(listener).len() + b.accepted(second).len() == 64);
    assert!(!a.accepted(listener).is_empty() && !b.accepted(second).is_empty());
    // A listener that does not share gets no part of it.
    let error = refused(&at.to_string(), &Options::default());
    assert!(error.contains("in use"), "{error}");
}

#[test]
fn nodes_that_share_a_port_share_its_datagrams() {
    let options = Options::default().reuse_port(true);
    let (mut a, mut b) = (Side::new(), Side::new());
    let socket = a.handle.listen_with("udp://127.0.0.1:0", &options).unwrap();
    let at = a.handle.local_address(socket).unwrap();
    b.handle.listen_with(&at, &options).unwrap();
    for _ in 0..64 {
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.send_to(b"hello", ("127.0.0.1", at.port().unwrap())).unwrap();
    }
    until(&mut a, &mut b, "received", |a, b| a.seen.len() + b.seen.len() == 64);
    assert!(!a.seen.is_empty() && !b.seen.is_empty());
}

#[test]
fn without_reuse_port_a_second_listener_is_refused() {
    let a = Side::new();
    let listener = a.handle.listen("tcp://127.0.0.1:0").unwrap();
    let at = a.handle.local_address(listener).unwrap().to_string();
    for options in [Options::default(), Options::default().reuse_port(true)] {
        let error = refused(&at, &options);
        assert!(error.contains("in use"), "{error}");
    }
}

#[test]
fn a_unix_socket_has_the_permissions_that_were_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let address = format!("unix://{}", path.display());
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    let a = Side::new();
    for wanted in [0o600, 0o666, 0o000] {
        let mut side = Side::new();
        let listener = side.handle.listen_with(&*address, &Options::default().permissions(wanted)).unwrap();
        assert_eq!(mode(), wanted);
        side.handle.close(listener);
        side.until_closed(listener);
        assert!(!path.exists());
    }
    // Also where the file of a process that was killed is in the way.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let listener = a.handle.listen_with(&*address, &Options::default().permissions(0o640)).unwrap();
    assert_eq!(mode(), 0o640);
    drop(UnixStream::connect(&path).unwrap());
    a.handle.close(listener);
}

#[test]
fn permissions_that_a_socket_cannot_have_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let error = refused(&format!("unix://{}", path.display()), &Options::default().permissions(0o1777));
    assert!(error.contains("0o1777") && error.contains("at most 0o777"), "{error}");
    assert!(!path.exists());
    let error = refused("unix://@estafette-test-permissions", &Options::default().permissions(0o600));
    assert!(error.contains("abstract") && error.contains("Handle::peer_credentials"), "{error}");
}

#[test]
fn both_ends_of_a_unix_socket_report_who_the_peer_is() {
    let folder = tempfile::tempdir().unwrap();
    let own = (Some(std::process::id()), rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    for address in [format!("unix://{}/socket", folder.path().display()), abstract_name("credentials")] {
        let (mut a, mut b) = (Side::new(), Side::new());
        let (accepted, to, listener) = connected(&mut a, &mut b, &address);
        for found in [a.handle.peer_credentials(accepted), b.handle.peer_credentials(to)] {
            let found = found.unwrap();
            assert_eq!((found.pid, found.uid, found.gid), own);
        }
        assert_eq!(a.handle.peer_credentials(listener), None);
        b.handle.close(to);
        until(&mut a, &mut b, "closed", |a, _| a.closed(accepted).is_some());
        assert_eq!(a.handle.peer_credentials(accepted), None);
    }
    let (mut a, mut b) = (Side::new(), Side::new());
    let (accepted, ..) = connected(&mut a, &mut b, "tcp://127.0.0.1:0");
    assert_eq!(a.handle.peer_credentials(accepted), None);
}

/// Set for the process that [`the_credentials_of_another_process_are_its_own`] starts: where it
/// connects to.
const CONNECT_TO: &str = "ESTAFETTE_TEST_CONNECT_TO";

/// The body of that process, which stays connected until its input ends. Otherwise not a test.
#[test]
fn another_process() {
    if let Some(path) = std::env::var_os(CONNECT_TO) {
        let _stream = UnixStream::connect(path).unwrap();
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    }
}

#[test]
fn the_credentials_of_another_process_are_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut a = Side::new();
    let listener = a.handle.listen(format!("unix://{}", path.display())).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "another_process"]).env(CONNECT_TO, &path);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    a.step_until("accepted", |seen| seen.iter().any(|seen| matches!(seen, Seen::Accepted(..))));
    let found = a.handle.peer_credentials(a.accepted(listener)[0]).unwrap();
    assert_eq!(found.pid, Some(child.id()));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

/// An abstract name that no other process of this machine uses.
fn abstract_name(what: &str) -> String {
    format!("unix+msg://@estafette-test-{what}-{}", std::process::id())
}

#[test]
fn an_abstract_name_is_an_address_like_any_other() {
    let address = abstract_name("echo");
    let (mut a, mut b) = (Side::new(), Side::new());
    let (accepted, to, listener) = connected(&mut a, &mut b, &address);
    assert_eq!(a.handle.local_address(listener).unwrap().to_string(), address);
    assert_eq!(b.handle.peer_address(to).unwrap().to_string(), address.replace("+msg", ""));
    assert!(b.handle.send(to, b"hello").is_accepted());
    until(&mut a, &mut b, "received", |a, _| a.messages(accepted) == [b"hello"]);
    // The name is in use, and free again once its listener is closed.
    let error = b.handle.listen(&*address).unwrap_err();
    assert!(matches!(&error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse), "{error}");
    a.handle.close(listener);
    a.until_closed(listener);
    b.handle.listen(&*address).unwrap();
}
