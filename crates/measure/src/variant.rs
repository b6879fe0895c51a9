//! Variants: mechanisms whose roles run in another build of this program, or in this one with
//! another allocator, measured beside the plain ones.
//!
//! Variants and plain mechanisms take turns in the same slices. So a difference of a few percent is
//! found that two records of different days would not show.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};

use crate::case::{Case, Role};
use crate::child;
use crate::context::Ctx;
use crate::entry::{Entry, Program};
use crate::mechanism::Mechanism;
use crate::protocol::Report;
use crate::spec::Spec;

/// What the name of a variant has between the name of the mechanism and that of the variant.
const SEPARATOR: char = '@';
/// What the names of another build's mechanisms end with.
pub const BASE: &str = "@base";

/// The name of the mechanism of which this is a variant; the name itself if it is none.
pub fn plain_name(name: &str) -> &str {
    name.split_once(SEPARATOR).map_or(name, |(plain, _)| plain)
}

/// The name of the variant in the name of a mechanism, if it is one.
pub fn variant_name(name: &str) -> Option<&str> {
    name.split_once(SEPARATOR).map(|(_, variant)| variant)
}

/// A mechanism whose roles run in a certain program.
pub struct Variant {
    entry: Arc<dyn Entry>,
    spec: Spec,
    program: Program,
}

impl Variant {
    /// The mechanism `entry` as another build, the file `program`, has it. Its name ends with
    /// [`BASE`]. The description is this build's. An instance fails if the other build does not
    /// have the mechanism, or if it speaks another version of the protocol between coordinator and
    /// children.
    pub fn of_other_build(entry: Arc<dyn Entry>, program: PathBuf) -> Variant {
        let name = format!("{}{BASE}", entry.spec().name);
        let program = Program::new(program, [child::ARGUMENT]);
        Variant { spec: Spec { name, ..entry.spec().clone() }, entry, program }
    }

    /// The mechanism `entry` in this program, started with a variable in its environment. Its name
    /// is `NAME@variant`.
    pub fn with_environment(entry: Arc<dyn Entry>, variant: &str, variable: (String, String)) -> Variant {
        let name = format!("{}{SEPARATOR}{variant}", entry.spec().name);
        let program = Program { environment: vec![variable], ..Program::own([child::ARGUMENT]) };
        Variant { spec: Spec { name, ..entry.spec().clone() }, entry, program }
    }

    /// Whether a role of this case runs in a program that is not a build of this one.
    fn has_own_program(&self, case: &Case) -> bool {
        let is_own_program = |role: Role| self.entry.program(case, role).is_ok_and(|program| program.is_some());
        self.entry.mechanism().roles(case).into_iter().any(is_own_program)
    }
}

impl Entry for Variant {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn mechanism(&self) -> &dyn Mechanism {
        self.entry.mechanism()
    }

    fn supports(&self, case: &Case) -> Result<(), String> {
        if self.has_own_program(case) {
            return Err(String::from(
                "it is a program of its own: neither the build nor the allocator of this one changes it",
            ));
        }
        self.entry.supports(case)
    }

    fn run(&self, case: &Case, role: Role, _: &mut Ctx) -> Result<Report> {
        bail!("{role} of {} runs in another program", case.mechanism)
    }

    fn can_pause(&self) -> bool {
        self.entry.can_pause()
    }

    fn program(&self, _: &Case, _: Role) -> Result<Option<Program>> {
        Ok(Some(self.program.clone()))
    }

    fn name_in_program(&self) -> &str {
        self.entry.name_in_program()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_has_the_name_of_its_mechanism() {
        assert_eq!(plain_name("process/pipe"), "process/pipe");
        assert_eq!(plain_name("process/pipe@base"), "process/pipe");
        assert_eq!(variant_name("process/pipe"), None);
        assert_eq!(variant_name("process/pipe@base"), Some("base"));
    }
}
