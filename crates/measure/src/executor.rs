//! Executors: run the parties of a child on threads or on a runtime.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result, anyhow};

use crate::limits::pin_to;

/// The whole work of a party, as a boxed future. It is a dynamic call once per instance, and never
/// per message.
pub type Work<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// The work of one party and its core.
pub struct Job {
    /// The party's name, for error texts and thread names.
    pub name: String,
    /// The core to pin the party to, if any.
    pub cpu: Option<usize>,
    /// The work. It sends its result to the driver itself.
    pub work: Work<()>,
}

/// Runs the parties of a child concurrently.
pub trait Executor {
    /// Runs all jobs and blocks until all have ended. After the first failure it returns without
    /// waiting for the others, because the child exits then.
    ///
    /// # Errors
    /// The first failure or panic.
    fn run(self: Box<Self>, jobs: Vec<Job>) -> Result<()>;
}

/// Runs each party on its own OS thread. A single party runs on the child's main thread, because a
/// second thread makes every system call slower (cancellation points of the C library, reference
/// counts of files in the kernel).
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
                // The receiver is gone if another party has failed; the process is about to exit
                // then.
                let _ = done.send(play(job));
            })?;
        }
        drop(done);
        results.iter().take(count).collect()
    }
}

/// Runs one party on this thread.
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

/// Turns the payload of a panic into an error.
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
    fn run_waits_for_all_jobs() {
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
