//! The limit ring between processes, in a sealed memory file: the least that can be written, for the others to be held
//! against.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Ownership, Standing, Wait};
use estafette_measure::{Carries, Ends, Mechanism, Raw, Rendezvous, Spec};

use crate::limit_ring::{Consumer, Producer, create_shared, open_consumer, open_producer};
use crate::ring_ends::{shape, wait};

pub(super) struct LimitRing;

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
        let answers = case.pattern == Pattern::PingPong;
        if let Role::Consumer(index) = role {
            let there = create_shared(shape, wait)?;
            let rx = open_consumer(&there, shape, wait)?;
            if !answers {
                meet.offer_descriptors("ring", &[there.as_fd()])?;
                return Ok(Ends::consumer(index, rx));
            }
            let back = create_shared(shape, wait)?;
            meet.offer_descriptors("rings", &[there.as_fd(), back.as_fd()])?;
            return Ok(Ends::both(role, open_producer(&back, shape, wait)?, rx));
        }
        if answers {
            let [there, back] = meet.want_descriptors("rings")?;
            return Ok(Ends::both(role, open_producer(&there, shape, wait)?, open_consumer(&back, shape, wait)?));
        }
        let [ring]: [OwnedFd; 1] = meet.want_descriptors("ring")?;
        Ok(Ends::producer(0, open_producer(&ring, shape, wait)?))
    }
}
