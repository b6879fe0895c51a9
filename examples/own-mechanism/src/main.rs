//! Registers two mechanisms of one's own and gets the whole command for them:
//! `cargo run --release -- bench`.

mod socket_pair;
mod std_channel;

use estafette_measure::Registry;
use estafette_measure::entry::{bytes, values};

fn main() -> std::process::ExitCode {
    let registry = Registry::new().register(values(std_channel::StdChannel)).register(bytes(socket_pair::SocketPair));
    estafette_cli::main(registry)
}
