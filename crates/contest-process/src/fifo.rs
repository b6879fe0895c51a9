//! Named pipes in the instance's directory, blocking, with the kernel's own capacity.

use std::fs::OpenOptions;
use std::path::Path;

use anyhow::{Context, Result};
use estafette_contest_common::byte_stream::{PipeEnd, Reading, Writing};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::Tier;
use estafette_measure::{Ends, Mechanism, Raw, Rendezvous, Spec, Transport};
use rustix::fs::{CWD, Mode, mkfifoat};

use super::pipe;

pub(super) struct Fifo;

impl Mechanism for Fifo {
    fn spec(&self) -> Spec {
        Spec::new("process/fifo")
            .kernel_copies(2)
            .implementation("mkfifo(3), write and read")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex, Pattern::FanIn])
            .max_producers(None)
            .tier(Tier::Standard)
    }

    fn supports(&self, case: &Case) -> Result<(), String> {
        pipe::keeps_whole(case)
    }

    /// A named pipe is the same kernel object as a pipe.
    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        pipe::effective_capacity(case)
    }
}

impl Transport<Raw> for Fifo {
    type Tx = Writing<PipeEnd>;
    type Rx = Reading<PipeEnd>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let len = case.payload.len();
        let has_reply = case.pattern.is_bidirectional();
        let (forward, reply) = (rendezvous.dir().join("forward"), rendezvous.dir().join("reply"));
        // Each `open` blocks until the other side opens the pipe, so both sides open the pipes in
        // the same order.
        let write = |path: &Path| -> Result<_> { Ok(Writing::new(open(OpenOptions::new().write(true), path)?, len)) };
        let read = |path: &Path| -> Result<_> { Ok(Reading::new(open(OpenOptions::new().read(true), path)?, len)) };
        if let Role::Consumer(index) = role {
            make(&forward)?;
            if has_reply {
                make(&reply)?;
            }
            rendezvous.publish("fifo", "made")?;
            let rx = read(&forward)?;
            return if has_reply { Ok(Ends::both(role, write(&reply)?, rx)) } else { Ok(Ends::consumer(index, rx)) };
        }
        rendezvous.request("fifo")?;
        let tx = write(&forward)?;
        match role {
            Role::Producer(index) if !has_reply => Ok(Ends::producer(index, tx)),
            _ => Ok(Ends::both(role, tx, read(&reply)?)),
        }
    }
}

fn make(path: &Path) -> Result<()> {
    mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).with_context(|| format!("making the named pipe {}", path.display()))
}

fn open(options: &OpenOptions, path: &Path) -> Result<PipeEnd> {
    options.open(path).map(PipeEnd::new).with_context(|| format!("opening the named pipe {}", path.display()))
}
