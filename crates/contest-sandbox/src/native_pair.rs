//! The lower bound of pipelines: two or three processes that do the work of the functions over
//! rings of estafette-ipc, without a sandbox.
//!
//! The sender repeatedly copies one buffer into the ring, in batches like those of the guest. A
//! receiver copies each message into its own memory, as a host does for a function.

use std::hint::black_box;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use estafette_ipc::WaitMode;
use estafette_ipc::group::{BellFile, ClaimError, Interrupt, Member, Publisher, RingFile};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Standing, Tier};
use estafette_measure::{Mechanism, PipelineEnd, Rendezvous, Spec};

use super::crc::Crc;
use super::rows::{self, LAST, MAX_MESSAGE, NOT_LAST, PIPELINES};

/// The capacity of a topic in bytes, and the largest batch of a receiver, as in a pipeline.
const CAPACITY: usize = 4 << 20;
const BATCH_BYTES: usize = 128 << 10;
const BATCH_MESSAGES: usize = 4096;
/// The largest batch that the guest sends in one call, in bytes and in messages.
const SEND_BYTES: u64 = 256 << 10;
const SEND_MESSAGES: u64 = 512;

/// `sandbox/native-pair`.
#[derive(Debug)]
pub struct NativePair;

impl Mechanism for NativePair {
    fn spec(&self) -> Spec {
        Spec::new("sandbox/native-pair")
            .version(env!("CARGO_PKG_VERSION"))
            .implementation("processes that do the functions' work over the same ring, no sandbox")
            .patterns(&PIPELINES)
            .standing(Standing::Reference)
            .max_message(MAX_MESSAGE)
            .tier(Tier::Suite)
    }

    fn roles(&self, case: &Case) -> Vec<Role> {
        rows::ends(case)
    }

    fn pipeline(
        &self,
        case: &Case,
        role: Role,
        messages: u64,
        rendezvous: &mut Rendezvous,
    ) -> Result<Vec<PipelineEnd>> {
        let (ring, bell) = if role == Role::Consumer(0) { create(case, rendezvous)? } else { open(rendezvous)? };
        let crc = Crc::new();
        let Role::Consumer(index) = role else {
            let mut publisher = Publisher::open(&ring, &bell, WaitMode::Adaptive, Interrupt::new())?;
            let mut message = vec![0; case.payload.len()];
            getrandom::fill(&mut message).context("random bytes")?;
            rendezvous.wait_at_barrier()?;
            send(&mut publisher, &mut message, messages, &crc)?;
            publisher.close();
            return Ok(vec![PipelineEnd::sender(messages + 1)]);
        };
        let mut member = Member::open(vec![ring], &bell, index, WaitMode::Adaptive, Interrupt::new())?;
        rendezvous.wait_at_barrier()?;
        let received = receive(&mut member, (case.pattern == Pattern::SendChecksum).then_some(&crc))?;
        Ok(vec![PipelineEnd::receiver(index, received.count, received.time).damaged(received.damaged)])
    }
}

fn create(case: &Case, rendezvous: &mut Rendezvous) -> Result<(RingFile, BellFile)> {
    let (ring, bell) = (RingFile::create(CAPACITY, case.consumers())?, BellFile::create()?);
    rendezvous.publish_descriptors("ring", &[ring.as_fd(), bell.as_fd()])?;
    Ok((ring, bell))
}

fn open(rendezvous: &mut Rendezvous) -> Result<(RingFile, BellFile)> {
    let [ring, bell]: [OwnedFd; 2] = rendezvous.request_descriptors("ring")?;
    Ok((RingFile::from_fd(ring)?, BellFile::from_fd(bell)?))
}

/// Sends a message `messages` times, and once more marked as the last.
fn send(publisher: &mut Publisher, message: &mut [u8], messages: u64, crc: &Crc) -> Result<()> {
    let batch = (SEND_BYTES / message.len() as u64).clamp(1, SEND_MESSAGES);
    crc.seal(message, NOT_LAST);
    let mut remaining = messages;
    while remaining > 0 {
        let count = remaining.min(batch);
        publisher.send_batch((0..count).map(|_| &message[..]))?;
        remaining -= count;
    }
    crc.seal(message, LAST);
    Ok(publisher.send(message)?)
}

/// What a receiver counted.
#[derive(Debug, Default)]
struct Received {
    count: u64,
    damaged: u64,
    /// The time from its first message to the last message, if it received that one.
    time: Option<Duration>,
}

/// Copies each message into its own memory until the ring is closed. Verifies it if `crc` is given.
fn receive(member: &mut Member, crc: Option<&Crc>) -> Result<Received> {
    let (mut own, mut start, mut received) = (vec![0; BATCH_BYTES], None, Received::default());
    loop {
        let claim = match member.claim(BATCH_BYTES, BATCH_MESSAGES) {
            Ok(claim) => claim,
            Err(ClaimError::Closed) => return Ok(received),
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
            received.count += 1;
            received.damaged += u64::from(crc.is_some_and(|crc| !crc.is_intact(copy)));
            if black_box(&copy)[0] == LAST {
                received.time = Some(start.elapsed());
            }
        }
        claim.ack();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates the ends of a ring for one receiver.
    fn ends() -> (Publisher, Member) {
        let (ring, bell) = (RingFile::create(CAPACITY, 1).unwrap(), BellFile::create().unwrap());
        let publisher = Publisher::open(&ring, &bell, WaitMode::Block, Interrupt::new()).unwrap();
        (publisher, Member::open(vec![ring], &bell, 0, WaitMode::Block, Interrupt::new()).unwrap())
    }

    #[test]
    fn all_messages_are_received_and_the_last_sets_the_time() {
        let ((mut publisher, mut member), crc) = (ends(), Crc::new());
        send(&mut publisher, &mut [1; 1000], 700, &crc).unwrap();
        publisher.close();
        let received = receive(&mut member, Some(&crc)).unwrap();
        assert_eq!((received.count, received.damaged), (701, 0));
        assert!(received.time.is_some());
    }

    #[test]
    fn a_damaged_message_is_counted() {
        let ((mut publisher, mut member), crc) = (ends(), Crc::new());
        let mut message = [1; 100];
        crc.seal(&mut message, NOT_LAST);
        publisher.send(&message).unwrap();
        message[50] ^= 1;
        publisher.send(&message).unwrap();
        publisher.close();
        let received = receive(&mut member, Some(&crc)).unwrap();
        assert_eq!((received.count, received.damaged, received.time), (2, 1, None));
    }
}
