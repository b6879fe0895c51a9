//! Sends a file over any transport that keeps messages whole, and verifies it.
//!
//!     cargo run --release -p estafette-net --example file -- receive tcp+msg://127.0.0.1:4000 COPY
//!     cargo run --release -p estafette-net --example file -- send FILE tcp+msg://127.0.0.1:4000

use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use estafette_net::{Event, Node, Outcome, Reason};
use sha1::{Digest, Sha1};

/// How much of the file a message has.
const CHUNK: usize = 256 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["send", path, url] => send(path, url),
        ["receive", url, path] => receive(url, path),
        _ => Err("usage: file send FILE URL | file receive URL FILE".into()),
    }
}

/// How far it has come, on a line that is written again.
struct Progress {
    begun: Instant,
    told: Instant,
}

impl Progress {
    fn new() -> Progress {
        Progress { begun: Instant::now(), told: Instant::now() }
    }

    fn at(&mut self, bytes: u64, all: u64) {
        if self.told.elapsed() > Duration::from_millis(100) || bytes == all {
            self.told = Instant::now();
            let rate = bytes as f64 / 1048576.0 / self.begun.elapsed().as_secs_f64();
            let percent = (bytes * 100).checked_div(all).unwrap_or(100);
            eprint!("\r{percent:3} %  {rate:.0} MiB/s ");
            if bytes == all {
                eprintln!();
            }
        }
    }
}

/// First the length, then the file, then its digest; the receiver answers with the digest of what it got.
fn send(path: &str, url: &str) -> Result<(), Box<dyn Error>> {
    let mut file = File::open(path).map_err(|error| format!("{path}: {error}"))?;
    let all = file.metadata()?.len();
    let mut node = Node::<()>::new()?;
    let handle = node.handle();
    let to = handle.connect(url)?;
    let (mut digest, mut progress, mut sent) = (Sha1::new(), Progress::new(), 0);
    let mut next = all.to_be_bytes().to_vec();
    let mut result = Err("the connection ended before the answer".to_owned());
    // Whatever was read and not taken is sent when there is room.
    let mut go_on = |digest: &mut Sha1| -> Result<(), Box<dyn Error>> {
        while !next.is_empty() {
            match handle.send(to, &next) {
                Outcome::Sent | Outcome::Queued => {}
                Outcome::Full => break,
                other => return Err(format!("the message was not taken: {other:?}").into()),
            }
            next.resize(CHUNK, 0);
            let read = file.read(&mut next)?;
            next.truncate(read);
            digest.update(&next);
            sent += read as u64;
            progress.at(sent, all);
        }
        Ok(())
    };
    let mut failed = go_on(&mut digest).err();
    node.run(|event| match event {
        Event::Drained(_) => {
            if let Err(error) = go_on(&mut digest) {
                failed = Some(error);
                handle.stop();
            }
        }
        Event::Message(_, theirs) => {
            let ours = digest.clone().finalize();
            result = if *theirs == *ours { Ok(()) } else { Err("the copy differs".to_owned()) };
            handle.close(to);
        }
        Event::Closed { reason, .. } => {
            if !matches!(reason, Reason::Closed) {
                result = Err(reason.to_string());
            }
            handle.stop();
        }
        _ => {}
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    result?;
    println!("sent and verified: {all} bytes");
    Ok(())
}

fn receive(url: &str, path: &str) -> Result<(), Box<dyn Error>> {
    let mut file = File::create(path).map_err(|error| format!("{path}: {error}"))?;
    let mut node = Node::<()>::new()?;
    let handle = node.handle();
    let listener = handle.listen(url)?;
    println!("listening at {}", handle.local_address(listener).ok_or("no address")?);
    let (mut digest, mut progress, mut all, mut got) = (Sha1::new(), Progress::new(), None, 0);
    let mut result: Result<(), Box<dyn Error>> = Err("the sender never came".into());
    node.run(|event| match event {
        Event::Message(from, message) => {
            let Some(all) = all else {
                match message.first_chunk::<8>() {
                    Some(length) if message.len() == 8 => all = Some(u64::from_be_bytes(*length)),
                    _ => handle.close(from),
                }
                if all == Some(0) && !handle.send(from, &digest.clone().finalize()).taken() {
                    handle.stop();
                }
                return;
            };
            if let Err(error) = file.write_all(&message) {
                result = Err(error.into());
                return handle.stop();
            }
            digest.update(&*message);
            got += message.len() as u64;
            progress.at(got, all);
            if got >= all && !handle.send(from, &digest.clone().finalize()).taken() {
                handle.stop();
            }
        }
        Event::Closed { reason, .. } => {
            let whole = Some(got) == all;
            result = if whole { Ok(()) } else { Err(format!("{got} bytes only: {reason}").into()) };
            handle.stop();
        }
        _ => {}
    })?;
    result?;
    println!("received and verified: {got} bytes");
    Ok(())
}
