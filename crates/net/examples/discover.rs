//! Finds other instances on the local network, by multicast.
//!
//!     cargo run -p estafette-net --example discover -- NAME

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use estafette_net::{Event, Node};

/// A group of the organization-local scope: RFC 2365.
const GROUP: &str = "udp://239.255.77.77:47777";

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
    let name = std::env::args().nth(1).unwrap_or_else(|| format!("process {}", std::process::id()));
    let mut node = Node::<()>::new()?;
    let handle = node.handle();
    handle.listen(GROUP)?;
    let group = handle.connect(GROUP)?;
    handle.signal(());
    node.run(|event| match event {
        Event::Signal(()) => {
            if !handle.send(group, name.as_bytes()).is_accepted() {
                eprintln!("not announced: is there a network?");
            }
            handle.signal_after(Duration::from_secs(2), ());
        }
        Event::Message(from, message) if *message != *name.as_bytes() => {
            let sender = from.remote().map_or_else(String::new, |remote| remote.to_string());
            println!("{} at {sender}", String::from_utf8_lossy(&message));
        }
        _ => {}
    })?;
    Ok(())
}
