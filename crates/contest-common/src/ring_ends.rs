//! The reference ring's ends as ends of a mechanism. Messages are filled and verified in place.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

use anyhow::Result;
use estafette_measure::case::{Case, Role};
use estafette_measure::spec::Wait as WaitMode;
use estafette_measure::{Ends, Generator, Rendezvous, Rx, Tx, Verifier};

use crate::fd_passing::DescriptorChannel;
use crate::reference_ring::{Closed, Consumer, Producer, Shape, Wait, create_shared, open_consumer, open_producer};

/// The highest size of a ring in bytes, unless that leaves fewer than [`LEAST_SLOTS`] slots. A ring
/// larger than the shared cache would measure memory. In a much smaller one, each end soon needs
/// the cache lines that the other has just touched.
const MOST_BYTES: usize = 2 << 20;
const LEAST_SLOTS: usize = 4;

/// Returns the ring's shape for a case: the requested capacity in messages, up to what fits into
/// the caches.
///
/// # Errors
///
/// If the case's messages are empty, or too long for a ring.
pub fn shape(case: &Case) -> Result<Shape> {
    let slot = case.payload.len();
    let slots = case.capacity.min((MOST_BYTES / slot).max(LEAST_SLOTS));
    Ok(Shape::new(slot, slots)?)
}

/// Returns how the ends wait in this case.
pub fn wait(case: &Case) -> Wait {
    match case.wait {
        WaitMode::Spin => Wait::Spin,
        _ => Wait::Futex,
    }
}

/// Opens a party's ends of rings between processes, in sealed memory files. `tx` and `rx` wrap them
/// in the row's own types.
///
/// # Errors
///
/// If a ring cannot be created or opened, or the other party has exited.
pub fn between_processes<T, R>(
    case: &Case,
    role: Role,
    rendezvous: &mut Rendezvous,
    tx: impl Fn(Producer) -> T,
    rx: impl Fn(Consumer) -> R,
) -> Result<Ends<T, R>> {
    let (shape, wait) = (shape(case)?, wait(case));
    let forward = || -> Result<([OwnedFd; 1], R)> {
        let ring = create_shared(shape, wait)?;
        let consumer = open_consumer(&ring, shape, wait)?;
        Ok(([ring], rx(consumer)))
    };
    let reply = || -> Result<([OwnedFd; 1], T)> {
        let ring = create_shared(shape, wait)?;
        let producer = open_producer(&ring, shape, wait)?;
        Ok(([ring], tx(producer)))
    };
    let tx = |[ring]: [OwnedFd; 1]| Ok(tx(open_producer(&ring, shape, wait)?));
    let rx = |[ring]: [OwnedFd; 1]| Ok(rx(open_consumer(&ring, shape, wait)?));
    DescriptorChannel { forward, reply, tx, rx }.open(case, role, rendezvous)
}

// The ends do their work when they are called, not when the future is polled. The compiler inlines
// a plain function into the driver's loop, but not always the body of an async one. That call took
// half as long as the message.

impl Tx for Producer {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        send(self, source).map_err(|_| ErrorKind::BrokenPipe.into())
    }
}

#[inline(always)]
fn send(producer: &mut Producer, source: &mut Generator) -> Result<(), Closed> {
    let mut slot = producer.wait_slot()?;
    source.fill(&mut slot);
    slot.commit();
    Ok(())
}

impl Rx for Consumer {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        recv(self, verifier).map_err(|_| ErrorKind::UnexpectedEof.into())
    }
}

#[inline(always)]
fn recv(consumer: &mut Consumer, verifier: &mut Verifier) -> Result<(), Closed> {
    let message = consumer.wait_message()?;
    verifier.bytes(&message);
    message.release();
    Ok(())
}
