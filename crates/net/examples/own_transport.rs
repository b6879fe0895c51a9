//! A custom transport: TCP that counts its bytes. This file contains all that a node needs of it;
//! its test is one call.
//!
//!     cargo run -p estafette-net --example own_transport

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use estafette_net::{Address, Event, Link, Listener, Listening, Node, Opened, Options, Place, Transport};
use socket2::{Domain, Socket, Type};

/// The bytes read and written by all connections.
#[derive(Debug, Default)]
struct Counts {
    read: AtomicU64,
    written: AtomicU64,
}

struct Counted(Arc<Counts>);

/// A node parses the rest of an address with an unknown scheme as a name.
fn socket_address(address: &Address) -> io::Result<SocketAddr> {
    let Place::Name(name) = address.place() else { return Err(ErrorKind::InvalidInput.into()) };
    name.parse().map_err(|_| io::Error::new(ErrorKind::InvalidInput, format!("{name} is not like 127.0.0.1:4000")))
}

impl Transport for Counted {
    fn connect(&self, address: &Address, _: &Options) -> io::Result<Opened> {
        let to = socket_address(address)?;
        let socket = Socket::new(Domain::for_address(to), Type::STREAM.nonblocking().cloexec(), None)?;
        match socket.connect(&to.into()) {
            // Connecting is in progress; the socket becomes writable when it is done.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
            other => other?,
        }
        Ok(Opened::Stream(Box::new(CountedLink(socket.into(), self.0.clone()))))
    }

    fn listen(&self, address: &Address, _: &Options) -> io::Result<Listening> {
        let listener = TcpListener::bind(socket_address(address)?)?;
        listener.set_nonblocking(true)?;
        Ok(Listening::Streams(Box::new(CountedListener(listener, self.0.clone()))))
    }
}

struct CountedListener(TcpListener, Arc<Counts>);

impl Listener for CountedListener {
    fn source(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn accept(&self) -> io::Result<Box<dyn Link>> {
        let (socket, _) = self.0.accept()?;
        socket.set_nonblocking(true)?;
        Ok(Box::new(CountedLink(socket, self.1.clone())))
    }

    fn local(&self) -> Option<Address> {
        format!("counted://{}", self.0.local_addr().ok()?).parse().ok()
    }
}

struct CountedLink(TcpStream, Arc<Counts>);

impl Link for CountedLink {
    fn source(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = (&self.0).read(buffer)?;
        self.1.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = (&self.0).write_vectored(parts)?;
        self.1.written.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn connected(&self) -> io::Result<()> {
        match (self.0.take_error()?, self.0.peer_addr()) {
            (Some(error), _) => Err(error),
            (None, Err(error)) if error.kind() == ErrorKind::NotConnected => Err(ErrorKind::WouldBlock.into()),
            (None, peer) => peer.map(drop),
        }
    }

    fn finish(&self) -> io::Result<()> {
        self.0.shutdown(Shutdown::Write)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let counts = Arc::new(Counts::default());
    let mut node = Node::<()>::new()?;
    node.add_transport("counted", Arc::new(Counted(counts.clone())));
    let handle = node.handle();
    let listener = handle.listen("counted+msg://127.0.0.1:0")?;
    let client = handle.connect(handle.local_address(listener).ok_or("no address")?)?;
    assert!(handle.send(client, b"hello").is_accepted());
    node.run(|event| match event {
        Event::Message(from, _) if from == client => handle.stop(),
        Event::Message(from, message) => assert!(handle.send(from, &message).is_accepted()),
        _ => {}
    })?;
    println!("{counts:?} for 5 bytes in each direction");
    Ok(())
}

#[test]
fn conforms() {
    let counted = estafette_net::conformance::Subject::new("counted", |scheme| format!("{scheme}://127.0.0.1:0"));
    counted.transport(Arc::new(Counted(Arc::default()))).conforms();
}
