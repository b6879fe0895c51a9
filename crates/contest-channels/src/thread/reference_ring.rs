//! The reference ring between threads: a minimal implementation with which the others are compared.

use anyhow::Result;
use estafette_contest_common::reference_ring::{Consumer, Producer, heap};
use estafette_contest_common::ring_ends::{shape, wait};
use estafette_measure::case::{Case, PayloadKind, Role};
use estafette_measure::spec::{Ownership, Standing, Wait};
use estafette_measure::{Ends, Mechanism, Raw, Rendezvous, Spec, Transport};

pub(super) struct ReferenceRing;

impl Mechanism for ReferenceRing {
    fn spec(&self) -> Spec {
        Spec::new("thread/reference-ring")
            .version(env!("CARGO_PKG_VERSION"))
            .implementation("a ring of slots in memory, filled and checked in place; polled, or a futex")
            .waits(&[Wait::Spin, Wait::Block])
            .payloads(&[PayloadKind::U64, PayloadKind::Bytes])
            .ownership(Ownership::Loaned)
            .standing(Standing::Reference)
    }
}

impl Transport<Raw> for ReferenceRing {
    type Tx = Producer;
    type Rx = Consumer;

    fn open(&self, case: &Case, _: Role, _: &mut Rendezvous) -> Result<Ends<Producer, Consumer>> {
        Ends::pair(case, || Ok(heap(shape(case)?, wait(case))?))
    }
}
