//! A TCP connection on loopback, blocking, with `TCP_NODELAY`.

use std::net::{Ipv4Addr, TcpListener, TcpStream};

use anyhow::{Context, Result};
use estafette_contest_common::byte_stream::{Reading, SocketEnd, Writing};
use estafette_contest_common::capacity;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::{Ends, Mechanism, Raw, Rendezvous, Spec, Transport};

use super::socket::SocketKind;

/// The backlog of connections that wait to be accepted. The system's own limit is often as high.
const BACKLOG: i32 = 4096;

/// `network/tcp`.
#[derive(Debug)]
pub struct Tcp;

impl Mechanism for Tcp {
    fn spec(&self) -> Spec {
        Spec::new("network/tcp").implementation("TCP on 127.0.0.1, TCP_NODELAY, send and recv").patterns(&[
            Pattern::PingPong,
            Pattern::Stream,
            Pattern::Duplex,
            Pattern::SameThread,
        ])
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
        let from = TcpStream::connect(listener.local_addr().ok()?).ok()?;
        let _to = listener.accept().ok()?;
        capacity::written(&from, case.payload.len())
    }
}

impl Transport<Raw> for Tcp {
    type Tx = Writing<SocketEnd>;
    type Rx = Reading<SocketEnd>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let [to, from] = SocketKind::Tcp.connect_pair(role, rendezvous)?.map(SocketEnd::new);
        let len = case.payload.len();
        Ok(Ends::both(role, Writing::new(to, len), Reading::new(from, len)))
    }
}

/// Returns both ends of a connection on loopback, with `TCP_NODELAY`.
pub(super) fn pair() -> Result<[TcpStream; 2]> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listening on 127.0.0.1")?;
    let pair = [TcpStream::connect(listener.local_addr()?)?, listener.accept()?.0];
    pair.each_ref().map(|stream| stream.set_nodelay(true)).into_iter().collect::<std::io::Result<()>>()?;
    Ok(pair)
}

/// Returns the party's end of a connection on loopback, with `TCP_NODELAY`.
pub(super) fn connected(role: Role, rendezvous: &mut Rendezvous) -> Result<TcpStream> {
    connections(1, role, rendezvous)?.pop().context("a connection")
}

/// Returns the party's ends of `count` connections on loopback, with `TCP_NODELAY`.
pub(super) fn connections(count: usize, role: Role, rendezvous: &mut Rendezvous) -> Result<Vec<TcpStream>> {
    let streams: Vec<TcpStream> = if let Role::Consumer(_) = role {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listening on 127.0.0.1")?;
        // If a thousand connections arrive at once, those that exceed the backlog retry only after
        // a second.
        rustix::net::listen(&listener, BACKLOG).context("listening on 127.0.0.1")?;
        rendezvous.publish("address", &listener.local_addr()?.to_string())?;
        (0..count).map(|_| Ok(listener.accept()?.0)).collect::<Result<_>>()?
    } else {
        let address = rendezvous.request("address")?;
        let connect = |_| TcpStream::connect(&address).with_context(|| format!("connecting to {address}"));
        (0..count).map(connect).collect::<Result<_>>()?
    };
    for stream in &streams {
        stream.set_nodelay(true)?;
    }
    Ok(streams)
}
