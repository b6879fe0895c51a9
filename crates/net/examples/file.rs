//! Sends a file over any transport with message framing, and verifies the copy.
//!
//!     cargo run --release -p estafette-net --example file -- receive tcp+msg://127.0.0.1:4000 COPY
//!     cargo run --release -p estafette-net --example file -- send FILE tcp+msg://127.0.0.1:4000

use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use estafette_net::{Endpoint, Event, Node, Outcome, Reason};
use sha1::{Digest, Sha1};

/// The bytes of the file in one message.
const CHUNK: usize = 256 << 10;

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
        ["send", path, url] => send(path, url),
        ["receive", url, path] => receive(url, path),
        _ => Err("usage: file send FILE URL | file receive URL FILE".into()),
    }
}

/// Progress, on a line that is overwritten.
struct Progress {
    begun: Instant,
    shown: Instant,
}

impl Progress {
    fn new() -> Progress {
        Progress { begun: Instant::now(), shown: Instant::now() }
    }

    fn at(&mut self, bytes: u64, all: u64) {
        if self.shown.elapsed() > Duration::from_millis(100) || bytes == all {
            self.shown = Instant::now();
            let rate = bytes as f64 / 1048576.0 / self.begun.elapsed().as_secs_f64();
            let percent = (bytes * 100).checked_div(all).unwrap_or(100);
            eprint!("\r{percent:3} %  {rate:.0} MiB/s ");
            if bytes == all {
                eprintln!();
            }
        }
    }
}

/// Sends the length, then the file. The receiver replies with the digest of what it received.
fn send(path: &str, url: &str) -> Result<(), Box<dyn Error>> {
    let mut file = File::open(path).map_err(|error| format!("{path}: {error}"))?;
    let all = file.metadata()?.len();
    let mut node = Node::<()>::new()?;
    let handle = node.handle();
    let to = handle.connect(url)?;
    let (mut digest, mut progress, mut sent) = (Sha1::new(), Progress::new(), 0);
    let mut next = all.to_be_bytes().to_vec();
    let mut result = Err("the connection ended before the answer".to_owned());
    // Sends until the queue is full; `next` is what was read and not accepted yet.
    let mut go_on = |digest: &mut Sha1| -> Result<(), Box<dyn Error>> {
        while !next.is_empty() {
            match handle.send(to, &next) {
                Outcome::Sent | Outcome::Queued => {}
                Outcome::Full => break,
                other => return Err(format!("the message was not accepted: {other:?}").into()),
            }
            next.resize(CHUNK, 0);
            let read = file.read(&mut next)?;
            next.truncate(read);
            digest.update(&next);
            sent += read as u64;
            if sent > all || (read == 0 && sent < all) {
                let has = if sent > all { "more" } else { "less" };
                return Err(format!("{path} has {has} than the {all} bytes of its metadata: does it change?").into());
            }
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

/// A file that is being received, from the first endpoint that announced one.
struct Arriving {
    from: Endpoint,
    file: File,
    digest: Sha1,
    got: u64,
    all: u64,
}

fn receive(url: &str, path: &str) -> Result<(), Box<dyn Error>> {
    let mut node = Node::<()>::new()?;
    let handle = node.handle();
    let listener = handle.listen(url)?;
    println!("listening at {}", handle.local_address(listener).ok_or("no address")?);
    let (mut arriving, mut progress): (Option<Arriving>, _) = (None, Progress::new());
    let mut result: Result<u64, Box<dyn Error>> = Err("no sender came".into());
    node.run(|event| match event {
        Event::Message(from, message) => {
            let done = match &mut arriving {
                Some(arriving) if arriving.from == from => arriving.take(&message),
                None if message.len() == 8 => {
                    progress = Progress::new();
                    Arriving::new(path, from, &message).map(|new| arriving.insert(new).got)
                }
                // Another endpoint.
                _ => return handle.close(from),
            };
            let Some(arriving) = &arriving else {
                result = done;
                return handle.stop();
            };
            progress.at(arriving.got, arriving.all);
            if let Err(error) = done {
                result = Err(error);
                handle.stop();
            } else if arriving.got == arriving.all
                && !handle.send(from, &arriving.digest.clone().finalize()).is_accepted()
            {
                result = Err("the digest could not be sent to the sender".into());
                handle.stop();
            }
        }
        Event::Closed { endpoint, reason } => {
            if let Some(Arriving { got, all, .. }) = arriving.as_ref().filter(|arriving| arriving.from == endpoint) {
                result = if got == all { Ok(*got) } else { Err(format!("{got} of {all} bytes only: {reason}").into()) };
                handle.stop();
            } else if endpoint == listener {
                result = Err(reason.to_string().into());
                handle.stop();
            }
        }
        _ => {}
    })?;
    println!("received and verified: {} bytes", result?);
    Ok(())
}

impl Arriving {
    /// Creates the file, after its length was received.
    fn new(path: &str, from: Endpoint, length: &[u8]) -> Result<Arriving, Box<dyn Error>> {
        let all = u64::from_be_bytes(length.try_into()?);
        let file = File::create(path).map_err(|error| format!("{path}: {error}"))?;
        Ok(Arriving { from, file, digest: Sha1::new(), got: 0, all })
    }

    /// Appends a chunk. Returns how many bytes were received so far.
    fn take(&mut self, bytes: &[u8]) -> Result<u64, Box<dyn Error>> {
        self.got += bytes.len() as u64;
        if self.got > self.all {
            return Err(format!("received more than the {} bytes that were announced", self.all).into());
        }
        self.file.write_all(bytes)?;
        self.digest.update(bytes);
        Ok(self.got)
    }
}
