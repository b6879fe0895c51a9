//! Mechanisms of another build of this program, measured beside this build's.
//!
//! The roles of such an entry run in the other program. Both builds take turns in the same slices,
//! so a difference of a few percent is found that two records of different days would not show.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};

use crate::case::{Case, Role};
use crate::child;
use crate::context::Ctx;
use crate::entry::{Entry, Program};
use crate::protocol::Report;
use crate::spec::Spec;

/// What the names of the other build's mechanisms end with.
pub const SUFFIX: &str = "@base";

/// A mechanism of another build. Its name is that of this build's with [`SUFFIX`].
pub struct OtherBuild {
    entry: Arc<dyn Entry>,
    spec: Spec,
    program: PathBuf,
}

impl OtherBuild {
    /// The mechanism `entry` of this build, as the other build `program` has it. The description is
    /// this build's. An instance fails if the other build does not have the mechanism, or if it
    /// speaks another version of the protocol between coordinator and children.
    pub fn new(entry: Arc<dyn Entry>, program: PathBuf) -> OtherBuild {
        let name = format!("{}{SUFFIX}", entry.spec().name);
        OtherBuild { spec: Spec { name, ..entry.spec().clone() }, entry, program }
    }

    /// The case of this build.
    fn own_case(&self, case: &Case) -> Case {
        Case { mechanism: self.entry.spec().name.clone(), ..case.clone() }
    }
}

impl Entry for OtherBuild {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn supports(&self, case: &Case) -> Result<(), String> {
        let case = self.own_case(case);
        let is_own_program = |role: &Role| self.entry.program(&case, *role).is_ok_and(|program| program.is_some());
        if self.entry.roles(&case).iter().any(is_own_program) {
            return Err(String::from("it is a program of its own, which does not depend on the build"));
        }
        self.entry.supports(&case)
    }

    fn roles(&self, case: &Case) -> Vec<Role> {
        self.entry.roles(&self.own_case(case))
    }

    fn run(&self, case: &Case, role: Role, _: &mut Ctx) -> Result<Report> {
        bail!("{role} of {} runs in another program", case.mechanism)
    }

    fn check_available(&self) -> Result<(), String> {
        self.entry.check_available()
    }

    fn can_pause(&self) -> bool {
        self.entry.can_pause()
    }

    fn program(&self, _: &Case, _: Role) -> Result<Option<Program>> {
        let arguments = vec![child::ARGUMENT.to_owned()];
        Ok(Some(Program { path: self.program.clone(), arguments }))
    }

    fn name_in_program(&self) -> &str {
        self.entry.name_in_program()
    }
}
