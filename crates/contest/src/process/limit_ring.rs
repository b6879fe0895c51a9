//! The limit ring between processes, in a sealed memory file: the least that can be written, for the others to be held
//! against.

use std::os::fd::OwnedFd;

use anyhow::Result;
use estafette_measure::case::{Case, Role};
use estafette_measure::spec::{Ownership, Standing, Wait};
use estafette_measure::{Carries, Ends, Mechanism, Raw, Rendezvous, Spec};

use super::handed;
use crate::limit_ring::{Consumer, Producer, create_shared, open_consumer, open_producer};
use crate::ring_ends::{shape, wait};

/// `process/limit-ring`, and what `sandbox/limit-ring` is made of.
pub(crate) struct LimitRing;

impl Mechanism for LimitRing {
    fn spec(&self) -> Spec {
        Spec::new("process/limit-ring")
            .version(env!("CARGO_PKG_VERSION"))
            .stands_on("a ring of slots in a memfd, filled and checked in place; polled, or a futex")
            .waits(&[Wait::Spin, Wait::Block])
            .ownership(Ownership::Loaned)
            .standing(Standing::Limit)
    }
}

impl Carries<Raw> for LimitRing {
    type Tx = Producer;
    type Rx = Consumer;

    fn open(&self, case: &Case, role: Role, meet: &mut Rendezvous) -> Result<Ends<Producer, Consumer>> {
        let (shape, wait) = (shape(case)?, wait(case));
        let make = || create_shared(shape, wait).map_err(anyhow::Error::from);
        let there =
            || make().and_then(|ring| open_consumer(&ring, shape, wait).map(|rx| (ring, rx)).map_err(Into::into));
        let back =
            || make().and_then(|ring| open_producer(&ring, shape, wait).map(|tx| (ring, tx)).map_err(Into::into));
        let tx = |ring: OwnedFd| open_producer(&ring, shape, wait).map_err(Into::into);
        let rx = |ring: OwnedFd| open_consumer(&ring, shape, wait).map_err(Into::into);
        handed::open(case, role, meet, there, back, tx, rx)
    }
}
