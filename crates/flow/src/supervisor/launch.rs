//! Starting of hosts and instances, and the pipes for their output.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use anyhow::{Context, Result};

use super::host::Host;
use super::instance::{self, Phase};
use super::poll::Token;
use super::{Mode, Supervisor, log, start};
use crate::config::Isolation;
use crate::control::{self, Request};
use crate::counters::Counter;

impl Supervisor {
    /// Starts every instance that is due.
    pub(super) fn start_due(&mut self, now: Instant) {
        for at in 0..self.instances.len() {
            if matches!(self.instances[at].phase, Phase::Waiting { until } if until <= now) {
                match self.mode {
                    Mode::Stopping { .. } => self.finish(at, instance::Ended::Stopped),
                    Mode::Running | Mode::Draining { .. } => self.start(at),
                }
            }
        }
    }

    /// Starts an instance. An error counts as a failure of the instance.
    fn start(&mut self, at: usize) {
        let started = self.find_host(at).and_then(|host| {
            let started = self.start_on(at, host);
            if started.is_err() {
                self.end_host(host, "a start request could not be sent to it");
            }
            started
        });
        // If the host was killed, its instances have been handled.
        if let Err(error) = started
            && matches!(self.instances[at].phase, Phase::Waiting { until } if until <= Instant::now())
        {
            self.on_end(at, control::End::Failed { reason: format!("{error:#}") });
        }
    }

    /// The host for an instance: a new one, or the shared one for threads.
    fn find_host(&mut self, at: usize) -> Result<usize> {
        let function = &self.pipeline.functions[self.instances[at].function];
        match function.isolation {
            Isolation::Process => self.spawn_host(1, &function.name.clone()),
            Isolation::Thread => match self.shared_host {
                Some(host) => Ok(host),
                None => {
                    let host = self.spawn_host(self.instances.len(), "threads")?;
                    Ok(*self.shared_host.insert(host))
                }
            },
        }
    }

    fn start_on(&mut self, at: usize, host: usize) -> Result<()> {
        let requested_at = control::now();
        let name = self.instances[at].name.clone();
        let (stdout, stderr) = (self.log(&name, false)?, self.log(&name, true)?);
        let instance = &mut self.instances[at];
        let start = start::request(instance, requested_at, &self.pipeline, &self.topology, &self.code);
        let code = self.code.current(instance.function);
        instance.generation = code.generation;
        let mut descriptors = vec![code.file.as_fd(), instance.counters_file.as_fd(), stdout.as_fd(), stderr.as_fd()];
        descriptors.extend(start::descriptors(instance.end, &self.topology, &self.fabric));
        instance.watch = instance::Watch::default();
        // A killed instance may have left other values.
        instance.counters.set(Counter::Busy, 0);
        instance.counters.set(Counter::Memory, 0);
        let host_process = self.hosts.get(&host).context("its host is gone")?;
        host_process
            .send(&Request::Start(Box::new(start)), &descriptors)
            .context("cannot send a start request to its host")?;
        instance.phase = Phase::Starting { host };
        Ok(())
    }

    pub(super) fn spawn_host(&mut self, instances: usize, name: &str) -> Result<usize> {
        let (host, stderr) = Host::spawn(&self.host_program, instances)?;
        let number = self.next_host;
        self.next_host += 1;
        self.poll.add(&host, number as Token).context("cannot wait for a host")?;
        self.hosts.insert(number, host);
        self.add_log(stderr, &format!("host of {name}"), true)?;
        Ok(number)
    }

    /// Creates a pipe for a function's output. Returns the end that the function writes to.
    pub(super) fn log(&mut self, name: &str, is_error: bool) -> Result<OwnedFd> {
        let (reader, writer) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).context("cannot make a pipe")?;
        self.add_log(File::from(reader), name, is_error)?;
        Ok(writer)
    }

    pub(super) fn add_log(&mut self, pipe: File, name: &str, is_error: bool) -> Result<()> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let token = self.next_log;
        self.next_log += 1;
        self.poll.add(&pipe, token).context("cannot wait for a function's output")?;
        self.logs.insert(token, log::Stream::new(pipe, name, is_error));
        Ok(())
    }
}
