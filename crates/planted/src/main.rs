//! The `estafette` command with planted defects, for tests. Each defect is in one mechanism of
//! every scope, under a name such as `process/drop`; some defects belong to one pattern. The tests
//! show that each defect is found, with the right exit code and error text. `task/busy` has no
//! defect, but its open loops do not count.
#![forbid(unsafe_code)]

mod busy;
mod cheat;
mod defect;
mod mixing;
mod partial;
mod short;

use std::process::ExitCode;

use estafette_contest::{network, process, sandbox, task, thread};
use estafette_measure::Registry;
use estafette_measure::entry::{async_values, bytes, pipelines};

use crate::busy::Busy;
use crate::cheat::Cheat;
use crate::defect::{Defect, plant, plant_tasks, plant_values};
use crate::mixing::Mixing;
use crate::partial::Partial;
use crate::short::Short;

fn main() -> ExitCode {
    let mut registry = Registry::new()
        .register(bytes(Mixing))
        .register(bytes(Partial))
        .register(bytes(Cheat))
        .register(pipelines(Short))
        .register(async_values(Busy(task::tokio_mpsc())));
    for defect in Defect::ALL {
        registry = registry
            .register(plant_tasks(task::tokio_mpsc(), defect))
            .register(plant_values(thread::Rtrb, defect))
            .register(plant(process::UnixStream, defect))
            .register(plant(network::Tcp, defect))
            .register(plant(sandbox::WatEcho, defect));
    }
    estafette_cli::main(registry)
}
