//! The `estafette` command with defects planted into one mechanism of every scope, under names such as
//! `process/drop`, and some of a pattern's own. For tests: it shows that each defect is caught, with the right exit code and the right words.
#![forbid(unsafe_code)]

mod defect;
mod mixing;
mod short;

use std::process::ExitCode;

use estafette_contest::{network, process, sandbox, task, thread};
use estafette_measure::Registry;
use estafette_measure::entry::{bytes, pipelines};

use crate::defect::{Defect, plant, plant_values};
use crate::mixing::Mixing;
use crate::short::Short;

fn main() -> ExitCode {
    let mut registry = Registry::new().enrol(bytes(Mixing)).enrol(pipelines(Short));
    for defect in Defect::ALL {
        registry = registry
            .enrol(plant_values(task::tokio_mpsc(), defect))
            .enrol(plant_values(thread::Rtrb, defect))
            .enrol(plant(process::UnixStream, defect))
            .enrol(plant(network::Tcp, defect))
            .enrol(plant(sandbox::WatEcho, defect));
    }
    estafette_cli::main(registry)
}
