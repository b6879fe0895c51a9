//! A WebSocket over a TCP connection of tokio, with fastwebsockets after tungstenite's handshake.
//! (The handshake of fastwebsockets requires an HTTP library.)

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::rc::Rc;

use ::fastwebsockets::{Frame, OpCode, Payload, Role as Side, WebSocket, WebSocketError};
use anyhow::Result;
use estafette_contest_common::own_thread::OwnThread;
use estafette_measure::case::{Case, Role};
use estafette_measure::spec::{Ownership, Tier};
use estafette_measure::{Ends, Generator, Mechanism, PartyEnds, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use super::driven::{runtime, stream, wait};
use super::tcp_connection::connected;
use super::ws_basic::handshake;

/// `network/fastwebsockets`.
pub(super) struct Fastwebsockets;

impl Mechanism for Fastwebsockets {
    fn spec(&self) -> Spec {
        Spec::new("network/fastwebsockets")
            .version(env!("LOCKED_FASTWEBSOCKETS"))
            .implementation("a WebSocket over TCP, TCP_NODELAY, by tokio: write_frame and read_frame")
            .ownership(Ownership::Owned)
            .between_hosts(true)
            .tier(Tier::Standard)
    }
}

impl Transport<Raw> for Fastwebsockets {
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<SendEnd, RecvEnd>> {
        let runtime = runtime()?;
        let connection = connected(role, rendezvous)?;
        // No frame is sent before every end is open, so the handshake reads no frame.
        handshake(role, connection.try_clone()?)?;
        let side = if let Role::Consumer(_) = role { Side::Server } else { Side::Client };
        let mut socket = WebSocket::after_handshake(stream(&runtime, connection)?, side);
        socket.set_max_message_size(case.payload.len() + 1);
        let connection = Rc::new(RefCell::new(Connection { runtime, socket }));
        let tx = SendEnd { connection: OwnThread::new(Rc::clone(&connection)), len: case.payload.len() };
        Ok(Ends(vec![PartyEnds { role, tx: Some(tx), rx: Some(RecvEnd { connection: OwnThread::new(connection) }) }]))
    }
}

/// The connection that both ends of a party share.
struct Connection {
    runtime: Runtime,
    socket: WebSocket<TcpStream>,
}

fn failed(error: WebSocketError) -> io::Error {
    match error {
        WebSocketError::IoError(error) => error,
        WebSocketError::UnexpectedEOF | WebSocketError::ConnectionClosed => ErrorKind::UnexpectedEof.into(),
        other => io::Error::other(other),
    }
}

/// The sending end.
pub(super) struct SendEnd {
    connection: OwnThread<Rc<RefCell<Connection>>>,
    len: usize,
}

impl Tx for SendEnd {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        // The library takes ownership of the message and masks it in place.
        let mut message = vec![0; self.len];
        source.fill(&mut message);
        let Connection { runtime, socket } = &mut *self.connection.borrow_mut();
        let frame = Frame::binary(Payload::Owned(message));
        wait(runtime, socket.write_frame(frame)).map_err(failed)
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
            let frame = wait(runtime, socket.read_frame()).map_err(failed)?;
            match frame.opcode {
                OpCode::Binary => {
                    verifier.bytes(&frame.payload);
                    return Ok(());
                }
                OpCode::Close => return Err(ErrorKind::UnexpectedEof.into()),
                _ => {}
            }
        }
    }
}
