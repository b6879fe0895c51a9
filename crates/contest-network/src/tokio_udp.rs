//! UDP datagrams on loopback with tokio, one call per message.

use std::io;
use std::sync::Arc;

use anyhow::Result;
use estafette_contest_common::buffer::Buffer;
use estafette_measure::case::{Case, Role};
use estafette_measure::spec::{Loss, Ordering, Tier};
use estafette_measure::{Ends, Generator, Mechanism, PartyEnds, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};
use futures_util::FutureExt;
use tokio::net::UdpSocket;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::driven::{runtime, wait};
use super::udp::{MAX_DATAGRAM, RECV_TIMEOUT, connect_pair};

/// `network/tokio-udp`.
pub(super) struct TokioUdp;

impl Mechanism for TokioUdp {
    fn spec(&self) -> Spec {
        Spec::new("network/tokio-udp")
            .version(concat!("tokio ", env!("LOCKED_TOKIO")))
            .implementation("UDP on 127.0.0.1, connected, by tokio: send and recv")
            .max_message(MAX_DATAGRAM)
            .ordering(Ordering::Unordered)
            .loss(Loss::BestEffort)
            .tier(Tier::Standard)
    }
}

impl Transport<Raw> for TokioUdp {
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<SendEnd, RecvEnd>> {
        let runtime = Arc::new(runtime()?);
        let [_, socket] = connect_pair(case, role, rendezvous)?;
        socket.set_nonblocking(true)?;
        let _inside = runtime.enter();
        let socket = Arc::new(UdpSocket::from_std(socket)?);
        let len = case.payload.len();
        let tx = SendEnd { runtime: Arc::clone(&runtime), socket: Arc::clone(&socket), buffer: Buffer::new(len) };
        // One byte longer than a message, to detect a datagram that is too long.
        let rx = RecvEnd { runtime: Arc::clone(&runtime), socket, buffer: Buffer::new(len + 1) };
        Ok(Ends(vec![PartyEnds { role, tx: Some(tx), rx: Some(rx) }]))
    }
}

/// The sending end.
pub(super) struct SendEnd {
    runtime: Arc<Runtime>,
    socket: Arc<UdpSocket>,
    buffer: Buffer,
}

impl Tx for SendEnd {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        source.fill(&mut self.buffer);
        wait(&self.runtime, self.socket.send(&self.buffer)).map(drop)
    }
}

/// The receiving end.
pub(super) struct RecvEnd {
    runtime: Arc<Runtime>,
    socket: Arc<UdpSocket>,
    buffer: Buffer,
}

impl RecvEnd {
    #[inline(always)]
    fn recv_message(&mut self) -> io::Result<usize> {
        match self.socket.recv(&mut self.buffer).now_or_never() {
            Some(received) => received,
            // Waits with a timeout, because the message may have been lost.
            None => self.runtime.block_on(async { timeout(RECV_TIMEOUT, self.socket.recv(&mut self.buffer)).await })?,
        }
    }
}

impl Rx for RecvEnd {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.recv_message().map(|len| verifier.bytes(&self.buffer[..len]))
    }
}
