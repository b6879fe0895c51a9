//! UDP datagrams on loopback by tokio, a message by a call.

use std::future::{Future, ready};
use std::io;
use std::sync::Arc;

use anyhow::Result;
use estafette_contest_common::buffer::Buffer;
use estafette_measure::case::{Case, Role};
use estafette_measure::spec::{Joins, Loss, Ordering};
use estafette_measure::{Carries, Ends, Generator, Mechanism, Party, Raw, Rendezvous, Rx, Spec, Tx, Verifier};
use futures_util::FutureExt;
use tokio::net::UdpSocket;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::driven::{runtime, wait};
use super::udp::{MAX_DATAGRAM, PATIENCE, joined};

/// `network/tokio-udp`.
pub(super) struct TokioUdp;

impl Mechanism for TokioUdp {
    fn spec(&self) -> Spec {
        Spec::new("network/tokio-udp")
            .version(concat!("tokio ", env!("LOCKED_TOKIO")))
            .stands_on("UDP on 127.0.0.1, connected, by tokio: send and recv")
            .max_message(MAX_DATAGRAM)
            .ordering(Ordering::Unordered)
            .loss(Loss::Counted)
            .joins(Joins::Standard)
    }
}

impl Carries<Raw> for TokioUdp {
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, meet: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        let runtime = Arc::new(runtime()?);
        let [_, socket] = joined(case, role, meet)?;
        socket.set_nonblocking(true)?;
        let _inside = runtime.enter();
        let socket = Arc::new(UdpSocket::from_std(socket)?);
        let len = case.payload.len();
        let tx = Sending { runtime: Arc::clone(&runtime), socket: Arc::clone(&socket), buffer: Buffer::new(len) };
        // One byte more than a message has, so that a longer datagram does not pass for a right one.
        let rx = Receiving { runtime: Arc::clone(&runtime), socket, buffer: Buffer::new(len + 1) };
        Ok(Ends(vec![Party { role, tx: Some(tx), rx: Some(rx) }]))
    }
}

/// The sending end.
pub(super) struct Sending {
    runtime: Arc<Runtime>,
    socket: Arc<UdpSocket>,
    buffer: Buffer,
}

impl Tx for Sending {
    #[inline(always)]
    fn put(&mut self, next: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        next.fill(&mut self.buffer);
        ready(wait(&self.runtime, self.socket.send(&self.buffer)).map(drop))
    }
}

/// The receiving end.
pub(super) struct Receiving {
    runtime: Arc<Runtime>,
    socket: Arc<UdpSocket>,
    buffer: Buffer,
}

impl Receiving {
    #[inline(always)]
    fn receive(&mut self) -> io::Result<usize> {
        match self.socket.recv(&mut self.buffer).now_or_never() {
            Some(received) => received,
            // A message may have been lost.
            None => self.runtime.block_on(async { timeout(PATIENCE, self.socket.recv(&mut self.buffer)).await })?,
        }
    }
}

impl Rx for Receiving {
    #[inline(always)]
    fn get(&mut self, seen: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.receive().map(|len| seen.bytes(&self.buffer[..len])))
    }
}
