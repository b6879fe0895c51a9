//! A WebSocket over TCP with tungstenite, as in its examples: blocking, one call per
//! message.

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::rc::Rc;
use std::thread;

use anyhow::{Result, anyhow};
use estafette_contest_common::own_thread::OwnThread;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Ownership, Tier};
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};
use tungstenite::{Error, Message, WebSocket};

use super::tcp_connection::{connected, pair};

/// `network/ws-basic`.
pub(super) struct WsBasic;

impl Mechanism for WsBasic {
    fn spec(&self) -> Spec {
        Spec::new("network/ws-basic")
            .version(env!("LOCKED_TUNGSTENITE"))
            .implementation("a WebSocket over TCP, TCP_NODELAY, by tungstenite: send and read")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::SameThread])
            .ownership(Ownership::Owned)
            .between_hosts(true)
            .tier(Tier::Suite)
    }
}

impl Transport<Raw> for WsBasic {
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<SendEnd, RecvEnd>> {
        let [to, from] = match role {
            Role::All => handshakes()?.map(|socket| Rc::new(RefCell::new(socket))),
            _ => {
                let socket = Rc::new(RefCell::new(handshake(role, connected(role, rendezvous)?)?));
                [Rc::clone(&socket), socket]
            }
        };
        let tx = SendEnd { socket: OwnThread::new(to), len: case.payload.len() };
        Ok(Ends::both(role, tx, RecvEnd { socket: OwnThread::new(from) }))
    }
}

/// Performs the WebSocket handshake on a connection. The consumer is the server.
pub(super) fn handshake(role: Role, stream: TcpStream) -> Result<WebSocket<TcpStream>> {
    if let Role::Consumer(_) = role {
        return Ok(tungstenite::accept(stream)?);
    }
    Ok(tungstenite::client(url(&stream)?, stream)?.0)
}

/// Returns the URL of a connection's other side, for the client's handshake.
pub(super) fn url(stream: &TcpStream) -> io::Result<String> {
    Ok(format!("ws://{}/", stream.peer_addr()?))
}

/// Returns both ends of a WebSocket, the client's first.
pub(super) fn handshakes() -> Result<[WebSocket<TcpStream>; 2]> {
    let [to, from] = pair()?;
    let server = thread::spawn(|| handshake(Role::Consumer(0), from));
    let client = handshake(Role::Producer(0), to)?;
    Ok([client, server.join().map_err(|_| anyhow!("the server's handshake panicked"))??])
}

type Shared = OwnThread<Rc<RefCell<WebSocket<TcpStream>>>>;

pub(super) fn failed(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        // The peer has closed, with or without a closing handshake.
        Error::ConnectionClosed | Error::AlreadyClosed | Error::Protocol(_) => ErrorKind::UnexpectedEof.into(),
        other => io::Error::other(other),
    }
}

/// The sending end.
pub(super) struct SendEnd {
    socket: Shared,
    len: usize,
}

impl Tx for SendEnd {
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        // The library takes ownership of the message and masks it in place.
        let mut message = vec![0; self.len];
        source.fill(&mut message);
        self.socket.borrow_mut().send(Message::binary(message)).map_err(failed)
    }
}

/// The receiving end.
pub(super) struct RecvEnd {
    socket: Shared,
}

impl Rx for RecvEnd {
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        loop {
            match self.socket.borrow_mut().read() {
                Ok(Message::Binary(message)) => {
                    verifier.bytes(&message);
                    break Ok(());
                }
                Ok(_) => {}
                Err(error) => break Err(failed(error)),
            }
        }
    }
}
