//! The limit ring between processes, in a sealed memory file: the least code that passes a message. The other mechanisms
//! are compared with it.
//!
//! One row fills and checks messages where they lie. The other copies them in and out, as a mechanism must whose messages
//! begin and end in buffers of the program: it shows what the copies alone cost.

use std::future::{Future, ready};
use std::io::{self, ErrorKind};

use anyhow::Result;
use estafette_contest_common::limit_ring::{Closed, Consumer, Producer};
use estafette_contest_common::ring_ends::between_processes;
use estafette_measure::case::{Case, Role};
use estafette_measure::spec::{Joins, Ownership, Standing, Wait};
use estafette_measure::{Carries, Ends, Generator, Mechanism, Raw, Rendezvous, Rx, Spec, Tx, Verifier};

/// `process/limit-ring`.
pub(super) struct LimitRing;

/// `process/limit-ring-copied`.
pub(super) struct Copied;

fn spec(name: &str, data: &str, ownership: Ownership) -> Spec {
    Spec::new(name)
        .version(env!("CARGO_PKG_VERSION"))
        .stands_on(&format!("a ring of slots in a memfd, {data}; polled, or a futex"))
        .waits(&[Wait::Spin, Wait::Block])
        .ownership(ownership)
}

impl Mechanism for LimitRing {
    fn spec(&self) -> Spec {
        spec("process/limit-ring", "filled and checked in place", Ownership::Loaned).standing(Standing::Limit)
    }
}

impl Mechanism for Copied {
    fn spec(&self) -> Spec {
        spec("process/limit-ring-copied", "copied in and out", Ownership::Borrowed).joins(Joins::Standard)
    }
}

impl Carries<Raw> for LimitRing {
    type Tx = Producer;
    type Rx = Consumer;

    fn open(&self, case: &Case, role: Role, meet: &mut Rendezvous) -> Result<Ends<Producer, Consumer>> {
        between_processes(case, role, meet, |producer| producer, |consumer| consumer)
    }
}

impl Carries<Raw> for Copied {
    type Tx = CopiedTx;
    type Rx = CopiedRx;

    fn open(&self, case: &Case, role: Role, meet: &mut Rendezvous) -> Result<Ends<CopiedTx, CopiedRx>> {
        let buffer = || vec![0; case.payload.len()];
        let tx = |producer| CopiedTx { producer, buffer: buffer() };
        between_processes(case, role, meet, tx, |consumer| CopiedRx { consumer, buffer: buffer() })
    }
}

pub(super) struct CopiedTx {
    producer: Producer,
    buffer: Vec<u8>,
}

impl CopiedTx {
    #[inline(always)]
    fn send(&mut self, next: &mut Generator) -> Result<(), Closed> {
        next.fill(&mut self.buffer);
        let mut slot = self.producer.wait_slot()?;
        slot.copy_from_slice(&self.buffer);
        slot.commit();
        Ok(())
    }
}

impl Tx for CopiedTx {
    #[inline(always)]
    fn put(&mut self, next: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.send(next).map_err(|_| ErrorKind::BrokenPipe.into()))
    }
}

pub(super) struct CopiedRx {
    consumer: Consumer,
    buffer: Vec<u8>,
}

impl CopiedRx {
    #[inline(always)]
    fn receive(&mut self, seen: &mut Verifier) -> Result<(), Closed> {
        let message = self.consumer.wait_message()?;
        self.buffer.copy_from_slice(&message);
        message.release();
        seen.bytes(&self.buffer);
        Ok(())
    }
}

impl Rx for CopiedRx {
    #[inline(always)]
    fn get(&mut self, seen: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.receive(seen).map_err(|_| ErrorKind::UnexpectedEof.into()))
    }
}
