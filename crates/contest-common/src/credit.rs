//! Credit between processes: a cap on what is under way in a mechanism that has none of its own, so that mechanisms are
//! compared with as much under way, and a server's memory is not filled.
//!
//! A pipe holds the credit, a byte for a handful of messages. A consumer makes and fills it; producers take out, the
//! consumer puts back. Who publishes to several takes out of the pipe of each: the slowest holds it back.

use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{AsFd, OwnedFd};

use anyhow::Result;
use estafette_measure::Rendezvous;
use estafette_measure::case::Case;

use crate::capacity::slots;

/// Into so many handfuls each producer's share of the credit is divided.
const HANDFULS: usize = 4;

/// A producer's share.
#[derive(Debug)]
pub struct Spend {
    /// Of each consumer.
    credits: Vec<PipeReader>,
    held: usize,
    handful: usize,
}

/// What the consumer has yet to give back.
#[derive(Debug)]
pub struct Refund {
    credit: PipeWriter,
    held: usize,
    handful: usize,
}

/// How many messages are taken and given back at a time, so that the cost of counting is shared by many: of credit for so many
/// `messages`, which so many producers, or consumers, share.
fn handful(messages: usize, parties: usize) -> usize {
    (messages / (HANDFULS * parties)).max(1)
}

impl Refund {
    /// Opens the end of the consumer of this number, and offers the producers theirs.
    ///
    /// # Errors
    ///
    /// If no pipe can be made, or the other party has gone.
    pub fn open(case: &Case, consumer: usize, rendezvous: &mut Rendezvous) -> Result<Refund> {
        let (theirs, refund) = Refund::filled(slots(case), case.senders())?;
        rendezvous.offer_descriptors(&format!("credit:{consumer}"), &[theirs.as_fd()])?;
        Ok(refund)
    }

    /// Opens the end of the consumer of this number, of several that compete for what one producer sends: they share credit for
    /// `messages`.
    ///
    /// # Errors
    ///
    /// If no pipe can be made, or the other party has gone.
    pub fn open_shared(messages: usize, case: &Case, consumer: usize, rendezvous: &mut Rendezvous) -> Result<Refund> {
        let consumers = case.consumers();
        if consumer > 0 {
            let [credit]: [OwnedFd; 1] = rendezvous.request_descriptors("refund")?;
            return Ok(Refund { credit: credit.into(), held: 0, handful: handful(messages, consumers) });
        }
        let (theirs, refund) = Refund::filled(messages, consumers)?;
        rendezvous.offer_descriptors("credit", &[theirs.as_fd()])?;
        rendezvous.offer_descriptors("refund", &[refund.credit.as_fd()])?;
        Ok(refund)
    }

    /// A pipe that holds credit for so many messages.
    ///
    /// # Errors
    ///
    /// If no pipe can be made.
    pub fn filled(messages: usize, parties: usize) -> io::Result<(PipeReader, Refund)> {
        let (theirs, mut credit) = pipe()?;
        let handful = handful(messages, parties);
        credit.write_all(&vec![0; messages / handful])?;
        Ok((theirs, Refund { credit, held: 0, handful }))
    }

    /// Gives back the credit of a message that has arrived. Less than a handful is withheld, and each producer that has
    /// ended may have kept as much: of all there is, more than half is left.
    ///
    /// # Errors
    ///
    /// If the pipe cannot be written.
    #[inline(always)]
    pub fn give(&mut self) -> io::Result<()> {
        self.held += 1;
        if self.held < self.handful {
            return Ok(());
        }
        self.held = 0;
        match self.credit.write_all(&[0]) {
            // A producer that has sent its last message takes no more.
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
    /// If a consumer has gone.
    pub fn open(case: &Case, rendezvous: &mut Rendezvous) -> Result<Spend> {
        let mut credits = Vec::new();
        for consumer in 0..case.consumers() {
            let [credit]: [OwnedFd; 1] = rendezvous.request_descriptors(&format!("credit:{consumer}"))?;
            credits.push(credit.into());
        }
        Ok(Spend { credits, held: 0, handful: handful(slots(case), case.senders()) })
    }

    /// Opens the end of the only producer, where its consumers share credit for `messages` ([`Refund::open_shared`]).
    ///
    /// # Errors
    ///
    /// If the consumers have gone.
    pub fn open_shared(messages: usize, case: &Case, rendezvous: &mut Rendezvous) -> Result<Spend> {
        let [credit]: [OwnedFd; 1] = rendezvous.request_descriptors("credit")?;
        Ok(Spend { credits: vec![credit.into()], held: 0, handful: handful(messages, case.consumers()) })
    }

    /// Takes credit for one message; waits for it where there is none.
    ///
    /// # Errors
    ///
    /// If the pipe cannot be read, as the consumer has gone.
    #[inline(always)]
    pub fn take(&mut self) -> io::Result<()> {
        if self.held == 0 {
            for credit in &mut self.credits {
                credit.read_exact(&mut [0])?;
            }
            self.held = self.handful;
        }
        self.held -= 1;
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
    fn no_more_is_under_way_than_there_is_credit_and_all_comes_back() {
        for (capacity, producers) in [(1, 1), (1, 3), (7, 2), (64, 1), (1024, 8), (65_536, 32)] {
            let case = case(capacity, producers);
            let (credit, mut refund) = Refund::filled(slots(&case), producers).unwrap();
            ioctl_fionbio(&credit, true).unwrap();
            let handful = handful(slots(&case), producers);
            let spend = || Spend { credits: vec![credit.try_clone().unwrap()], held: 0, handful };
            let mut spends: Vec<_> = (0..producers).map(|_| spend()).collect();
            for _ in 0..3 {
                let mut under_way = 0;
                while spends.iter_mut().any(|spend| spend.take().is_ok()) {
                    under_way += 1;
                    assert!(under_way <= capacity);
                }
                assert!(under_way > capacity / 2, "{under_way} of {capacity}");
                (0..under_way).for_each(|_| refund.give().unwrap());
            }
        }
    }

    #[test]
    fn a_producer_that_has_gone_needs_no_credit() {
        let (credit, mut refund) = Refund::filled(1, 1).unwrap();
        drop(credit);
        refund.give().unwrap();
    }
}
