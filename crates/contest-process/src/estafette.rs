//! The channel of estafette-ipc: a ring of records in a sealed memfd. Each end notices the death of
//! the other.
//!
//! In one row a message is filled and verified in place, in the other it is copied in and out.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

use anyhow::{Context, Result};
use estafette_contest_common::fd_passing::DescriptorChannel;
use estafette_contest_common::ring_ends;
use estafette_ipc::{Options, Receiver, ReceiverHandle, RecvError, SendError, Sender, SenderHandle, WaitMode, channel};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Ownership, Tier, Wait};
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};

/// Messages are filled and verified in place.
pub(super) struct Loaned;

/// Messages are copied in and out.
pub(super) struct Copied;

fn spec(name: &str, data: &str, ownership: Ownership) -> Spec {
    Spec::new(name)
        .kernel_copies(0)
        .version(env!("CARGO_PKG_VERSION"))
        .implementation(&format!("estafette-ipc: a ring of records in a memfd, {data}; peer death is noticed"))
        .waits(&[Wait::Spin, Wait::Adaptive, Wait::Block])
        .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex])
        .ownership(ownership)
}

impl Mechanism for Loaned {
    fn spec(&self) -> Spec {
        spec("process/estafette", "filled and checked in place", Ownership::Loaned)
    }
}

impl Mechanism for Copied {
    fn spec(&self) -> Spec {
        spec("process/estafette-copied", "copied in and out", Ownership::Borrowed).tier(Tier::Overview)
    }
}

/// Returns options for a ring with as many messages as the reference ring has slots.
fn options(case: &Case) -> Result<Options> {
    let wait = match case.wait {
        Wait::Spin => WaitMode::Spin,
        Wait::Adaptive => WaitMode::Adaptive,
        Wait::Block => WaitMode::Block,
    };
    Ok(Options::new().capacity(ring_ends::shape(case)?.bytes()).wait(wait))
}

/// Opens a party's ends. `tx` and `rx` wrap them in the row's own types.
fn open<T, R>(
    case: &Case,
    role: Role,
    rendezvous: &mut Rendezvous,
    tx: impl Fn(Sender) -> T,
    rx: impl Fn(Receiver) -> R,
) -> Result<Ends<T, R>> {
    let options = options(case)?;
    let forward = || -> Result<([OwnedFd; 2], R)> {
        let (sender, receiver) = channel(&options)?;
        Ok((sender.into_fds(), rx(receiver.open()?)))
    };
    let reply = || -> Result<([OwnedFd; 2], T)> {
        let (sender, receiver) = channel(&options)?;
        Ok((receiver.into_fds(), tx(sender.open()?)))
    };
    let tx = |fds: [OwnedFd; 2]| {
        Ok(tx(SenderHandle::from_fds(fds).and_then(SenderHandle::open).context("the sending end")?))
    };
    let rx = |fds: [OwnedFd; 2]| {
        Ok(rx(ReceiverHandle::from_fds(fds).and_then(ReceiverHandle::open).context("the receiving end")?))
    };
    DescriptorChannel { forward, reply, tx, rx }.open(case, role, rendezvous)
}

impl Transport<Raw> for Loaned {
    type Tx = LoanedTx;
    type Rx = LoanedRx;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<LoanedTx, LoanedRx>> {
        let len = case.payload.len();
        open(case, role, rendezvous, |sender| LoanedTx { sender, len }, LoanedRx)
    }
}

impl Transport<Raw> for Copied {
    type Tx = CopiedTx;
    type Rx = CopiedRx;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<CopiedTx, CopiedRx>> {
        let buffer = || vec![0; case.payload.len()];
        let tx = |sender| CopiedTx { sender, buffer: buffer() };
        open(case, role, rendezvous, tx, |receiver| CopiedRx { receiver, buffer: buffer() })
    }
}

fn send_error(error: SendError) -> io::Error {
    io::Error::new(ErrorKind::BrokenPipe, error)
}

fn recv_error(error: RecvError) -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, error)
}

pub(super) struct LoanedTx {
    sender: Sender,
    len: usize,
}

// Like the ends of the reference ring, these ends do their work when they are called, not when the
// future is polled.

impl Tx for LoanedTx {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        self.sender.loan(self.len).map_err(send_error).map(|mut loan| {
            source.fill(&mut loan);
            loan.send();
        })
    }
}

pub(super) struct LoanedRx(Receiver);

impl Rx for LoanedRx {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.0.recv().map_err(recv_error).map(|message| {
            verifier.bytes(&message);
            message.release();
        })
    }
}

pub(super) struct CopiedTx {
    sender: Sender,
    buffer: Vec<u8>,
}

impl Tx for CopiedTx {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        source.fill(&mut self.buffer);
        self.sender.send(&self.buffer).map_err(send_error)
    }
}

pub(super) struct CopiedRx {
    receiver: Receiver,
    buffer: Vec<u8>,
}

impl Rx for CopiedRx {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.receiver.recv().map_err(recv_error).map(|message| {
            let buffer = &mut self.buffer[..message.len()];
            buffer.copy_from_slice(&message);
            message.release();
            verifier.bytes(buffer);
        })
    }
}
