//! ZeroMQ with one publisher and its subscribers over a UNIX socket. The publisher waits for the
//! slowest subscriber. By default it would drop messages for a subscriber whose queue is full.

use anyhow::{Context as _, Result, ensure};
use estafette_contest_common::buffer::Buffer;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::Tier;
use estafette_measure::{Ends, Mechanism, Raw, Rendezvous, Spec, Transport};
use zmq::{Context, Message, Socket};

use super::zeromq::{LowerTransport, RecvEnd, SendEnd, Shared, join, keep_open, limit, version};

/// `process/zeromq-pub`.
pub(super) struct ZeromqPub;

impl Mechanism for ZeromqPub {
    fn spec(&self) -> Spec {
        Spec::new("process/zeromq-pub")
            .kernel_copies(2)
            .version(&version())
            .implementation(
                "ZeroMQ over a UNIX socket: XPUB with ZMQ_XPUB_NODROP, and SUB; zmq_msg_send and zmq_msg_recv",
            )
            .patterns(&[Pattern::Stream, Pattern::PubSub])
            .tier(Tier::Standard)
    }
}

impl Transport<Raw> for ZeromqPub {
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<SendEnd, RecvEnd>> {
        let publishes = matches!(role, Role::Producer(_));
        let mut socket = Context::new().socket(if publishes { zmq::XPUB } else { zmq::SUB })?;
        limit(&socket, case)?;
        if let Role::Consumer(index) = role {
            socket.set_subscribe(b"")?;
            join(&socket, false, LowerTransport::Ipc, rendezvous)?;
            let socket = Shared::new(keep_open(socket));
            return Ok(Ends::consumer(index, RecvEnd { socket, message: Message::new() }));
        }
        never_drop(&mut socket)?;
        // Reports every subscriber, even if another has already subscribed to the same topic.
        socket.set_xpub_verbose(true)?;
        join(&socket, true, LowerTransport::Ipc, rendezvous)?;
        for _ in 0..case.consumers() {
            socket.recv_msg(0).context("waiting for a subscriber")?;
        }
        let socket = Shared::new(keep_open(socket));
        Ok(Ends::producer(0, SendEnd { socket, buffer: Buffer::new(case.payload.len()) }))
    }
}

/// Makes a publisher wait for subscribers whose queue is full. The crate has no function for this
/// option.
#[allow(unsafe_code)]
fn never_drop(socket: &mut Socket) -> Result<()> {
    let on: i32 = 1;
    // SAFETY: the socket is open, and the length is that of the value.
    let set = unsafe {
        zmq_sys::zmq_setsockopt(
            socket.as_mut_ptr(),
            zmq_sys::ZMQ_XPUB_NODROP as i32,
            (&raw const on).cast(),
            size_of_val(&on),
        )
    };
    ensure!(set == 0, "this version of ZeroMQ has no ZMQ_XPUB_NODROP");
    Ok(())
}
