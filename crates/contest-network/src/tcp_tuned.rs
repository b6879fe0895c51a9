//! A TCP connection, optimised for speed: messages of one length without framing, see
//! [`super::frames`].

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Tier, Wait};
use estafette_measure::{Ends, Mechanism, Raw, Rendezvous, Spec, Transport};

use super::frames::{Bare, RecvEnd, SendEnd, Socket, ends};
use super::socket::SocketKind;

/// `network/tcp-tuned`.
pub(super) struct TcpTuned;

impl Mechanism for TcpTuned {
    fn spec(&self) -> Spec {
        Spec::new("network/tcp-tuned")
            .implementation("TCP, TCP_NODELAY: many messages by one send and one recv")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex, Pattern::SameThread])
            .waits(&[Wait::Block, Wait::Adaptive])
            .between_hosts(true)
            .tier(Tier::StandardAllCells)
    }
}

impl Transport<Raw> for TcpTuned {
    type Tx = SendEnd<Bare, Socket>;
    type Rx = RecvEnd<Bare, Socket>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let bare = Bare { len: case.payload.len() };
        Ok(ends(bare, bare, SocketKind::Tcp.connect_pair(role, rendezvous)?, case, role))
    }
}
