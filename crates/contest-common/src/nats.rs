//! A `nats-server` of an instance's own on a loopback port, and a connection to it.
//!
//! `async-nats` writes and reads in a task of its own, which goes on while its user does something else: it has a runtime
//! with one worker, on its party's core, as a program has it under `#[tokio::main]` on one core.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use async_nats::{Client, ConnectOptions, Subject};
use estafette_measure::Rendezvous;
use estafette_measure::usage::Usage;
use futures_util::StreamExt;
use tokio::runtime::{Builder, Runtime};

use crate::server::{self, CONFIG, Server};

/// The server's program.
pub const SERVER: Server =
    Server { program: "nats-server", package: "nats-server", arguments: &["-c", CONFIG], asked: "--version" };

/// Any free port, written to a file; the longest message that the server takes without a warning; and room for what may
/// be under way to a subscriber.
const CONFIGURATION: &str = "\
host: 127.0.0.1
port: -1
ports_file_dir: \".\"
max_payload: 8388608
max_pending: 268435456
";

/// The longest message: `max_payload` above.
pub const MAX_MESSAGE: usize = 8 << 20;

/// Plays the broker: a server of the instance's own.
///
/// # Errors
///
/// If it cannot be started, does not answer in time, or a party has gone.
pub fn serve(rendezvous: &mut Rendezvous) -> Result<Usage> {
    SERVER.serve(CONFIGURATION, rendezvous, listens)
}

/// The server's address, once it has written its ports file: `{"nats":["nats://127.0.0.1:PORT"],...}`.
fn listens(dir: &Path) -> Option<String> {
    let mut files = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path());
    let ports = files.find(|path| path.extension().is_some_and(|extension| extension == "ports"))?;
    address(&fs::read_to_string(ports).ok()?)
}

/// The first address in a ports file, which may not be complete yet.
fn address(ports: &str) -> Option<String> {
    let (complete, _) = ports.rsplit_once('"')?;
    complete.split('"').find(|word| word.starts_with("nats://")).map(str::to_owned)
}

/// A client and what it runs on: one for both ends of a party.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Of one worker.
    pub runtime: Arc<Runtime>,
    /// All its clones share one connection.
    pub client: Client,
}

impl Connection {
    /// Connects to the instance's server. Each subscription buffers up to `capacity` messages.
    ///
    /// # Errors
    ///
    /// If the broker has gone, or the server cannot be reached.
    pub fn open(rendezvous: &mut Rendezvous, capacity: usize) -> Result<Connection> {
        let address = server::address(rendezvous)?;
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        // A server that has gone does not come back: what was under way is lost, and the instance has failed.
        let options = ConnectOptions::new().subscription_capacity(capacity).max_reconnects(1);
        let client = runtime.block_on(options.connect(address)).context("connecting to nats-server")?;
        Ok(Connection { runtime: Arc::new(runtime), client })
    }

    /// Sends itself a message. The server reads what comes on a connection in order: when that arrives, it has read
    /// everything before it.
    ///
    /// # Errors
    ///
    /// If the server closed the connection.
    pub fn round_trip(&self) -> Result<()> {
        let Connection { runtime, client } = self;
        let ourselves = Subject::from(client.new_inbox());
        runtime.block_on(async {
            let mut subscriber = client.subscribe(ourselves.clone()).await?;
            client.publish(ourselves, "here".into()).await?;
            subscriber.next().await.map(drop).context("nats-server closed the connection")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_from_a_complete_line_only() {
        let ports = r#"{"nats":["nats://127.0.0.1:40123"],"monitoring":[]}"#;
        assert_eq!(address(ports).as_deref(), Some("nats://127.0.0.1:40123"));
        assert_eq!(address(&ports[..30]), None);
        assert_eq!(address(""), None);
    }
}
