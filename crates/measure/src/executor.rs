//! Where the parties of a child run.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result, anyhow};

use crate::limits::pin_to;

/// The whole of a party's work: one dynamic call an instance, none a message.
pub type Work<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// One party's work and the core it is to run on, where it is pinned.
pub struct Job {
    /// The party, for error texts and thread names.
    pub name: String,
    /// The core.
    pub cpu: Option<usize>,
    /// What it does; it hands its result on by itself.
    pub work: Work<()>,
}

/// Runs the parties of a child side by side.
pub trait Executor {
    /// Runs all jobs to their end. Returns at the first that fails, without waiting for the others: the child ends then.
    ///
    /// # Errors
    /// The first failure, a panic included.
    fn run(self: Box<Self>, jobs: Vec<Job>) -> Result<()>;
}

/// One OS thread a party, and the child's own where it plays one party only: a process with a second thread pays for it
/// in every system call (the C library's cancellation points, the kernel's references to files).
#[derive(Debug)]
pub struct Threads;

impl Executor for Threads {
    fn run(self: Box<Self>, jobs: Vec<Job>) -> Result<()> {
        if jobs.len() == 1 {
            return jobs.into_iter().try_for_each(play);
        }
        let (done, results) = mpsc::channel();
        let count = jobs.len();
        for job in jobs {
            let done = done.clone();
            thread::Builder::new().name(job.name.clone()).spawn(move || {
                // The receiver has gone where another party failed first; the process is about to end.
                let _ = done.send(play(job));
            })?;
        }
        drop(done);
        results.iter().take(count).collect()
    }
}

/// Plays one party on this thread.
fn play(job: Job) -> Result<()> {
    let Job { name, cpu, work } = job;
    let run = || {
        if let Some(cpu) = cpu {
            pin_to(cpu).with_context(|| format!("pinning to core {cpu}"))?;
        }
        pollster::block_on(work)
    };
    let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(panicked(&*panic)));
    result.context(name)
}

/// What a panic said.
pub fn panicked(panic: &(dyn std::any::Any + Send)) -> anyhow::Error {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    anyhow!("panicked: {}", text.unwrap_or("with a value that is not text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, work: impl Future<Output = Result<()>> + Send + 'static) -> Job {
        Job { name: name.to_owned(), cpu: None, work: Box::pin(work) }
    }

    #[test]
    fn a_panic_is_a_failure_that_names_the_party() {
        let jobs =
            vec![job("producer:0", async { panic!("out of cheese") }), job("consumer:0", std::future::pending())];
        let error = Box::new(Threads).run(jobs).unwrap_err();
        assert_eq!(format!("{error:#}"), "producer:0: panicked: out of cheese");
    }

    #[test]
    fn all_jobs_are_waited_for() {
        let (send, receive) = mpsc::channel();
        let jobs = (0..3).map(|n| {
            let send = send.clone();
            job("p", async move { Ok(send.send(n)?) })
        });
        Box::new(Threads).run(jobs.collect()).unwrap();
        let mut all: Vec<_> = receive.try_iter().collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
    }
}
