//! Enrols a mechanism of one's own and gets the whole command for it: `cargo run --release -- bench`.

mod std_channel;

use estafette_measure::{Registry, entry::values};

fn main() -> std::process::ExitCode {
    estafette_cli::main(Registry::new().enrol(values(std_channel::StdChannel)))
}
