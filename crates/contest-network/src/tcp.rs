//! A TCP connection on loopback, blocking, with `TCP_NODELAY`.

use std::net::{Ipv4Addr, TcpListener, TcpStream};

use anyhow::Result;
use estafette_contest_common::byte_stream::{Reading, SocketEnd, Writing};
use estafette_contest_common::capacity;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::{Ends, Mechanism, Raw, Rendezvous, Spec, Transport};

use super::socket::SocketKind;

/// `network/tcp`.
#[derive(Debug)]
pub struct Tcp;

impl Mechanism for Tcp {
    fn spec(&self) -> Spec {
        Spec::new("network/tcp")
            .implementation("TCP on 127.0.0.1, TCP_NODELAY, send and recv")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex, Pattern::SameThread])
            .between_hosts(true)
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
