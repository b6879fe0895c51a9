//! The limit ring between two processes, with no sandbox between: what a hop through a function is
//! compared with.

use anyhow::Result;
use estafette_measure::case::{Case, Role};
use estafette_measure::{Carries, Ends, Mechanism, Raw, Rendezvous, Spec};

use crate::limit_ring::{Consumer, Producer};
use crate::process::limit_ring::LimitRing;

/// `sandbox/limit-ring`.
pub(super) struct NoSandbox;

impl Mechanism for NoSandbox {
    fn spec(&self) -> Spec {
        let ring = LimitRing.spec();
        Spec { scope: estafette_measure::spec::Scope::Sandbox, name: String::from("sandbox/limit-ring"), ..ring }
            .stands_on("the ring of `process/limit-ring` from end to end, no function between")
    }
}

impl Carries<Raw> for NoSandbox {
    type Tx = Producer;
    type Rx = Consumer;

    fn open(&self, case: &Case, role: Role, meet: &mut Rendezvous) -> Result<Ends<Producer, Consumer>> {
        LimitRing.open(case, role, meet)
    }
}
