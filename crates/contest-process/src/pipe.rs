//! An anonymous pipe, blocking, with the kernel's own capacity.

use std::io::pipe;
use std::os::fd::OwnedFd;

use anyhow::Result;
use estafette_contest_common::byte_stream::{PipeEnd, Reading, Writing};
use estafette_contest_common::capacity;
use estafette_contest_common::fd_passing::{self, DescriptorChannel};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::{Ends, Mechanism, Raw, Rendezvous, Spec, Transport};

/// POSIX: a write of up to this many bytes is not interleaved with writes of other processes.
const PIPE_BUF: usize = 4096;

/// `process/pipe`.
#[derive(Debug)]
pub struct Pipe;

impl Mechanism for Pipe {
    fn spec(&self) -> Spec {
        Spec::new("process/pipe")
            .kernel_copies(2)
            .implementation("pipe(2), write and read")
            .patterns(&[
                Pattern::PingPong,
                Pattern::Stream,
                Pattern::Duplex,
                Pattern::FanIn,
                Pattern::RequestReply,
                Pattern::PubSub,
            ])
            .max_producers(None)
    }

    fn supports(&self, case: &Case) -> Result<(), String> {
        keeps_whole(case)
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        effective_capacity(case)
    }
}

/// Returns how many of the case's messages a pipe accepts while nobody reads.
pub(super) fn effective_capacity(case: &Case) -> Option<u64> {
    let (_read, write) = pipe().ok()?;
    capacity::written(write, case.payload.len())
}

/// Checks that a pipe does not interleave the case's messages. A longer message of one of several
/// writers may be split.
pub(super) fn keeps_whole(case: &Case) -> Result<(), String> {
    let multi_writer = matches!(case.pattern, Pattern::FanIn | Pattern::RequestReply) && case.producers > 1;
    if multi_writer && case.payload.len() > PIPE_BUF {
        return Err(format!("a pipe keeps the messages of several writers whole only up to {PIPE_BUF} bytes"));
    }
    Ok(())
}

impl Transport<Raw> for Pipe {
    type Tx = Writing<PipeEnd>;
    type Rx = Reading<PipeEnd>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let len = case.payload.len();
        let forward =
            || pipe().map(|(read, write)| ([write.into()], Reading::new(PipeEnd::new(read), len))).map_err(Into::into);
        let reply =
            || pipe().map(|(read, write)| ([read.into()], Writing::new(PipeEnd::new(write), len))).map_err(Into::into);
        if case.pattern == Pattern::PubSub {
            let each = |theirs: Vec<OwnedFd>| Ok(Writing::to_each(theirs.into_iter().map(PipeEnd::new), len));
            return fd_passing::open_pub_sub(case, role, rendezvous, forward, each);
        }
        let tx = |[forward]: [OwnedFd; 1]| Ok(Writing::new(PipeEnd::new(forward), len));
        let rx = |[reply]: [OwnedFd; 1]| Ok(Reading::new(PipeEnd::new(reply), len));
        DescriptorChannel { forward, reply, tx, rx }.open(case, role, rendezvous)
    }
}
