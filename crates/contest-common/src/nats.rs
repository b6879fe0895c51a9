//! A `nats-server` for one instance at any free port of the address at which its children listen,
//! and a connection to it.
//!
//! `async-nats` reads and writes in a background task, which continues while the program does other
//! work. So the connection has a runtime with one worker on its party's core, like a program under
//! `#[tokio::main]` on one core.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use async_nats::{Client, ConnectOptions, ServerAddr, Subject};
use estafette_measure::Rendezvous;
use estafette_measure::usage::Usage;
use futures_util::StreamExt;
use tokio::runtime::{Builder, Runtime};

use crate::server::{self, CONFIG, Server};

/// The server program.
pub const SERVER: Server =
    Server { program: "nats-server", package: "nats-server", arguments: &["-c", CONFIG], asked: "--version" };

/// The configuration, except for the host. Uses any free port, which the server writes to a file.
/// `max_payload` is the longest message that the server accepts without a warning. `max_pending` is
/// large enough for the messages in flight to a subscriber.
const CONFIGURATION: &str = "\
port: -1
ports_file_dir: \".\"
max_payload: 8388608
max_pending: 268435456
";

/// The only user of the server.
const USER: &str = "estafette";

/// The longest message in bytes, equal to `max_payload` above.
pub const MAX_MESSAGE: usize = 8 << 20;

/// Runs the broker's part: a server for this instance.
///
/// # Errors
///
/// If the server cannot be started or does not accept connections in time, or a party has exited.
pub fn serve(rendezvous: &mut Rendezvous) -> Result<Usage> {
    // Between two hosts, others may reach it.
    let password = password()?;
    let access = format!("authorization {{ user: {USER}, password: \"{password}\" }}");
    let configuration = format!("host: \"{}\"\n{access}\n{CONFIGURATION}", rendezvous.address());
    SERVER.serve(&configuration, rendezvous, |dir| {
        let address = listens(dir)?;
        Some(address.replacen("nats://", &format!("nats://{USER}:{password}@"), 1))
    })
}

/// Returns a new password of 128 bits.
fn password() -> Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).context("making a password")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns the server's address once it has written its ports file:
/// `{"nats":["nats://127.0.0.1:PORT"],...}`.
fn listens(dir: &Path) -> Option<String> {
    let mut files = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path());
    let ports = files.find(|path| path.extension().is_some_and(|extension| extension == "ports"))?;
    address(&fs::read_to_string(ports).ok()?)
}

/// Returns the first address in a ports file. The file may still be incomplete.
fn address(ports: &str) -> Option<String> {
    let (complete, _) = ports.rsplit_once('"')?;
    complete.split('"').find(|word| word.starts_with("nats://")).map(str::to_owned)
}

/// A client and its runtime. Both ends of a party share it.
#[derive(Clone, Debug)]
pub struct Connection {
    /// A runtime with one worker.
    pub runtime: Arc<Runtime>,
    /// All its clones share one connection.
    pub client: Client,
}

impl Connection {
    /// Connects to the instance's server. Each subscription buffers up to `capacity` messages.
    ///
    /// # Errors
    ///
    /// If the broker has exited, or the server cannot be reached.
    pub fn open(rendezvous: &mut Rendezvous, capacity: usize) -> Result<Connection> {
        let address: ServerAddr = server::address(rendezvous)?.parse().context("the address of nats-server")?;
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        // A server that has exited is not restarted. Its messages in flight are lost, so the
        // instance fails.
        let options = ConnectOptions::new().subscription_capacity(capacity).max_reconnects(1);
        // The library does not take them from the address.
        let (user, password) = (address.username().unwrap_or_default(), address.password().unwrap_or_default());
        let options = options.user_and_password(user.to_owned(), password.to_owned());
        let client = runtime.block_on(options.connect(address)).context("connecting to nats-server")?;
        Ok(Connection { runtime: Arc::new(runtime), client })
    }

    /// Sends a message to itself and waits for it. The server processes a connection's messages in
    /// order, so it has then processed all earlier ones.
    ///
    /// # Errors
    ///
    /// If the server closed the connection.
    pub fn round_trip(&self) -> Result<()> {
        let Connection { runtime, client } = self;
        let inbox = Subject::from(client.new_inbox());
        runtime.block_on(async {
            let mut subscriber = client.subscribe(inbox.clone()).await?;
            client.publish(inbox, "here".into()).await?;
            subscriber.next().await.map(drop).context("nats-server closed the connection")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_address_only_from_a_complete_string() {
        let ports = r#"{"nats":["nats://127.0.0.1:40123"],"monitoring":[]}"#;
        assert_eq!(address(ports).as_deref(), Some("nats://127.0.0.1:40123"));
        assert_eq!(address(&ports[..30]), None);
        assert_eq!(address(""), None);
    }
}
