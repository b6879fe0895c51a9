//! WebSocket clients: a source, a sink, and the stream that feeds a function and takes its answers.
//!
//! A thread of its own drives the connection and never waits for the pipeline, so that a full topic
//! does not keep answers from being written. What arrives waits in a bounded buffer; beyond that,
//! the connection is not read, and the server has to wait.
//!
//! A connection that is lost is made again, for as long as the connector runs. Messages that are to
//! be sent wait meanwhile. WebSocket has no acknowledgement: what the system has accepted, and the
//! server had not read when the connection was lost, is lost with it. A message that was written in
//! part is sent again. What has arrived, and no topic has accepted when the connector is to stop,
//! is lost as well.
//!
//! | file | what it holds |
//! |---|---|
//! | `client.rs` | the connection, and the thread that drives it |
//! | `inbox.rs` | what has arrived |
//! | `outbox.rs` | the message that is being sent |

mod client;
mod inbox;
mod outbox;

use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result, anyhow};

use self::client::Client;
use self::inbox::Inbox;
use super::inlet::Inlet;
use super::outlet::{Next, Outlet, Stop};

/// Sends what arrives into the pipeline, until the source is to stop.
pub(super) fn run_source(name: &str, url: &str, outlet: Outlet) -> Result<()> {
    let client = Client::start(name, url, outlet.max_message(), &outlet.stop)?;
    receive(&client, outlet)?;
    client.close()
}

/// Sends what the topic brings to the server, until the topic has ended.
pub(super) fn run_sink(name: &str, url: &str, mut inlet: Inlet, stop: &Arc<Stop>) -> Result<()> {
    let client = Client::start(name, url, inlet.max_message(), stop)?;
    client.end_receiving();
    send(&client, &mut inlet)?;
    client.close()
}

/// Feeds a function with what arrives, until the outlet's `Stop` is set; and sends its answers to
/// the server until it has ended, or `stop` is set.
pub(super) fn run_stream(name: &str, url: &str, outlet: Outlet, mut inlet: Inlet, stop: &Arc<Stop>) -> Result<()> {
    let max_message = outlet.max_message().max(inlet.max_message());
    let drain = Arc::clone(&outlet.stop);
    let client = Client::start(name, url, max_message, stop)?;
    thread::scope(|scope| {
        let receiver = thread::Builder::new().name("stream".into());
        let receiver = receiver.spawn_scoped(scope, || {
            client.end_receiving_on(&drain);
            receive(&client, outlet)
        });
        let receiver = receiver.context("cannot start a thread")?;
        let sent = send(&client, &mut inlet);
        // The function has ended: nobody is left for what arrives.
        drain.set();
        let received = receiver.join().unwrap_or_else(|_| Err(anyhow!("it panicked; the log says where")));
        sent.and(received)
    })?;
    client.close()
}

fn receive(client: &Client, mut outlet: Outlet) -> Result<()> {
    let received = forward(client, &mut outlet);
    outlet.close();
    received
}

fn forward(client: &Client, outlet: &mut Outlet) -> Result<()> {
    let most = outlet.max_message();
    let mut inbox = Inbox::default();
    while client.receive(&mut inbox)? == Next::Continue {
        for message in inbox.messages() {
            if message.len() > most {
                outlet.too_long(message.len());
            } else if outlet.send(message)? == Next::Stop {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn send(client: &Client, inlet: &mut Inlet) -> Result<()> {
    inlet.for_each(&mut (), |(), message| client.send(message), |()| Ok(()))
}
