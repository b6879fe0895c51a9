//! A chat: what one says all others hear. Clients may come by several transports at once.
//!
//!     cargo run -p estafette-net --example chat -- host tcp+msg://127.0.0.1:4000 ws://127.0.0.1:4001
//!     cargo run -p estafette-net --example chat -- join tcp+msg://127.0.0.1:4000

use std::collections::HashSet;
use std::error::Error;
use std::io::BufRead;
use std::thread;

use estafette_net::{Event, Node};

fn main() -> Result<(), Box<dyn Error>> {
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
                // Who reads too slowly misses something, and holds up nobody.
                if !handle.send(*guest, &message).taken() {
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

fn join(url: &str) -> Result<(), Box<dyn Error>> {
    let mut node = Node::<String>::new()?;
    let handle = node.handle();
    let server = handle.connect(url)?;
    let typing = handle.clone();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            typing.signal(line);
        }
        typing.close(server);
    });
    node.run(|event| match event {
        Event::Signal(line) => {
            let outcome = handle.send(server, line.as_bytes());
            if !outcome.taken() {
                eprintln!("not sent: {line}: {outcome:?}");
            }
        }
        Event::Message(_, message) => println!("{}", String::from_utf8_lossy(&message)),
        Event::Closed { reason, .. } => {
            eprintln!("{reason}");
            handle.stop();
        }
        _ => {}
    })?;
    Ok(())
}
