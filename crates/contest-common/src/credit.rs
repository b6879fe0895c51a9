//! Credit-based flow control between processes.
//!
//! Credit limits the number of messages in flight in a mechanism that has no limit of its own. So
//! mechanisms are compared with the same number in flight, and a server's memory does not fill up.
//!
//! A pipe stores the credit: one byte stands for a batch of messages. A consumer creates and fills
//! the pipe. Producers read bytes from it before they send, and the consumer writes them back. A
//! publisher takes credit from the pipe of each subscriber, so the slowest one limits it.

use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{AsFd, OwnedFd};

use anyhow::Result;
use estafette_measure::Rendezvous;
use estafette_measure::case::Case;

use crate::capacity::slots;

/// The number of batches into which each producer's share of the credit is divided.
const BATCHES: usize = 4;

/// The sender's side: takes credit before each message.
#[derive(Debug)]
pub struct Spend {
    /// One credit pipe for each consumer.
    credits: Vec<PipeReader>,
    available: usize,
    batch_len: usize,
}

/// The receiver's side: returns credit for each received message.
#[derive(Debug)]
pub struct Refund {
    credit: PipeWriter,
    withheld: usize,
    batch_len: usize,
}

/// Returns how many messages one byte of credit stands for. Batching spreads the cost of a pipe
/// operation over several messages. `parties` is the number of producers, or of consumers, that
/// share credit for `messages`.
fn batch_len(messages: usize, parties: usize) -> usize {
    (messages / (BATCHES * parties)).max(1)
}

impl Refund {
    /// Opens the end of the given consumer, and passes the credit pipe to the producers.
    ///
    /// # Errors
    ///
    /// If no pipe can be created, or the other party has exited.
    pub fn open(case: &Case, consumer: usize, rendezvous: &mut Rendezvous) -> Result<Refund> {
        let (theirs, refund) = Refund::filled(slots(case), case.streams())?;
        rendezvous.publish_descriptors(&format!("credit:{consumer}"), &[theirs.as_fd()])?;
        Ok(refund)
    }

    /// Opens the end of the given consumer where several consumers compete for the messages of one
    /// producer. They share credit for `messages`.
    ///
    /// # Errors
    ///
    /// If no pipe can be created, or the other party has exited.
    pub fn open_shared(messages: usize, case: &Case, consumer: usize, rendezvous: &mut Rendezvous) -> Result<Refund> {
        let consumers = case.consumers();
        if consumer > 0 {
            let [credit]: [OwnedFd; 1] = rendezvous.request_descriptors("refund")?;
            return Ok(Refund { credit: credit.into(), withheld: 0, batch_len: batch_len(messages, consumers) });
        }
        let (theirs, refund) = Refund::filled(messages, consumers)?;
        rendezvous.publish_descriptors("credit", &[theirs.as_fd()])?;
        rendezvous.publish_descriptors("refund", &[refund.credit.as_fd()])?;
        Ok(refund)
    }

    /// Creates a pipe that is filled with credit for `messages`.
    ///
    /// # Errors
    ///
    /// If no pipe can be created.
    pub fn filled(messages: usize, parties: usize) -> io::Result<(PipeReader, Refund)> {
        let (theirs, mut credit) = pipe()?;
        let batch_len = batch_len(messages, parties);
        credit.write_all(&vec![0; messages / batch_len])?;
        Ok((theirs, Refund { credit, withheld: 0, batch_len }))
    }

    /// Returns the credit of one received message.
    ///
    /// Credit is returned in whole batches. Less than a batch may remain here, and each producer
    /// that has ended may have kept as much. More than half of the credit stays available.
    ///
    /// # Errors
    ///
    /// If the pipe cannot be written.
    #[inline(always)]
    pub fn give(&mut self) -> io::Result<()> {
        self.withheld += 1;
        if self.withheld < self.batch_len {
            return Ok(());
        }
        self.withheld = 0;
        match self.credit.write_all(&[0]) {
            // A producer that has sent its last message needs no more credit.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            written => written,
        }
    }
}

impl Spend {
    /// Opens a producer's end.
    ///
    /// # Errors
    ///
    /// If a consumer has exited.
    pub fn open(case: &Case, rendezvous: &mut Rendezvous) -> Result<Spend> {
        let mut credits = Vec::new();
        for consumer in 0..case.consumers() {
            let [credit]: [OwnedFd; 1] = rendezvous.request_descriptors(&format!("credit:{consumer}"))?;
            credits.push(credit.into());
        }
        Ok(Spend { credits, available: 0, batch_len: batch_len(slots(case), case.streams()) })
    }

    /// Opens the end of a single producer whose consumers share credit for `messages`
    /// ([`Refund::open_shared`]).
    ///
    /// # Errors
    ///
    /// If the consumers have exited.
    pub fn open_shared(messages: usize, case: &Case, rendezvous: &mut Rendezvous) -> Result<Spend> {
        let [credit]: [OwnedFd; 1] = rendezvous.request_descriptors("credit")?;
        Ok(Spend { credits: vec![credit.into()], available: 0, batch_len: batch_len(messages, case.consumers()) })
    }

    /// Takes credit for one message. Blocks until there is some.
    ///
    /// # Errors
    ///
    /// If the pipe cannot be read because the consumer has exited.
    #[inline(always)]
    pub fn take(&mut self) -> io::Result<()> {
        if self.available == 0 {
            for credit in &mut self.credits {
                credit.read_exact(&mut [0])?;
            }
            self.available = self.batch_len;
        }
        self.available -= 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use estafette_measure::case::{Cell, Load, Pattern, Payload, Place};
    use estafette_measure::spec::{Runtime, Scope, Wait};
    use rustix::io::ioctl_fionbio;

    use super::*;

    fn case(capacity: usize, producers: usize) -> Case {
        let cell = Cell {
            scope: Scope::Process,
            pattern: Pattern::FanIn,
            payload: Payload::Bytes(8),
            producers,
            capacity,
            runtime: Runtime::Thread,
            wait: Wait::Block,
            place: Place::Free,
            load: Load::Saturated,
        };
        Case { mechanism: String::from("process/x"), cell }
    }

    #[test]
    fn messages_in_flight_stay_within_the_credit_and_all_credit_returns() {
        for (capacity, producers) in [(1, 1), (1, 3), (7, 2), (64, 1), (1024, 8), (65_536, 32)] {
            let case = case(capacity, producers);
            let (credit, mut refund) = Refund::filled(slots(&case), producers).unwrap();
            ioctl_fionbio(&credit, true).unwrap();
            let batch_len = batch_len(slots(&case), producers);
            let spend = || Spend { credits: vec![credit.try_clone().unwrap()], available: 0, batch_len };
            let mut spends: Vec<_> = (0..producers).map(|_| spend()).collect();
            for _ in 0..3 {
                let mut in_flight = 0;
                while spends.iter_mut().any(|spend| spend.take().is_ok()) {
                    in_flight += 1;
                    assert!(in_flight <= capacity);
                }
                assert!(in_flight > capacity / 2, "{in_flight} of {capacity}");
                (0..in_flight).for_each(|_| refund.give().unwrap());
            }
        }
    }

    #[test]
    fn returning_credit_after_the_producer_exited_succeeds() {
        let (credit, mut refund) = Refund::filled(1, 1).unwrap();
        drop(credit);
        refund.give().unwrap();
    }
}
