//! UDP datagrams with tokio, one call per message.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use estafette_contest_common::packets::{PacketRx, PacketSocket, PacketTx};
use estafette_measure::case::{Case, Role};
use estafette_measure::spec::{Loss, Ordering, Tier};
use estafette_measure::{Ends, Mechanism, PartyEnds, Raw, Rendezvous, Spec, Transport};
use futures_util::FutureExt;
use tokio::net::UdpSocket;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::driven::{runtime, wait};
use super::udp::{MAX_DATAGRAM, connect_pair, recv_timeout};

/// `network/tokio-udp`.
pub(super) struct TokioUdp;

impl Mechanism for TokioUdp {
    fn spec(&self) -> Spec {
        Spec::new("network/tokio-udp")
            .version(concat!("tokio ", env!("LOCKED_TOKIO")))
            .implementation("UDP, connected, by tokio: send and recv")
            .max_message(MAX_DATAGRAM)
            .ordering(Ordering::Unordered)
            .loss(Loss::BestEffort)
            .between_hosts(true)
            .tier(Tier::Standard)
    }
}

impl Transport<Raw> for TokioUdp {
    type Tx = PacketTx<Socket>;
    type Rx = PacketRx<Socket>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let runtime = Arc::new(runtime()?);
        let [_, socket] = connect_pair(case, role, rendezvous)?;
        socket.set_nonblocking(true)?;
        let _inside = runtime.enter();
        let socket = Arc::new(UdpSocket::from_std(socket)?);
        let socket = Socket { runtime: Arc::clone(&runtime), socket, recv_timeout: recv_timeout(case) };
        let len = case.payload.len();
        let (tx, rx) = (PacketTx::new(socket.clone(), len), PacketRx::new(socket, len));
        Ok(Ends(vec![PartyEnds { role, tx: Some(tx), rx: Some(rx) }]))
    }
}

/// A connected socket, and the runtime that drives it.
#[derive(Clone)]
pub(super) struct Socket {
    runtime: Arc<Runtime>,
    socket: Arc<UdpSocket>,
    /// How long to wait for a message that may have been lost.
    recv_timeout: Duration,
}

impl PacketSocket for Socket {
    #[inline(always)]
    fn send_packet(&mut self, packet: &[u8]) -> io::Result<()> {
        wait(&self.runtime, self.socket.send(packet)).map(drop)
    }

    #[inline(always)]
    fn recv_packet(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.socket.recv(buffer).now_or_never() {
            Some(received) => received,
            // Waits with a timeout, because the message may have been lost.
            None => self.runtime.block_on(async { timeout(self.recv_timeout, self.socket.recv(buffer)).await })?,
        }
    }
}
