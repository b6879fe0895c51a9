//! The reference ring between two processes without a sandbox: the comparison for a hop through a
//! function.

use anyhow::Result;
use estafette_contest_common::reference_ring::{Consumer, Producer};
use estafette_contest_common::ring_ends::between_processes;
use estafette_measure::case::{Case, Role};
use estafette_measure::spec::{Ownership, Standing, Wait};
use estafette_measure::{Ends, Mechanism, Raw, Rendezvous, Spec, Transport};

/// `sandbox/reference-ring`.
pub(super) struct NoSandbox;

impl Mechanism for NoSandbox {
    fn spec(&self) -> Spec {
        Spec::new("sandbox/reference-ring")
            .version(env!("CARGO_PKG_VERSION"))
            .implementation("the ring of `process/reference-ring` from end to end, no function between")
            .waits(&[Wait::Spin, Wait::Block])
            .ownership(Ownership::Loaned)
            .standing(Standing::Reference)
    }
}

impl Transport<Raw> for NoSandbox {
    type Tx = Producer;
    type Rx = Consumer;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Producer, Consumer>> {
        between_processes(case, role, rendezvous, |producer| producer, |consumer| consumer)
    }
}
