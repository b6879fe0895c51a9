//! The limit ring between two processes, with no sandbox between: what a hop through a function is
//! compared with.

use anyhow::Result;
use estafette_contest_common::limit_ring::{Consumer, Producer};
use estafette_contest_common::ring_ends::between_processes;
use estafette_measure::case::{Case, Role};
use estafette_measure::spec::{Ownership, Standing, Wait};
use estafette_measure::{Carries, Ends, Mechanism, Raw, Rendezvous, Spec};

/// `sandbox/limit-ring`.
pub(super) struct NoSandbox;

impl Mechanism for NoSandbox {
    fn spec(&self) -> Spec {
        Spec::new("sandbox/limit-ring")
            .version(env!("CARGO_PKG_VERSION"))
            .stands_on("the ring of `process/limit-ring` from end to end, no function between")
            .waits(&[Wait::Spin, Wait::Block])
            .ownership(Ownership::Loaned)
            .standing(Standing::Limit)
    }
}

impl Carries<Raw> for NoSandbox {
    type Tx = Producer;
    type Rx = Consumer;

    fn open(&self, case: &Case, role: Role, meet: &mut Rendezvous) -> Result<Ends<Producer, Consumer>> {
        between_processes(case, role, meet, |producer| producer, |consumer| consumer)
    }
}
