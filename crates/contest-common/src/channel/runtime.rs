//! Tokio's runtimes as executors of parties.

use anyhow::{Context, Result, bail};
use estafette_measure::case::Case;
use estafette_measure::executor::{Executor, Job};
use estafette_measure::spec::Runtime as Kind;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

/// Returns the executor for a case whose ends are futures.
pub fn executor(case: &Case) -> Result<Box<dyn Executor>> {
    let runtime = match case.runtime {
        Kind::Thread => bail!("{} runs on a runtime, not on threads", case.mechanism),
        // One worker per core, like a program with `#[tokio::main]`.
        Kind::TokioMulti | Kind::TokioMultiUnconstrained => Builder::new_multi_thread().build(),
        Kind::TokioCurrent | Kind::TokioCurrentUnconstrained => Builder::new_current_thread().build(),
    };
    let unconstrained = matches!(case.runtime, Kind::TokioMultiUnconstrained | Kind::TokioCurrentUnconstrained);
    Ok(Box::new(Tasks { runtime: runtime.context("starting tokio's runtime")?, unconstrained }))
}

/// Runs each party as a task.
struct Tasks {
    runtime: Runtime,
    /// Whether tasks run without the runtime's cooperative budget.
    unconstrained: bool,
}

impl Executor for Tasks {
    fn run(self: Box<Self>, jobs: Vec<Job>) -> Result<()> {
        let Tasks { runtime, unconstrained } = *self;
        let result = runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for job in jobs {
                let work = async move { job.work.await.context(job.name) };
                if unconstrained {
                    tasks.spawn(tokio::task::unconstrained(work));
                } else {
                    tasks.spawn(work);
                }
            }
            while let Some(result) = tasks.join_next().await {
                result.context("a task")??;
            }
            Ok(())
        });
        // If one party has failed, another may never finish.
        runtime.shutdown_background();
        result
    }
}
