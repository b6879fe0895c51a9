//! Tests of the conformance suite itself: each planted fault fails a check, and the check names the
//! broken guarantee.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use estafette_net::conformance::{self, Subject};
use estafette_net::{Address, Link, Listener, Listening, Opened, Options, Place, Transport};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The byte at this position of every stream is altered.
    Damage(usize),
    /// A write that would block drops the data and reports success.
    Loss,
    /// A read returns less than there is, while `short_read_is_last` is true.
    Short,
    /// The peer never sees the end.
    NoEnd,
    /// Both directions end at once.
    BothEnd,
    /// A link counts as connected where nobody listens.
    Blind,
    /// A read returns an error at the peer's end.
    Error,
}

/// Abstract UNIX sockets with a fault.
struct Faulty(Fault);

fn at(address: &Address) -> io::Result<SocketAddr> {
    let Place::Name(name) = address.place() else { return Err(ErrorKind::InvalidInput.into()) };
    SocketAddr::from_abstract_name(name.as_bytes())
}

impl Transport for Faulty {
    fn connect(&self, address: &Address, _: &Options) -> io::Result<Opened> {
        match UnixStream::connect_addr(&at(address)?) {
            Err(_) if self.0 == Fault::Blind => Ok(Opened::Stream(FaultyLink::new(UnixStream::pair()?.0, self.0)?)),
            socket => Ok(Opened::Stream(FaultyLink::new(socket?, self.0)?)),
        }
    }

    fn listen(&self, address: &Address, _: &Options) -> io::Result<Listening> {
        let listener = UnixListener::bind_addr(&at(address)?)?;
        listener.set_nonblocking(true)?;
        Ok(Listening::Streams(Box::new(FaultyListener { listener, address: address.clone(), fault: self.0 })))
    }
}

struct FaultyListener {
    listener: UnixListener,
    address: Address,
    fault: Fault,
}

impl Listener for FaultyListener {
    fn source(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    fn accept(&self) -> io::Result<Box<dyn Link>> {
        Ok(FaultyLink::new(self.listener.accept()?.0, self.fault)?)
    }

    fn local(&self) -> Option<Address> {
        let Place::Name(name) = self.address.place() else { return None };
        format!("faulty://{name}").parse().ok()
    }
}

struct FaultyLink {
    socket: UnixStream,
    fault: Fault,
    /// How many bytes were read.
    read: AtomicUsize,
}

impl FaultyLink {
    fn new(socket: UnixStream, fault: Fault) -> io::Result<Box<FaultyLink>> {
        socket.set_nonblocking(true)?;
        Ok(Box::new(FaultyLink { socket, fault, read: AtomicUsize::new(0) }))
    }
}

impl Link for FaultyLink {
    fn source(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = if self.fault == Fault::Short { buffer.len().min(1000) } else { buffer.len() };
        let read = (&self.socket).read(&mut buffer[..most])?;
        let before = self.read.fetch_add(read, Ordering::Relaxed);
        match self.fault {
            Fault::Damage(place) if (before..before + read).contains(&place) => buffer[place - before] ^= 1,
            Fault::Error if read == 0 => return Err(ErrorKind::ConnectionReset.into()),
            _ => {}
        }
        Ok(read)
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match (&self.socket).write_vectored(parts) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && self.fault == Fault::Loss => {
                Ok(parts.iter().map(|part| part.len()).sum())
            }
            other => other,
        }
    }

    fn short_read_is_last(&self) -> bool {
        true
    }

    fn finish(&self) -> io::Result<()> {
        match self.fault {
            Fault::NoEnd => Ok(()),
            Fault::BothEnd => self.socket.shutdown(Shutdown::Both),
            _ => self.socket.shutdown(Shutdown::Write),
        }
    }
}

/// A fault, a check that finds it, and words in its message.
type Found = (Fault, fn(&Subject), &'static [&'static str]);

/// The message of a check that fails with this fault, or `None` if it passes.
fn said(fault: Fault, check: fn(&Subject), patience: Duration) -> Option<String> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = |scheme: &str| {
        let (process, next) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        format!("{scheme}://estafette-faults-{process}-{next}")
    };
    let subject = Subject::new("faulty", name).transport(Arc::new(Faulty(fault))).patience(patience);
    let said = catch_unwind(AssertUnwindSafe(|| check(&subject))).err()?;
    Some(*said.downcast::<String>().unwrap())
}

/// Checks that the check passes without the fault, and finds the fault.
fn is_found((fault, check, words): Found, patience: Duration) {
    assert_eq!(said(Fault::None, check, conformance::PATIENCE), None, "{words:?}");
    let said = said(fault, check, patience).unwrap_or_else(|| panic!("{fault:?} is not found: {words:?}"));
    assert!(said.starts_with("faulty"), "{fault:?}: {said}");
    assert!(words.iter().all(|word| said.contains(word)), "{fault:?}, {words:?}: {said}");
}

#[test]
fn each_fault_fails_a_check_that_names_the_guarantee() {
    let faults: [Found; _] = [
        (Fault::Damage(100_000), conformance::streams_keep_every_byte, &["every byte arrives", "from byte 100000 on"]),
        (Fault::Damage(2_000), conformance::messages_are_whole_and_in_order, &["messages arrive whole", "message 5 "]),
        (Fault::Short, conformance::streams_keep_every_byte, &["every byte arrives", "never "]),
        (Fault::Short, conformance::pieces_of_messages_are_put_together, &["piece by piece", "never "]),
        (Fault::Loss, conformance::streams_keep_every_byte, &["every byte arrives", "never "]),
        (Fault::Loss, conformance::slow_readers_cost_a_queue, &["costs its queue", "it takes everything"]),
        (Fault::Loss, conformance::paused_connections_lose_nothing, &["a paused connection", "it takes everything"]),
        (Fault::Loss, conformance::what_waits_is_written_before_closing, &["what waits is written", "none waits"]),
        (Fault::NoEnd, conformance::answers_may_be_longer_than_questions, &["other direction", "never "]),
        // By then the reply may have been rejected, or not.
        (Fault::BothEnd, conformance::answers_may_be_longer_than_questions, &["other direction"]),
        (Fault::BothEnd, conformance::ends_without_half_open_write_what_waits, &["after the peer has ended"]),
        (Fault::Blind, conformance::nobody_listening_is_told, &["nobody listens"]),
        (Fault::Error, conformance::nodes_that_are_gone_end_connections, &["a node that is gone", "ended by the peer"]),
    ];
    // These checks wait for something that never happens. A shorter patience gives the same message,
    // and they wait at the same time.
    let is_in_vain = |(fault, _, words): &Found| words.contains(&"never ") || *fault == Fault::BothEnd;
    let (in_vain, others): (Vec<Found>, Vec<Found>) = faults.into_iter().partition(is_in_vain);
    others.into_iter().for_each(|found| is_found(found, conformance::PATIENCE));
    thread::scope(|scope| {
        for found in in_vain {
            scope.spawn(move || is_found(found, Duration::from_secs(2)));
        }
    });
}
