//! TCP connections with `TCP_NODELAY`, for everything that talks over TCP. The consumer listens at
//! the address of its host.

use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};

use anyhow::{Context, Result};
use estafette_measure::Rendezvous;
use estafette_measure::case::Role;

/// The backlog of connections that wait to be accepted. The system's own limit is often as high.
const BACKLOG: i32 = 4096;

/// Returns both ends of a connection on loopback, with `TCP_NODELAY`.
pub(super) fn pair() -> Result<[TcpStream; 2]> {
    let listener = listen(Ipv4Addr::LOCALHOST.into())?;
    let pair = [TcpStream::connect(listener.local_addr()?)?, listener.accept()?.0];
    pair.each_ref().map(|stream| stream.set_nodelay(true)).into_iter().collect::<std::io::Result<()>>()?;
    Ok(pair)
}

/// Listens at any free port of an address of this host.
fn listen(address: IpAddr) -> Result<TcpListener> {
    TcpListener::bind((address, 0)).with_context(|| format!("listening at {address}"))
}

/// Returns the party's end of a connection, with `TCP_NODELAY`.
pub(super) fn connected(role: Role, rendezvous: &mut Rendezvous) -> Result<TcpStream> {
    connections(1, role, rendezvous)?.pop().context("a connection")
}

/// Returns the party's ends of `count` connections, with `TCP_NODELAY`.
pub(super) fn connections(count: usize, role: Role, rendezvous: &mut Rendezvous) -> Result<Vec<TcpStream>> {
    let streams: Vec<TcpStream> = if let Role::Consumer(_) = role {
        let listener = listen(rendezvous.address())?;
        // If a thousand connections arrive at once, those that exceed the backlog retry only after
        // a second.
        rustix::net::listen(&listener, BACKLOG).context("setting the listener's backlog")?;
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
