//! An echo server and client, over whatever transport the URL names.
//!
//!     cargo run -p estafette-net --example echo -- ws://127.0.0.1:4000
//!     cargo run -p estafette-net --example echo -- ws://127.0.0.1:4000 hello

use std::collections::VecDeque;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use estafette_net::{Endpoint, EndpointMap, Event, Handle, Kind, Node, Outcome, Reason};

/// How long a client waits for the reply.
const PATIENCE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let Some(url) = args.next() else { return Err("usage: echo URL [TEXT]".into()) };
    match args.next() {
        Some(text) => ask(&url, &text),
        None => serve(&url),
    }
}

fn ask(url: &str, text: &str) -> Result<(), Box<dyn Error>> {
    let mut node = Node::<()>::new()?;
    let handle = node.handle();
    let server = handle.connect(url)?;
    // A message sent before its connection is open is queued. A datagram socket has no queue while
    // a name is resolved: the send returns `Full`, and `Drained` follows.
    let mut asked = handle.send_text(server, text);
    if !(asked.is_accepted() || asked == Outcome::Full) {
        return Err(format!("the message was not accepted: {asked:?}").into());
    }
    handle.signal_after(PATIENCE, ());
    let mut result = Ok(());
    node.run(|event| match event {
        Event::Drained(_) if asked == Outcome::Full => asked = handle.send_text(server, text),
        Event::Message(_, message) => {
            println!("{}", String::from_utf8_lossy(&message));
            handle.stop();
        }
        Event::Signal(()) => {
            result = Err(format!("no reply within {} seconds", PATIENCE.as_secs()));
            handle.stop();
        }
        Event::Closed { reason, .. } => {
            result = Err(reason.to_string());
            handle.stop();
        }
        _ => {}
    })?;
    Ok(result?)
}

fn serve(url: &str) -> Result<(), Box<dyn Error>> {
    let mut node = Node::<()>::new()?;
    let handle = node.handle();
    let listener = handle.listen(url)?;
    if let Some(address) = handle.local_address(listener) {
        println!("listening at {address}");
    }
    // What could not be sent back yet, because the peer reads more slowly than it sends.
    let mut unanswered = EndpointMap::<VecDeque<(Kind, Vec<u8>)>>::new();
    node.run(|event| match event {
        Event::Message(from, message) => match unanswered.get_mut(from) {
            // Up to `Limits::read_budget` bytes come after a pause.
            Some(queue) => queue.push_back((message.kind(), message.to_vec())),
            None => match reply(&handle, from, message.kind(), &message) {
                // For datagrams nothing is guaranteed.
                outcome if outcome.is_accepted() || from.remote().is_some() => {}
                Outcome::Full => {
                    handle.pause(from);
                    unanswered.insert(from, VecDeque::from([(message.kind(), message.to_vec())]));
                }
                outcome => {
                    eprintln!("not sent back: {outcome:?}");
                    handle.close(from);
                }
            },
        },
        Event::Drained(to) => {
            let Some(queue) = unanswered.get_mut(to) else { return };
            while let Some((kind, message)) = queue.front() {
                if reply(&handle, to, *kind, message) == Outcome::Full {
                    return;
                }
                queue.pop_front();
            }
            unanswered.remove(to);
            handle.resume(to);
        }
        Event::Closed { endpoint, reason } => {
            unanswered.remove(endpoint);
            if !matches!(reason, Reason::Closed) {
                eprintln!("{reason}");
            }
        }
        _ => {}
    })?;
    Ok(())
}

fn reply(handle: &Handle<()>, to: Endpoint, kind: Kind, message: &[u8]) -> Outcome {
    match (kind, std::str::from_utf8(message)) {
        (Kind::Text, Ok(text)) => handle.send_text(to, text),
        _ => handle.send(to, message),
    }
}
