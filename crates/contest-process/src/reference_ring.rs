//! The reference ring between processes, in a sealed memory file: the least code that passes a
//! message. The other mechanisms are compared with it.
//!
//! One row fills and verifies messages in place. The other copies them in and out, like a mechanism
//! whose messages begin and end in the program's own buffers. It shows the cost of the copies
//! alone.

use std::io::{self, ErrorKind};

use anyhow::Result;
use estafette_contest_common::reference_ring::{Closed, Consumer, Producer};
use estafette_contest_common::ring_ends::between_processes;
use estafette_measure::case::{Case, Role};
use estafette_measure::spec::{Ownership, Standing, Tier, Wait};
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};

/// `process/reference-ring`.
pub(super) struct ReferenceRing;

/// `process/reference-ring-copied`.
pub(super) struct Copied;

fn spec(name: &str, data: &str, ownership: Ownership) -> Spec {
    Spec::new(name)
        .kernel_copies(0)
        .version(env!("CARGO_PKG_VERSION"))
        .implementation(&format!("a ring of slots in a memfd, {data}; polled, or a futex"))
        .waits(&[Wait::Spin, Wait::Block])
        .ownership(ownership)
}

impl Mechanism for ReferenceRing {
    fn spec(&self) -> Spec {
        spec("process/reference-ring", "filled and checked in place", Ownership::Loaned).standing(Standing::Reference)
    }
}

impl Mechanism for Copied {
    fn spec(&self) -> Spec {
        spec("process/reference-ring-copied", "copied in and out", Ownership::Borrowed)
            .standing(Standing::Reference)
            .tier(Tier::Standard)
    }
}

impl Transport<Raw> for ReferenceRing {
    type Tx = Producer;
    type Rx = Consumer;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Producer, Consumer>> {
        between_processes(case, role, rendezvous, |producer| producer, |consumer| consumer)
    }
}

impl Transport<Raw> for Copied {
    type Tx = CopiedTx;
    type Rx = CopiedRx;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<CopiedTx, CopiedRx>> {
        let buffer = || vec![0; case.payload.len()];
        let tx = |producer| CopiedTx { producer, buffer: buffer() };
        between_processes(case, role, rendezvous, tx, |consumer| CopiedRx { consumer, buffer: buffer() })
    }
}

pub(super) struct CopiedTx {
    producer: Producer,
    buffer: Vec<u8>,
}

impl CopiedTx {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> Result<(), Closed> {
        source.fill(&mut self.buffer);
        let mut slot = self.producer.wait_slot()?;
        slot.copy_from_slice(&self.buffer);
        slot.commit();
        Ok(())
    }
}

impl Tx for CopiedTx {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        self.send(source).map_err(|_| ErrorKind::BrokenPipe.into())
    }
}

pub(super) struct CopiedRx {
    consumer: Consumer,
    buffer: Vec<u8>,
}

impl CopiedRx {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> Result<(), Closed> {
        let message = self.consumer.wait_message()?;
        self.buffer.copy_from_slice(&message);
        message.release();
        verifier.bytes(&self.buffer);
        Ok(())
    }
}

impl Rx for CopiedRx {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.recv(verifier).map_err(|_| ErrorKind::UnexpectedEof.into())
    }
}
