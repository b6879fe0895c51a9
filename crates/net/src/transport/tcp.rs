//! TCP. Nagle's algorithm is off by default.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use super::platform::{accept, avoid_pacing, set_user_timeout};
use super::socket::{SocketLink, begun, socket, socket_address};
use super::tunnel::TunnelLink;
use super::{Link, Listener, Listening, Opened, Options, Transport};
use crate::Address;

pub(crate) struct Tcp;

/// How many probes of keep-alive remain unanswered before a connection ends.
const PROBES: u32 = 6;
/// The longest time of keep-alive that Linux accepts, in seconds.
const MAX_KEEPALIVE: u64 = 32_767;

/// Rounds up to what the system accepts.
fn whole_seconds(time: Duration) -> Duration {
    let seconds = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
    Duration::from_secs(seconds.clamp(1, MAX_KEEPALIVE))
}

fn tune(socket: &Socket, options: &Options) -> io::Result<()> {
    socket.set_tcp_nodelay(options.nodelay)?;
    if let Some(after) = options.keepalive {
        let (time, interval) = (whole_seconds(after), whole_seconds(after / 10));
        let keepalive = TcpKeepalive::new().with_time(time).with_interval(interval).with_retries(PROBES);
        socket.set_tcp_keepalive(&keepalive)?;
    }
    if let Some(time) = options.user_timeout {
        // 0 would mean the system's default.
        set_user_timeout(socket, time.max(Duration::from_millis(1)))?;
    }
    Ok(())
}

impl Transport for Tcp {
    fn connect(&self, address: &Address, options: &Options) -> io::Result<Opened> {
        let to = socket_address(address)?;
        let socket = socket(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP), options)?;
        tune(&socket, options)?;
        if let Some(source) = options.source {
            socket.bind(&source.into())?;
        }
        if to.ip().to_canonical().is_loopback() {
            avoid_pacing(&socket);
        }
        begun(socket.connect(&to.into()))?;
        let link = SocketLink::connecting(socket, "tcp");
        Ok(Opened::Stream(match &options.tunnel {
            Some(tunnel) => Box::new(TunnelLink::new(link, tunnel.clone())),
            None => Box::new(link),
        }))
    }

    fn listen(&self, address: &Address, options: &Options) -> io::Result<Listening> {
        let at = socket_address(address)?;
        let socket = socket(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP), options)?;
        // A restarted server can listen at once, while old connections are in `TIME_WAIT`.
        socket.set_reuse_address(true)?;
        if options.reuse_port {
            socket.set_reuse_port(true)?;
        }
        // Accepted sockets inherit these options, which saves a system call for each.
        tune(&socket, options)?;
        socket.bind(&at.into())?;
        socket.listen(options.backlog.min(i32::MAX as u32) as i32)?;
        Ok(Listening::Streams(Box::new(TcpListener { socket })))
    }
}

/// Whether a connection is from a loopback address of this machine.
fn is_loopback(socket: &OwnedFd) -> bool {
    let peer = SockRef::from(socket).peer_addr().ok().and_then(|peer| peer.as_socket());
    peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback())
}

struct TcpListener {
    socket: Socket,
}

impl Listener for TcpListener {
    fn source(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn accept(&self) -> io::Result<Box<dyn Link>> {
        let socket = accept(&self.socket)?;
        if is_loopback(&socket) {
            avoid_pacing(&socket);
        }
        Ok(Box::new(SocketLink::accepted(socket, "tcp")))
    }

    fn local(&self) -> Option<Address> {
        format!("tcp://{}", self.socket.local_addr().ok()?.as_socket()?).parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next connection of a listener.
    fn accepted(listener: &dyn Listener) -> Box<dyn Link> {
        loop {
            match listener.accept() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                accepted => return accepted.unwrap(),
            }
        }
    }

    /// The congestion control of both ends of a connection, whose listener has BBR.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_connection_within_the_machine_is_not_paced() {
        let options = Options::default();
        let Listening::Streams(listener) = Tcp.listen(&"tcp://127.0.0.1:0".parse().unwrap(), &options).unwrap() else {
            panic!()
        };
        if let Err(error) = SockRef::from(&listener.source()).set_tcp_congestion(b"bbr") {
            return eprintln!("skipped: this system has no BBR, or not for this user: {error}");
        }
        let Opened::Stream(ours) = Tcp.connect(&listener.local().unwrap(), &options).unwrap() else { panic!() };
        let theirs = accepted(&*listener);
        for link in [&ours, &theirs] {
            let name = SockRef::from(&link.source()).tcp_congestion().unwrap();
            assert!(!name.starts_with(b"bbr"), "{}", String::from_utf8_lossy(&name));
        }
    }

    #[test]
    fn both_ends_get_the_options() {
        let at = "tcp://127.0.0.1:0".parse().unwrap();
        let seconds = Duration::from_secs;
        for (nodelay, keepalive, user_timeout) in
            [(true, None, None), (false, Some(seconds(77)), Some(seconds(5))), (true, Some(seconds(1)), None)]
        {
            let mut options = Options::default().nodelay(nodelay).keepalive(keepalive);
            options.user_timeout = user_timeout;
            let Listening::Streams(listener) = Tcp.listen(&at, &options).unwrap() else { panic!() };
            let Opened::Stream(ours) = Tcp.connect(&listener.local().unwrap(), &options).unwrap() else { panic!() };
            let theirs = accepted(&*listener);
            for link in [&ours, &theirs] {
                let source = link.source();
                let socket = SockRef::from(&source);
                assert_eq!(socket.tcp_nodelay().unwrap(), nodelay);
                assert_eq!(socket.keepalive().unwrap(), keepalive.is_some());
                if let Some(after) = keepalive {
                    assert_eq!(socket.tcp_keepalive_time().unwrap(), after);
                    assert_eq!(socket.tcp_keepalive_interval().unwrap(), seconds(after.as_secs().div_ceil(10)));
                    assert_eq!(socket.tcp_keepalive_retries().unwrap(), PROBES);
                }
                assert_eq!(socket.tcp_user_timeout().unwrap(), user_timeout);
            }
        }
    }

    #[test]
    fn hosts_that_disappear_are_noticed_by_default() {
        assert_eq!(Options::default().keepalive, Some(Duration::from_secs(60)));
    }

    #[test]
    fn times_of_keep_alive_are_rounded_to_what_the_system_accepts() {
        let seconds = Duration::from_secs;
        for (time, rounded) in [
            (Duration::ZERO, seconds(1)),
            (Duration::from_millis(1), seconds(1)),
            (seconds(6), seconds(6)),
            (Duration::from_millis(6001), seconds(7)),
            (Duration::MAX, seconds(MAX_KEEPALIVE)),
        ] {
            assert_eq!(whole_seconds(time), rounded, "{time:?}");
        }
    }
}
