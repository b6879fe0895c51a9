//! The descriptors of an end's rings and bells, opened one by one in the order that
//! [`control::Start`] documents.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::{Context, Result};
use estafette_ipc::group::{BellFile, Interrupt, Member, Publisher, RingFile};
use estafette_ipc::{OpenError, WaitMode};

use crate::control;
use crate::function::Output;

/// The remaining descriptors.
pub(crate) struct Descriptors(std::vec::IntoIter<OwnedFd>);

impl Descriptors {
    pub(crate) fn new(descriptors: Vec<OwnedFd>) -> Descriptors {
        Descriptors(descriptors.into_iter())
    }

    pub(crate) fn next(&mut self) -> Result<OwnedFd> {
        self.0.next().context("there are too few descriptors")
    }

    fn ring(&mut self) -> Result<RingFile> {
        Ok(RingFile::from_fd(self.next()?)?)
    }

    /// Opens the receiving end: a bell and its rings.
    pub(crate) fn member(
        &mut self,
        input: &control::Input,
        wait: WaitMode,
        interrupt: &Arc<Interrupt>,
    ) -> Result<Member> {
        let bell = BellFile::from_fd(self.next()?)?;
        let rings: Vec<_> = (0..input.rings).map(|_| self.ring()).collect::<Result<_>>()?;
        let member = Member::open(rings, &bell, input.member, wait, Arc::clone(interrupt))?;
        Ok(if input.copies { member.with_copies() } else { member })
    }

    /// Opens the sending ends of one topic: a ring and a bell for each group that reads it.
    pub(crate) fn output(
        &mut self,
        output: &control::Output,
        wait: WaitMode,
        interrupt: &Arc<Interrupt>,
    ) -> Result<Output> {
        let (mut groups, mut ended_groups) = (Vec::new(), 0);
        for _ in 0..output.groups {
            let ring = self.ring()?;
            let bell = BellFile::from_fd(self.next()?)?;
            match Publisher::open(&ring, &bell, wait, Arc::clone(interrupt)) {
                Ok(publisher) => groups.push(publisher),
                // All readers of the group have ended.
                Err(OpenError::Closed) => ended_groups += 1,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Output { max_message: output.max_message, overflow: output.overflow, groups, ended_groups })
    }
}
