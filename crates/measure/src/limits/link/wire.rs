//! What the two sides of a link's measurement send each other over TCP.
//!
//! Each connection begins with a greeting: the responder's key, and what the connection is for. On
//! the control connection the prober then sends commands, and the responder replies to each when it
//! has counted. All numbers are big-endian.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result};

/// How long connecting and greeting may take.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a command may take beyond the time that it asks for.
pub(super) const COMMAND_TIMEOUT: Duration = Duration::from_secs(15);
/// The highest number of connections that carry data at the same time.
pub(super) const MAX_CONNECTIONS: u32 = 16;
/// The longest time for which data is counted.
pub(super) const MAX_LENGTH: Duration = Duration::from_secs(5);
/// The length of a command and of a reply in bytes.
const FRAME: usize = 16;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Commands and replies.
    Control,
    /// Data that the responder counts.
    Bulk,
}

/// Greets the responder on a new connection.
pub(super) fn greet(mut stream: &TcpStream, key: u64, purpose: Purpose) -> io::Result<()> {
    let mut greeting = [0; 9];
    greeting[..8].copy_from_slice(&key.to_be_bytes());
    greeting[8] = u8::from(purpose == Purpose::Bulk);
    stream.write_all(&greeting)
}

/// Reads the greeting of a new connection. `None` if the key is wrong.
pub(super) fn read_greeting(mut stream: &TcpStream, key: u64) -> io::Result<Option<Purpose>> {
    let mut greeting = [0; 9];
    stream.read_exact(&mut greeting)?;
    let purpose = match greeting[8] {
        0 => Purpose::Control,
        1 => Purpose::Bulk,
        _ => return Ok(None),
    };
    Ok((greeting[..8] == key.to_be_bytes()).then_some(purpose))
}

/// What the prober asks the responder to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Accept this many connections and count what arrives on them for this time.
    CountBulk { connections: u32, length: Duration },
    /// Report how many different packets of the loss measurement have arrived.
    CountPackets,
}

impl Command {
    /// Encodes the command.
    pub(super) fn encode(self) -> [u8; FRAME] {
        let mut frame = [0; FRAME];
        if let Command::CountBulk { connections, length } = self {
            frame[0] = 1;
            frame[4..8].copy_from_slice(&connections.to_be_bytes());
            frame[8..].copy_from_slice(&u64::try_from(length.as_nanos()).unwrap_or(u64::MAX).to_be_bytes());
        }
        frame
    }

    /// Decodes a command. `None` if it is unknown or asks for too much.
    pub(super) fn decode(frame: [u8; FRAME]) -> Option<Command> {
        let [kind, _, _, _, a, b, c, d, length @ ..] = frame;
        if kind == 0 {
            return Some(Command::CountPackets);
        }
        let connections = u32::from_be_bytes([a, b, c, d]);
        let length = Duration::from_nanos(u64::from_be_bytes(length));
        let is_valid = kind == 1 && (1..=MAX_CONNECTIONS).contains(&connections) && length <= MAX_LENGTH;
        is_valid.then_some(Command::CountBulk { connections, length })
    }
}

/// What the responder has counted, and in which time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    /// Bytes or packets.
    pub(super) count: u64,
    /// The time in which they arrived, in nanoseconds.
    pub(super) ns: u64,
}

impl Reply {
    /// Sends the reply.
    pub(super) fn send(self, mut to: &TcpStream) -> io::Result<()> {
        let mut frame = [0; FRAME];
        frame[..8].copy_from_slice(&self.count.to_be_bytes());
        frame[8..].copy_from_slice(&self.ns.to_be_bytes());
        to.write_all(&frame)
    }

    fn read(mut from: &TcpStream) -> io::Result<Reply> {
        let mut count = [0; 8];
        let mut ns = [0; 8];
        from.read_exact(&mut count)?;
        from.read_exact(&mut ns)?;
        Ok(Reply { count: u64::from_be_bytes(count), ns: u64::from_be_bytes(ns) })
    }
}

/// Reads the next command. `None` when the prober has closed the connection.
pub(super) fn read_command(mut from: &TcpStream) -> io::Result<Option<[u8; FRAME]>> {
    let mut frame = [0; FRAME];
    match from.read_exact(&mut frame) {
        Ok(()) => Ok(Some(frame)),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// The prober's control connection.
pub(super) struct Prober {
    address: SocketAddr,
    key: u64,
    control: TcpStream,
}

impl Prober {
    /// Connects to a responder.
    ///
    /// # Errors
    /// When nobody listens there, or nobody answers in time.
    pub(super) fn connect(address: SocketAddr, key: u64) -> io::Result<Prober> {
        Ok(Prober { address, key, control: open(address, key, Purpose::Control)? })
    }

    /// Opens a connection for data.
    ///
    /// # Errors
    /// As [`Prober::connect`].
    pub(super) fn open_bulk(&self) -> io::Result<TcpStream> {
        open(self.address, self.key, Purpose::Bulk)
    }

    /// The responder's key.
    pub(super) fn key(&self) -> u64 {
        self.key
    }

    /// Sends a command.
    ///
    /// # Errors
    /// When the responder has closed the connection.
    pub(super) fn send(&mut self, command: Command) -> Result<()> {
        self.control.write_all(&command.encode()).context("sending a command to the link's responder")
    }

    /// Receives the reply to the last command.
    ///
    /// # Errors
    /// When the responder has closed the connection, or does not reply within `length` and some
    /// seconds.
    pub(super) fn reply(&mut self, length: Duration) -> Result<Reply> {
        self.control.set_read_timeout(Some(length + COMMAND_TIMEOUT))?;
        Reply::read(&self.control).context("waiting for the link's responder")
    }
}

fn open(address: SocketAddr, key: u64, purpose: Purpose) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(CONNECT_TIMEOUT))?;
    greet(&stream, key, purpose)?;
    Ok(stream)
}
