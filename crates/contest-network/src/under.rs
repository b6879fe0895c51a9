//! Lists network mechanisms in the comparisons between processes, too: the same mechanism between
//! the same two processes.

use anyhow::Result;
use estafette_measure::case::{Case, Role};
use estafette_measure::spec::{Scope, Tier};
use estafette_measure::usage::Usage;
use estafette_measure::{Ends, Mechanism, Raw, Rendezvous, Spec, Transport};

/// A mechanism under its name in the scope `process`, with its tier there.
pub(super) struct Under<M>(pub(super) M, pub(super) Tier);

impl<M: Mechanism> Mechanism for Under<M> {
    fn spec(&self) -> Spec {
        let spec = self.0.spec();
        let name = spec.name.split_once('/').map_or(&*spec.name, |(_, name)| name);
        Spec {
            name: format!("{}/{name}", Scope::Process),
            scope: Scope::Process,
            tier: self.1,
            between_hosts: false,
            ..spec
        }
    }
    fn supports(&self, case: &Case) -> Result<(), String> {
        self.0.supports(case)
    }
    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        self.0.effective_capacity(case)
    }
    fn roles(&self, case: &Case) -> Vec<Role> {
        self.0.roles(case)
    }
    fn broker(&self, case: &Case, rendezvous: &mut Rendezvous) -> Result<Usage> {
        self.0.broker(case, rendezvous)
    }
    fn server(&self) -> Option<String> {
        self.0.server()
    }
    fn check_available(&self) -> Result<(), String> {
        self.0.check_available()
    }
}

impl<M: Transport<Raw>> Transport<Raw> for Under<M> {
    type Tx = M::Tx;
    type Rx = M::Rx;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<M::Tx, M::Rx>> {
        self.0.open(case, role, rendezvous)
    }
}
