//! nng, one publisher and its subscribers, over a UNIX socket. What a subscriber has no room for is lost, at either side, and
//! counted.

use std::time::Duration;

use anyhow::{Context, Result};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Loss, Ownership, Tier};
use estafette_measure::{Ends, Mechanism, Raw, Rendezvous, Spec, Transport};
use nng_sys::{
    NNG_OPT_RECVBUF, NNG_OPT_RECVTIMEO, NNG_OPT_SENDBUF, nng_pub0_open, nng_sub0_open, nng_sub0_socket_subscribe,
};

use super::nng::{Over, Receiving, Sending, Socket, check, half, version};

/// How long a receiver waits for a message that may have been lost.
const PATIENCE: Duration = Duration::from_millis(20);

/// `process/nng-pub`.
pub(super) struct NngPub;

impl Mechanism for NngPub {
    fn spec(&self) -> Spec {
        Spec::new("process/nng-pub")
            .version(&version())
            .implementation("nng over a UNIX socket: pub0 and sub0; nng_sendmsg and nng_recvmsg")
            .patterns(&[Pattern::Stream, Pattern::PubSub])
            .ownership(Ownership::Owned)
            .loss(Loss::BestEffort)
            .tier(Tier::Standard)
    }
}

impl Transport<Raw> for NngPub {
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        if let Role::Consumer(index) = role {
            let socket = Socket::open(nng_sub0_open)?;
            socket.set(NNG_OPT_RECVBUF, half(case))?;
            subscribe(&socket)?;
            socket.join(false, Over::Ipc, rendezvous)?;
            rendezvous.publish(&format!("subscriber:{index}"), "connected")?;
            return Ok(Ends::consumer(index, Receiving { socket }));
        }
        let socket = Socket::open(nng_pub0_open)?;
        socket.set(NNG_OPT_SENDBUF, half(case))?;
        socket.join(true, Over::Ipc, rendezvous)?;
        for index in 0..case.consumers() {
            rendezvous.request(&format!("subscriber:{index}"))?;
        }
        Ok(Ends::producer(0, Sending { socket, len: case.payload.len() }))
    }
}

/// Has a socket hear every message, and give up waiting for one after a while.
#[allow(unsafe_code)]
fn subscribe(socket: &Socket) -> Result<()> {
    // SAFETY: the socket is open; no bytes stand for every message.
    check(unsafe { nng_sub0_socket_subscribe(socket.0, [].as_ptr(), 0) }).context("subscribing")?;
    socket.set_patience(NNG_OPT_RECVTIMEO, PATIENCE)
}
