//! A chat: each message goes to all other clients, which may use several transports at once.
//!
//!     cargo run -p estafette-net --example chat -- host tcp+msg://127.0.0.1:4000 ws://127.0.0.1:4001
//!     cargo run -p estafette-net --example chat -- join tcp+msg://127.0.0.1:4000

use std::collections::{HashSet, VecDeque};
use std::error::Error;
use std::io::BufRead;
use std::process::ExitCode;
use std::thread;

use estafette_net::{Event, Node, Outcome, Reason};

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
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["host", ref urls @ ..] if !urls.is_empty() => host(urls),
        ["join", url] => join(url),
        _ => Err("usage: chat host URL... | chat join URL".into()),
    }
}

fn host(urls: &[&str]) -> Result<(), Box<dyn Error>> {
    let mut node = Node::<()>::new()?;
    let handle = node.handle();
    for url in urls {
        let listener = handle.listen(*url)?;
        println!("listening at {}", handle.local_address(listener).ok_or("no address")?);
    }
    let mut guests = HashSet::new();
    node.run(|event| match event {
        Event::Accepted { endpoint, .. } => {
            guests.insert(endpoint);
        }
        Event::Message(from, message) => {
            for guest in guests.iter().filter(|guest| **guest != from) {
                // A guest that reads too slowly misses messages and delays nobody.
                if !handle.send(*guest, &message).is_accepted() {
                    eprintln!("{guest:?} reads too slowly");
                }
            }
        }
        Event::Closed { endpoint, .. } => {
            guests.remove(&endpoint);
        }
        _ => {}
    })?;
    Ok(())
}

/// What the input thread passes to the node's thread.
enum Typed {
    Line(Vec<u8>),
    End,
}

fn join(url: &str) -> Result<(), Box<dyn Error>> {
    let mut node = Node::<Typed>::new()?;
    let handle = node.handle();
    let server = handle.connect(url)?;
    let typing = handle.clone();
    thread::spawn(move || {
        for line in std::io::stdin().lock().split(b'\n').map_while(Result::ok) {
            typing.signal(Typed::Line(line));
        }
        // A close from this thread would overtake lines that the node has not handled yet.
        typing.signal(Typed::End);
    });
    let (mut waiting, mut ends) = (VecDeque::new(), false);
    let mut result: Result<(), Box<dyn Error>> = Ok(());
    node.run(|event| {
        match event {
            Event::Signal(Typed::Line(line)) => waiting.push_back(line),
            Event::Signal(Typed::End) => ends = true,
            Event::Message(_, message) => println!("{}", String::from_utf8_lossy(&message)),
            Event::Closed { reason, .. } => {
                let missing = match waiting.len() {
                    0 => String::new(),
                    lines => format!(", and {lines} lines were not sent"),
                };
                if !matches!(reason, Reason::Closed) || !waiting.is_empty() {
                    result = Err(format!("{reason}{missing}").into());
                }
                return handle.stop();
            }
            // `Drained`: the queue has space again.
            _ => {}
        }
        while let Some(line) = waiting.front() {
            match handle.send(server, line) {
                Outcome::Full => return,
                Outcome::TooLarge => eprintln!("too long, and not sent: {} bytes", line.len()),
                Outcome::Closed => return,
                outcome if !outcome.is_accepted() => eprintln!("not sent: {outcome:?}"),
                _ => {}
            }
            waiting.pop_front();
        }
        if ends {
            handle.close(server);
        }
    })?;
    result
}
