//! An echo server and client, over whatever transport the URL names.
//!
//!     cargo run -p estafette-net --example echo -- ws://127.0.0.1:4000
//!     cargo run -p estafette-net --example echo -- ws://127.0.0.1:4000 hello

use std::collections::VecDeque;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use estafette_net::{Endpoint, EndpointMap, Event, Handle, Kind, Node, Options, Outcome, Reason};

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
    // A peer that has sent its last message still gets its answers.
    let listener = handle.listen_with(url, &Options::default().half_open(true))?;
    if let Some(address) = handle.local_address(listener) {
        println!("listening at {address}");
    }
    let mut unanswered = EndpointMap::<Unanswered>::new();
    node.run(|event| match event {
        Event::Message(from, message) => match unanswered.get_mut(from) {
            // Up to `Limits::read_budget` bytes come after a pause.
            Some(waiting) => waiting.messages.push_back((message.kind(), message.to_vec())),
            None => match reply(&handle, from, message.kind(), &message) {
                // For datagrams nothing is guaranteed.
                outcome if outcome.is_accepted() || from.remote().is_some() => {}
                Outcome::Full => {
                    handle.pause(from);
                    let messages = VecDeque::from([(message.kind(), message.to_vec())]);
                    unanswered.insert(from, Unanswered { messages, has_finished: false });
                }
                outcome => give_up(&handle, from, outcome),
            },
        },
        Event::Drained(to) => {
            let Some(waiting) = unanswered.get_mut(to) else { return };
            while let Some((kind, message)) = waiting.messages.front() {
                match reply(&handle, to, *kind, message) {
                    Outcome::Full => return,
                    outcome if outcome.is_accepted() => drop(waiting.messages.pop_front()),
                    outcome => return give_up(&handle, to, outcome),
                }
            }
            handle.resume(to);
            if waiting.has_finished {
                handle.finish(to);
            }
            unanswered.remove(to);
        }
        Event::Finished(from) => match unanswered.get_mut(from) {
            Some(waiting) => waiting.has_finished = true,
            None => handle.finish(from),
        },
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

/// What could not be sent back yet, because the peer reads more slowly than it sends.
struct Unanswered {
    messages: VecDeque<(Kind, Vec<u8>)>,
    /// The peer has sent its last message.
    has_finished: bool,
}

fn give_up(handle: &Handle<()>, peer: Endpoint, outcome: Outcome) {
    eprintln!("not sent back: {outcome:?}");
    handle.close(peer);
}

fn reply(handle: &Handle<()>, to: Endpoint, kind: Kind, message: &[u8]) -> Outcome {
    match (kind, std::str::from_utf8(message)) {
        (Kind::Text, Ok(text)) => handle.send_text(to, text),
        _ => handle.send(to, message),
    }
}
