//! A pipeline whose sender reports one message more than it has sent.

use anyhow::Result;
use estafette_contest::sandbox::NativePair;
use estafette_measure::case::{Case, Role};
use estafette_measure::{Mechanism, PipelineEnd, Rendezvous, Spec};

/// The mechanism `sandbox/short`.
pub(crate) struct Short;

impl Mechanism for Short {
    fn spec(&self) -> Spec {
        Spec { name: String::from("sandbox/short"), ..NativePair.spec() }
    }

    fn roles(&self, case: &Case) -> Vec<Role> {
        NativePair.roles(case)
    }

    fn pipeline(
        &self,
        case: &Case,
        role: Role,
        messages: u64,
        rendezvous: &mut Rendezvous,
    ) -> Result<Vec<PipelineEnd>> {
        match role {
            Role::Producer(_) => {
                NativePair.pipeline(case, role, messages - 1, rendezvous)?;
                Ok(vec![PipelineEnd::sender(messages + 1)])
            }
            _ => NativePair.pipeline(case, role, messages, rendezvous),
        }
    }
}
