//! WebSocket clients: a source, a sink, and the stream that is a function's input and receives its
//! replies.
//!
//! A separate thread drives the connection and never waits for the pipeline, so that replies are
//! written even while a topic is full. Received messages wait in a bounded buffer. When it is full,
//! the connection is not read, and the server has to wait.
//!
//! A connection that is lost is re-established, for as long as the connector runs. Messages to send
//! wait in the meantime. WebSocket has no acknowledgements: messages that the system has accepted,
//! and the server had not read when the connection was lost, are lost. A message that was partly
//! written is sent again. Received messages that no topic has accepted when the connector must stop
//! are lost as well.
//!
//! | file | content |
//! |---|---|
//! | `client.rs` | the connection, and its thread |
//! | `inbox.rs` | the received messages |
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

/// Sends received messages into the pipeline, until the source must stop.
pub(super) fn run_source(name: &str, url: &str, outlet: Outlet) -> Result<()> {
    let client = Client::start(name, url, outlet.max_message(), &outlet.stop)?;
    receive(&client, outlet)?;
    client.close()
}

/// Sends the topic's messages to the server, until the topic has ended.
pub(super) fn run_sink(name: &str, url: &str, mut inlet: Inlet, stop: &Arc<Stop>) -> Result<()> {
    let client = Client::start(name, url, inlet.max_message(), stop)?;
    client.end_receiving();
    send(&client, &mut inlet)?;
    client.close()
}

/// Sends received messages to a function, until the outlet's `Stop` is set. Sends the function's
/// replies to the server, until the function has ended or `stop` is set.
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
        // The function has ended, so nobody reads the received messages.
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
