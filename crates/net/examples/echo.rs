//! Sends every message back, by whatever transport the URL names.
//!
//!     cargo run -p estafette-net --example echo -- ws://127.0.0.1:4000
//!     cargo run -p estafette-net --example echo -- ws://127.0.0.1:4000 hello

use std::error::Error;

use estafette_net::{Event, Kind, Node};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let Some(url) = args.next() else { return Err("usage: echo URL [TEXT]".into()) };
    let mut node = Node::<()>::new()?;
    let handle = node.handle();
    let mut failed = None;
    if let Some(text) = args.next() {
        let server = handle.connect(url)?;
        // It waits until the connection is there.
        if !handle.send_text(server, &text).taken() {
            return Err("the message was not taken".into());
        }
        node.run(|event| match event {
            Event::Message(_, message) => {
                println!("{}", String::from_utf8_lossy(&message));
                handle.close(server);
                // Datagrams have no end that could be waited for.
                if handle.peer_address(server).is_none() {
                    handle.stop();
                }
            }
            Event::Closed { reason, .. } => {
                if !matches!(reason, estafette_net::Reason::Closed) {
                    failed = Some(reason.to_string());
                }
                handle.stop();
            }
            _ => {}
        })?;
    } else {
        let listener = handle.listen(url)?;
        if let Some(address) = handle.local_address(listener) {
            println!("listening at {address}");
        }
        node.run(|event| match event {
            Event::Message(from, message) => {
                let outcome = match (message.kind(), std::str::from_utf8(&message)) {
                    (Kind::Text, Ok(text)) => handle.send_text(from, text),
                    _ => handle.send(from, &message),
                };
                if !outcome.taken() {
                    eprintln!("not sent back: {outcome:?}");
                }
            }
            Event::Closed { reason, .. } => eprintln!("{reason}"),
            _ => {}
        })?;
    }
    failed.map_or(Ok(()), |reason| Err(reason.into()))
}
