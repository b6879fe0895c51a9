//! Sends N messages of one size to output topic 0, then a last one.
//!
//! Arguments: the number of messages and the size of each in bytes, as `["1000000", "1000"]`. The
//! message contains random bytes that are generated once. The library describes its mark and its
//! checksum.

use std::env;
use std::process::exit;
use std::time::{Instant, SystemTime};

use estafette_example_functions::{mark, LAST_MARK, MARK};
use estafette_guest::{send_all, Outgoing, SendError};

/// The maximum number of bytes per call, unless a single message is longer.
const BYTES_PER_CALL: usize = 256 * 1024;
const MESSAGES_PER_CALL: usize = 512;

fn main() {
    let arguments: Option<Vec<usize>> =
        env::args().map(|text| text.parse().ok().filter(|&number| number > 0)).collect();
    let (messages, size) = match arguments.as_deref() {
        Some(&[messages, size]) => (messages, size),
        _ => fail("args must be two numbers from 1: the messages and the bytes of each"),
    };
    let start = Instant::now();
    if let Err(error) = send(messages, size) {
        fail(&error.to_string());
    }
    report(messages as u64 + 1, size as u64, start.elapsed().as_millis() as u64);
}

/// Sends `messages` marked messages and a last one.
fn send(messages: usize, size: usize) -> Result<(), SendError> {
    let mut message = random(size);
    mark(&mut message, MARK);
    let per_call = (BYTES_PER_CALL / size).clamp(1, MESSAGES_PER_CALL);
    let list = vec![Outgoing::new(0, &message); per_call];
    for _ in 0..messages / per_call {
        send_all(&list)?;
    }
    send_all(&list[..messages % per_call])?;
    mark(&mut message, LAST_MARK);
    estafette_guest::send(0, &message)
}

/// Random bytes: xorshift, seeded by the clock.
fn random(size: usize) -> Vec<u8> {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut state = since_1970.as_nanos() as u64 | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(size).collect()
}

fn report(messages: u64, size: u64, ms: u64) {
    println!("Sent {messages} messages in {ms} ms");
    println!("Message size {size} speed {} MiB/s", messages * size * 1000 / ms.max(1) / 1024 / 1024);
}

fn fail(reason: &str) -> ! {
    eprintln!("send: {reason}");
    exit(1)
}
