//! Blocking sockets of the standard library, and tungstenite on them.

use std::io::{BufReader, BufWriter, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::ops::ControlFlow;

use tungstenite::WebSocket;
use tungstenite::protocol::Role;

use crate::contender::{Link, Side};
use crate::{BUFFER, Result, Wire};

/// Connects two sockets with TCP_NODELAY: the one that sends, and the one that receives.
pub(crate) fn tcp(side: Side) -> Result<[TcpStream; 2]> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let ends = match side {
        Side::Receiver(addresses) => {
            addresses.send(listener.local_addr()?)?;
            let socket = listener.accept()?.0;
            [socket.try_clone()?, socket]
        }
        Side::Sender(address) => {
            let socket = TcpStream::connect(address.recv()?)?;
            [socket.try_clone()?, socket]
        }
        Side::Both => [TcpStream::connect(listener.local_addr()?)?, listener.accept()?.0],
    };
    ends.iter().try_for_each(|socket| socket.set_nodelay(true))?;
    Ok(ends)
}

/// Blocking sockets, one vectored write a message.
pub(crate) struct Native {
    to: TcpStream,
    from: TcpStream,
    framed: bool,
    buffer: Vec<u8>,
}

impl Native {
    pub(crate) fn open(wire: Wire, len: usize, side: Side) -> Result<Native> {
        let [to, from] = tcp(side)?;
        Ok(Native { to, from, framed: wire == Wire::Framed, buffer: vec![0; len] })
    }
}

impl Link for Native {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        write_message(&mut self.to, self.framed, message)
    }

    fn recv(&mut self, mut look: impl FnMut(&[u8]) -> ControlFlow<()>) -> Result<()> {
        loop {
            read_message(&mut self.from, self.framed, &mut self.buffer)?;
            if look(&self.buffer).is_break() {
                return Ok(());
            }
        }
    }
}

pub(crate) fn check_length(header: [u8; 4], expected: usize) -> Result<()> {
    if u32::from_be_bytes(header) as usize == expected { Ok(()) } else { Err("a message has another length".into()) }
}

/// Sends a message on a stream by one vectored write.
pub(crate) fn write_message(to: &mut TcpStream, framed: bool, message: &[u8]) -> Result<()> {
    if !framed {
        return Ok(to.write_all(message)?);
    }
    let header = (message.len() as u32).to_be_bytes();
    let written = to.write_vectored(&[IoSlice::new(&header), IoSlice::new(message)])?;
    if written < header.len() {
        to.write_all(&header[written..])?;
    }
    Ok(to.write_all(&message[written.saturating_sub(header.len())..])?)
}

/// Reads a message into a buffer of its length.
fn read_message(from: &mut impl Read, framed: bool, buffer: &mut [u8]) -> Result<()> {
    if framed {
        let mut header = [0; 4];
        from.read_exact(&mut header)?;
        check_length(header, buffer.len())?;
    }
    Ok(from.read_exact(buffer)?)
}

/// Blocking sockets behind buffers.
pub(crate) struct Buffered {
    to: BufWriter<TcpStream>,
    from: BufReader<TcpStream>,
    framed: bool,
    buffer: Vec<u8>,
}

impl Buffered {
    pub(crate) fn open(wire: Wire, len: usize, side: Side) -> Result<Buffered> {
        let [to, from] = tcp(side)?;
        let (to, from) = (BufWriter::with_capacity(BUFFER, to), BufReader::with_capacity(BUFFER, from));
        Ok(Buffered { to, from, framed: wire == Wire::Framed, buffer: vec![0; len] })
    }
}

impl Link for Buffered {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        if self.framed {
            self.to.write_all(&(message.len() as u32).to_be_bytes())?;
        }
        Ok(self.to.write_all(message)?)
    }

    fn recv(&mut self, mut look: impl FnMut(&[u8]) -> ControlFlow<()>) -> Result<()> {
        loop {
            read_message(&mut self.from, self.framed, &mut self.buffer)?;
            if look(&self.buffer).is_break() {
                return Ok(());
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(self.to.flush()?)
    }
}

/// Connected UDP sockets.
pub(crate) struct Udp {
    to: UdpSocket,
    from: UdpSocket,
    buffer: Vec<u8>,
}

/// Connects two UDP sockets: the one that sends, and the one that receives.
pub(crate) fn udp(side: Side) -> Result<[UdpSocket; 2]> {
    Ok(match side {
        Side::Both => {
            let ends = [UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?];
            ends[0].connect(ends[1].local_addr()?)?;
            ends[1].connect(ends[0].local_addr()?)?;
            ends
        }
        Side::Receiver(addresses) => {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            addresses.send(socket.local_addr()?)?;
            // The first message says who sends.
            let (_, peer) = socket.peek_from(&mut [0])?;
            socket.connect(peer)?;
            [socket.try_clone()?, socket]
        }
        Side::Sender(address) => {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            socket.connect(address.recv()?)?;
            // It announces the end of a slice that never began.
            socket.send(&[255])?;
            [socket.try_clone()?, socket]
        }
    })
}

impl Udp {
    pub(crate) fn open(side: Side) -> Result<Udp> {
        let [to, from] = udp(side)?;
        Ok(Udp { to, from, buffer: vec![0; BUFFER] })
    }
}

impl Link for Udp {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.to.send(message)?;
        Ok(())
    }

    fn recv(&mut self, mut look: impl FnMut(&[u8]) -> ControlFlow<()>) -> Result<()> {
        loop {
            let len = self.from.recv(&mut self.buffer)?;
            if look(&self.buffer[..len]).is_break() {
                return Ok(());
            }
        }
    }
}

/// tungstenite on a blocking socket, one call a message.
pub(crate) struct Tungstenite {
    to: WebSocket<TcpStream>,
    from: Option<WebSocket<TcpStream>>,
}

impl Tungstenite {
    /// Without handshakes, which take no part in what is measured.
    pub(crate) fn open(side: Side) -> Result<Tungstenite> {
        let role = if side.is_sender() { Role::Client } else { Role::Server };
        let is_both = matches!(side, Side::Both);
        let [to, from] = tcp(side)?;
        let from = is_both.then(|| WebSocket::from_raw_socket(from, Role::Server, None));
        Ok(Tungstenite { to: WebSocket::from_raw_socket(to, role, None), from })
    }
}

impl Link for Tungstenite {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        // The library takes the message and masks it in place.
        Ok(self.to.send(tungstenite::Message::binary(message.to_vec()))?)
    }

    fn recv(&mut self, mut look: impl FnMut(&[u8]) -> ControlFlow<()>) -> Result<()> {
        let from = self.from.as_mut().unwrap_or(&mut self.to);
        loop {
            if let tungstenite::Message::Binary(message) = from.read()?
                && look(&message).is_break()
            {
                return Ok(());
            }
        }
    }
}
