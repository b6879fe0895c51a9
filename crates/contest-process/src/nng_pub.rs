//! nng with one publisher and its subscribers over a UNIX socket. Messages that exceed a buffer at
//! either side are lost, and the losses are counted.

use std::time::Duration;

use anyhow::{Context, Result};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Loss, Ownership, Tier};
use estafette_measure::{Ends, Mechanism, Raw, Rendezvous, Spec, Transport};
use nng_sys::{
    NNG_OPT_RECVBUF, NNG_OPT_RECVTIMEO, NNG_OPT_SENDBUF, nng_pub0_open, nng_sub0_open, nng_sub0_socket_subscribe,
};

use super::nng::{LowerTransport, RecvEnd, SendEnd, Socket, check, half, version};

/// How long a receiver waits for a message that may have been lost.
const RECV_TIMEOUT: Duration = Duration::from_millis(20);

/// `process/nng-pub`.
pub(super) struct NngPub;

impl Mechanism for NngPub {
    fn spec(&self) -> Spec {
        Spec::new("process/nng-pub")
            .kernel_copies(2)
            .version(&version())
            .implementation("nng over a UNIX socket: pub0 and sub0; nng_sendmsg and nng_recvmsg")
            .patterns(&[Pattern::Stream, Pattern::PubSub])
            .ownership(Ownership::Owned)
            .loss(Loss::BestEffort)
            .tier(Tier::Standard)
    }
}

impl Transport<Raw> for NngPub {
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<SendEnd, RecvEnd>> {
        if let Role::Consumer(index) = role {
            let socket = Socket::open(nng_sub0_open)?;
            socket.set(NNG_OPT_RECVBUF, half(case))?;
            subscribe(&socket)?;
            socket.join(false, LowerTransport::Ipc, rendezvous)?;
            rendezvous.publish(&format!("subscriber:{index}"), "connected")?;
            return Ok(Ends::consumer(index, RecvEnd { socket }));
        }
        let socket = Socket::open(nng_pub0_open)?;
        socket.set(NNG_OPT_SENDBUF, half(case))?;
        socket.join(true, LowerTransport::Ipc, rendezvous)?;
        for index in 0..case.consumers() {
            rendezvous.request(&format!("subscriber:{index}"))?;
        }
        Ok(Ends::producer(0, SendEnd { socket, len: case.payload.len() }))
    }
}

/// Subscribes a socket to all messages and sets its receive timeout.
#[allow(unsafe_code)]
fn subscribe(socket: &Socket) -> Result<()> {
    // SAFETY: the socket is open. An empty topic selects every message.
    check(unsafe { nng_sub0_socket_subscribe(socket.0, [].as_ptr(), 0) }).context("subscribing")?;
    socket.set_timeout(NNG_OPT_RECVTIMEO, RECV_TIMEOUT)
}
