//! A WebSocket over a TCP connection of tokio, with tokio-tungstenite.

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::rc::Rc;

use ::tokio_tungstenite::{WebSocketStream, accept_async_with_config, client_async_with_config};
use anyhow::Result;
use estafette_contest_common::own_thread::OwnThread;
use estafette_measure::case::{Case, Role};
use estafette_measure::spec::{Ownership, Tier};
use estafette_measure::{
    Ends, Generator, Mechanism, PartyEnds, Raw, Rendezvous, Rx, Spec, Transport, Tx, Value, Verifier,
};
use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tungstenite::Message;
use tungstenite::protocol::WebSocketConfig;

use super::driven::{runtime, stream, wait};
use super::frames::batched;
use super::tcp_connection::connected;
use super::ws_basic::{failed, url};

/// `network/tokio-tungstenite`.
pub(super) struct TokioTungstenite;

impl Mechanism for TokioTungstenite {
    fn spec(&self) -> Spec {
        Spec::new("network/tokio-tungstenite")
            .version(env!("LOCKED_TOKIO_TUNGSTENITE"))
            .implementation("a WebSocket over TCP, TCP_NODELAY, by tokio: send, or feed in a stream, and next")
            .ownership(Ownership::Owned)
            .between_hosts(true)
            .tier(Tier::Standard)
    }
}

impl Transport<Raw> for TokioTungstenite {
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<SendEnd, RecvEnd>> {
        let runtime = runtime()?;
        let connection = connected(role, rendezvous)?;
        let url = url(&connection)?;
        let stream = stream(&runtime, connection)?;
        // No limits, because messages may have any length.
        let config = Some(WebSocketConfig::default().max_message_size(None).max_frame_size(None));
        let socket = runtime.block_on(async {
            if let Role::Consumer(_) = role {
                return accept_async_with_config(stream, config).await;
            }
            Ok(client_async_with_config(url, stream, config).await?.0)
        })?;
        let connection = Rc::new(RefCell::new(Connection { runtime, socket }));
        let tx = SendEnd { connection: OwnThread::new(Rc::clone(&connection)), batched: batched(case) };
        let rx = RecvEnd { connection: OwnThread::new(connection) };
        Ok(Ends(vec![PartyEnds { role, tx: Some(tx), rx: Some(rx) }]))
    }
}

/// The connection that both ends of a party share.
struct Connection {
    runtime: Runtime,
    socket: WebSocketStream<TcpStream>,
}

/// The sending end.
pub(super) struct SendEnd {
    connection: OwnThread<Rc<RefCell<Connection>>>,
    /// Whether messages are batched.
    batched: bool,
}

impl Tx for SendEnd {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        let message = Message::binary(Vec::<u8>::make(source));
        let Connection { runtime, socket } = &mut *self.connection.borrow_mut();
        let sent = if self.batched { wait(runtime, socket.feed(message)) } else { wait(runtime, socket.send(message)) };
        sent.map_err(failed)
    }

    fn flush(&mut self) -> io::Result<()> {
        let Connection { runtime, socket } = &mut *self.connection.borrow_mut();
        wait(runtime, socket.flush()).map_err(failed)
    }
}

/// The receiving end.
pub(super) struct RecvEnd {
    connection: OwnThread<Rc<RefCell<Connection>>>,
}

impl Rx for RecvEnd {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        let Connection { runtime, socket } = &mut *self.connection.borrow_mut();
        loop {
            match wait(runtime, socket.next()) {
                Some(Ok(Message::Binary(message))) => {
                    verifier.bytes(&message);
                    break Ok(());
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => break Err(failed(error)),
                None => break Err(ErrorKind::UnexpectedEof.into()),
            }
        }
    }
}
