//! Several threads of one process send to one consumer through one connection, as fast as they can.
//! No message may be delayed until a later message exists. Messages that are queued at the
//! connection may be sent together.

use super::rules::{Layout, Rules};
use crate::bound::{Cost, Costs};
use crate::case::{Case, Cell, Place};
use crate::refusal::{Inadmissible, RefusalKind, require_lossless, require_processes};
use crate::spec::{Scope, Spec};

/// The maximum number of threads that write to one connection. Their reports must fit in one
/// packet.
const MAX_WRITERS: usize = 256;

pub(super) struct Writers;

impl Rules for Writers {
    fn result(&self) -> &'static str {
        "a message of several writers takes"
    }

    fn has_several_parties(&self) -> bool {
        true
    }

    fn layout(&self) -> Layout {
        Layout::OneSender
    }

    fn processes(&self, _: &Cell) -> (usize, usize) {
        (1, 1)
    }

    fn default_producers(&self, _: Scope) -> usize {
        4
    }

    fn default_place(&self) -> Place {
        // Pinned writers share a core if there are only two. They would then run one after the other and hardly contend.
        Place::Free
    }

    fn admit(&self, spec: &Spec, case: &Case) -> Result<(), Inadmissible> {
        require_processes(case)?;
        require_lossless(
            spec,
            "the search for its highest rate without loss needs one stream per process: use the pattern stream or fan-in",
        )?;
        if case.producers > MAX_WRITERS {
            return Err(RefusalKind::Parties.because(format!(
                "the reports of all writers share one packet: choose at most {MAX_WRITERS} producers"
            )));
        }
        Ok(())
    }

    fn handling(&self, costs: &Costs) -> Option<(Cost, f64)> {
        costs.of_one_receiver()
    }
}
