//! The native pair: two or three processes that do the guests' work over the same ring, without a
//! sandbox.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use estafette_ipc::WaitMode;
use estafette_ipc::group::{BellFile, ClaimError, Interrupt, Member, Publisher, RingFile};

use super::{Error, Load, Receiver};

/// The argument after which the program is one of the native processes: the ring is its standard
/// input, the bell its standard output.
pub(super) const ARGUMENT: &str = "native";

/// The capacity of a topic, and the most that a receiver takes at once, as a pipeline has them.
const CAPACITY: usize = 4 << 20;
const BATCH: (usize, usize) = (128 << 10, 4096);

/// Runs the processes to their end. Returns the milliseconds that the receiver took.
pub(super) fn run(receiver: Receiver, load: Load) -> Result<f64, Error> {
    let members = if receiver == Receiver::Compete { 2 } else { 1 };
    let (ring, bell) = (RingFile::create(CAPACITY, members)?, BellFile::create()?);
    let start = |arguments: &[String], stderr: Stdio| -> Result<Child, Error> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(ARGUMENT).args(arguments).stderr(stderr);
        command.stdin(Stdio::from(ring.as_fd().try_clone_to_owned()?));
        command.stdout(Stdio::from(bell.as_fd().try_clone_to_owned()?));
        Ok(command.spawn()?)
    };
    let work = if receiver == Receiver::Checksum { "checksum" } else { "count" };
    let receivers = (0..members).map(|member| start(&[work.into(), member.to_string()], Stdio::piped()));
    let receivers = receivers.collect::<Result<Vec<_>, _>>()?;
    let mut sender = start(&["send".into(), load.messages.to_string(), load.size.to_string()], Stdio::inherit())?;
    let (mut ms, mut received) = (None, 0);
    for mut receiver in receivers {
        let mut text = String::new();
        receiver.stderr.take().ok_or("no stderr")?.read_to_string(&mut text)?;
        receiver.wait()?;
        let (count, time) = text.trim().split_once(' ').ok_or_else(|| format!("a receiver failed: {text}"))?;
        received += count.parse::<u64>()?;
        ms = ms.or(time.parse().ok());
    }
    sender.wait()?;
    if received != load.messages + 1 {
        return Err(format!("{received} messages were received, {} were sent", load.messages + 1).into());
    }
    ms.ok_or_else(|| "no receiver had the last message".into())
}

/// Does the work of one of the processes.
pub(super) fn serve(arguments: Vec<String>) {
    let work = || -> Result<(), Error> {
        let own = |descriptor: &dyn AsFd| -> Result<OwnedFd, Error> { Ok(descriptor.as_fd().try_clone_to_owned()?) };
        let ring = RingFile::from_fd(own(&std::io::stdin())?)?;
        let bell = BellFile::from_fd(own(&std::io::stdout())?)?;
        let number = |at: usize| -> Result<u64, Error> { Ok(arguments.get(at).ok_or("too few arguments")?.parse()?) };
        match arguments.first().map(String::as_str) {
            Some("send") => send(&ring, &bell, Load { messages: number(1)?, size: number(2)? as usize }),
            Some("count") => receive(ring, &bell, number(1)? as usize, None),
            _ => receive(ring, &bell, number(1)? as usize, Some(&Crc::new())),
        }
    };
    if let Err(error) = work() {
        eprintln!("{error}");
        std::process::exit(2);
    }
}

/// Copies one message into the ring over and over, in batches like those of the guest.
fn send(ring: &RingFile, bell: &BellFile, load: Load) -> Result<(), Error> {
    let mut publisher = Publisher::open(ring, bell, WaitMode::Adaptive, Interrupt::new())?;
    let mut message: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(load.size).collect();
    let (crc, batch) = (Crc::new(), (0x40000 / load.size as u64).clamp(1, 512));
    crc.seal(&mut message, b'S');
    let mut left = load.messages;
    while left > 0 {
        let count = left.min(batch);
        publisher.send_batch((0..count).map(|_| &message[..]))?;
        left -= count;
    }
    crc.seal(&mut message, b'F');
    publisher.send(&message)?;
    publisher.close();
    Ok(())
}

/// Copies each message into its own memory, and prints to stderr how many there were, and the
/// milliseconds if it had the last.
fn receive(ring: RingFile, bell: &BellFile, member: usize, crc: Option<&Crc>) -> Result<(), Error> {
    let mut member = Member::open(vec![ring], bell, member, WaitMode::Adaptive, Interrupt::new())?;
    let (mut own, mut count, mut start, mut ms) = (vec![0; BATCH.0], 0u64, None, String::from("-"));
    loop {
        let claim = match member.claim(BATCH.0, BATCH.1) {
            Ok(claim) => claim,
            Err(ClaimError::Closed) => break,
            Err(error) => return Err(error.into()),
        };
        let start = *start.get_or_insert_with(Instant::now);
        let mut at = 0;
        for message in claim.messages() {
            if at + message.len() > own.len() {
                at = 0;
                own.resize(own.len().max(message.len()), 0);
            }
            let copy = &mut own[at..at + message.len()];
            copy.copy_from_slice(&message);
            at += message.len();
            count += 1;
            if let Some(crc) = crc {
                let (checked, sum) = copy.split_at(copy.len() - 4);
                assert_eq!(crc.of(checked).to_le_bytes(), sum, "message {count} has a wrong checksum");
            }
            if std::hint::black_box(&copy)[0] == b'F' {
                ms = format!("{:.3}", start.elapsed().as_secs_f64() * 1e3);
            }
        }
        claim.ack();
    }
    eprintln!("{count} {ms}");
    Ok(())
}

/// CRC-32 as in zlib, 16 bytes at a time: slicing-by-16, as the guests do it.
struct Crc(Box<[[u32; 256]; 16]>);

impl Crc {
    fn new() -> Crc {
        let mut tables = Box::new([[0u32; 256]; 16]);
        for byte in 0..256 {
            tables[0][byte] =
                (0..8).fold(byte as u32, |crc, _| (crc >> 1) ^ (0xEDB8_8320 & 0u32.wrapping_sub(crc & 1)));
        }
        for table in 1..16 {
            for byte in 0..256 {
                let before = tables[table - 1][byte];
                tables[table][byte] = (before >> 8) ^ tables[0][before as usize & 255];
            }
        }
        Crc(tables)
    }

    fn of(&self, bytes: &[u8]) -> u32 {
        let tables = &self.0;
        let (chunks, rest) = bytes.as_chunks::<16>();
        let mut crc = u32::MAX;
        for chunk in chunks {
            let mut mixed = *chunk;
            mixed.iter_mut().zip(crc.to_le_bytes()).for_each(|(byte, crc)| *byte ^= crc);
            crc = (0..16).fold(0, |sum, at| sum ^ tables[15 - at][mixed[at] as usize]);
        }
        !rest.iter().fold(crc, |crc, byte| (crc >> 8) ^ tables[0][(crc as u8 ^ byte) as usize])
    }

    /// Marks a message in its first byte, and puts its checksum into the last four.
    fn seal(&self, message: &mut [u8], mark: u8) {
        message[0] = mark;
        if let Some(at) = message.len().checked_sub(4).filter(|at| *at > 0) {
            let sum = self.of(&message[..at]).to_le_bytes();
            message[at..].copy_from_slice(&sum);
        }
    }
}
