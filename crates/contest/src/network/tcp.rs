//! A TCP connection on loopback, blocking, without Nagle's delay.

use std::net::{Ipv4Addr, TcpListener, TcpStream};

use anyhow::{Context, Result};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::{Carries, Ends, Mechanism, Party, Raw, Rendezvous, Spec};

use crate::byte_stream::{Reading, SocketEnd, Writing};
use crate::room;

/// `network/tcp`.
#[derive(Debug)]
pub struct Tcp;

impl Mechanism for Tcp {
    fn spec(&self) -> Spec {
        Spec::new("network/tcp").stands_on("TCP on 127.0.0.1, TCP_NODELAY, send and recv").patterns(&[
            Pattern::PingPong,
            Pattern::Stream,
            Pattern::Duplex,
        ])
    }

    fn room(&self, case: &Case) -> Option<u64> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
        let from = TcpStream::connect(listener.local_addr().ok()?).ok()?;
        let _to = listener.accept().ok()?;
        room::written(&from, case.payload.len())
    }
}

impl Carries<Raw> for Tcp {
    type Tx = Writing<SocketEnd>;
    type Rx = Reading<SocketEnd>;

    fn open(&self, case: &Case, role: Role, meet: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let stream = connected(role, meet)?;
        let len = case.payload.len();
        let (tx, rx) = SocketEnd::both(stream)?;
        let (tx, rx) = (Writing::new(tx, len), Reading::new(rx, len));
        Ok(Ends(vec![Party { role, tx: Some(tx), rx: Some(rx) }]))
    }
}

/// The party's end of a connection on loopback, without Nagle's delay.
pub(super) fn connected(role: Role, meet: &mut Rendezvous) -> Result<TcpStream> {
    let stream = if let Role::Consumer(_) = role {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listening on 127.0.0.1")?;
        meet.offer("address", &listener.local_addr()?.to_string())?;
        listener.accept()?.0
    } else {
        let address = meet.want("address")?;
        TcpStream::connect(&address).with_context(|| format!("connecting to {address}"))?
    };
    stream.set_nodelay(true)?;
    Ok(stream)
}
