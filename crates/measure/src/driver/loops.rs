//! The timed loops, written once and monomorphised for every mechanism.
//!
//! A loop handles a batch of messages, then reads the clock: every [`Meter::stride`] messages. Inside a batch there is one
//! call of the mechanism's end, which makes or checks the message, and one comparison.
//!
//! Where a mechanism's ends block, and each party has a thread of its own, a batch is not awaited but run by a plain
//! function, in which its state lives in registers; see `batch.rs`. What lies between two batches is in `party.rs`.
//!
//! [`Meter::stride`]: crate::window::Meter::stride

use std::io::ErrorKind;

use anyhow::{Context, Result, bail};

use super::party::{Party, producer};
use crate::batch::{self, Duplex, Several, Stopped, Turns, blocking};
use crate::clock::now_ns;
use crate::mechanism::{Mechanism, Rx, Tx};
use crate::parts::Holds;
use crate::protocol::PartyReport;
use crate::schedule::yield_now;
use crate::usage::Usage;

/// How often a lossy mechanism's end mark is sent, as one may be lost.
const LOSSY_END_MARKS: usize = 8;

impl Party {
    /// A party's loop. Where the mechanism's ends block, batches are run by plain functions; `M` decides it as the program
    /// is compiled, so that only one of the two ways is.
    pub(super) async fn run<M: Mechanism, T: Tx, R: Rx>(
        self,
        holds: Holds<T, R>,
    ) -> Result<(PartyReport, Option<Usage>)> {
        match holds {
            Holds::Asking(ends) => self.ping::<M, _, _>(ends).await,
            Holds::Answering(ends) => self.pong::<M, _, _>(ends).await,
            // Servers are processes, and wait as one does. For tasks nothing of it is compiled.
            Holds::Serving(ends) if M::BLOCKS => self.serve(ends).await,
            Holds::Serving(_) => bail!("a server of several clients blocks; see Mechanism::BLOCKS"),
            Holds::SendingInTurn(txs) if M::BLOCKS => self.produce_in_turn(txs).await,
            Holds::SendingInTurn(_) => bail!("what sends on several connections blocks; see Mechanism::BLOCKS"),
            Holds::Sending(tx) if self.pacer.is_some() => self.produce_paced::<M, _>(tx).await,
            Holds::Sending(tx) => self.produce::<M, _>(tx).await,
            Holds::Receiving(rx) => self.consume::<M, _>(rx).await,
        }
    }

    /// Sends until the time is over or the share is sent, then the end mark.
    async fn produce<M: Mechanism, T: Tx>(mut self, mut tx: T) -> Result<(PartyReport, Option<Usage>)> {
        loop {
            let mut count = self.batch_to_send(self.source.made());
            if let Some(schedule) = self.schedule {
                count = 1;
                let due_ns = schedule.due_ns(producer(self.role), self.source.made());
                // What is due in the window is sent, however long the mechanism takes.
                if self.share.is_none() && self.meter.over(due_ns) {
                    break;
                }
                let late = if M::BLOCKS { schedule.spin(due_ns) } else { schedule.wait(due_ns).await };
                self.note_late(due_ns, late);
            }
            let sending = if M::BLOCKS {
                blocking::send(&mut tx, &mut self.source, count)
            } else {
                batch::send(&mut tx, &mut self.source, count).await
            };
            if self.has_sent(sending, self.source.made())? {
                break;
            }
        }
        self.produced::<M, _>(tx).await
    }

    /// As [`Party::produce`], on several connections in turn, each with a stream of its own.
    async fn produce_in_turn<T: Tx>(mut self, txs: Vec<T>) -> Result<(PartyReport, Option<Usage>)> {
        let nexts = self.each_stream();
        let mut turns = Turns { txs, nexts, turn: 0 };
        let mut sent = 0;
        loop {
            let count = self.turns_to_send(sent);
            let sending = blocking::send_in_turn(&mut turns, count);
            sent += count;
            if self.has_sent(sending, sent)? {
                break;
            }
        }
        self.meter.end(sent);
        blocking::end_in_turn(&mut turns).or_else(|stopped| self.forgive(stopped))?;
        Ok(self.report(sent, sent, None))
    }

    /// As [`Party::produce`], no faster than the mechanism can bear.
    async fn produce_paced<M: Mechanism, T: Tx>(mut self, mut tx: T) -> Result<(PartyReport, Option<Usage>)> {
        'stream: loop {
            for _ in 0..self.batch_to_send(self.source.made()) {
                if let Some(pacer) = &mut self.pacer {
                    pacer.wait();
                }
                match tx.send(&mut self.source).await {
                    // Of many producers on few cores some are still sending when the consumer has given up waiting.
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused && self.meter.over(self.meter.now()) => {
                        break 'stream;
                    }
                    sending => sending.context("sending")?,
                }
            }
            if self.has_sent_paced(&mut tx).await? {
                break;
            }
        }
        self.produced::<M, _>(tx).await
    }

    async fn produced<M: Mechanism, T: Tx>(mut self, mut tx: T) -> Result<(PartyReport, Option<Usage>)> {
        let sent = self.source.made();
        self.meter.end(sent);
        if let Some(burst) = &self.burst {
            // The channel stays open until its memory has been looked at.
            burst.set_sent();
            while !burst.is_received() {
                pause::<M>().await;
            }
        }
        if self.ends_by_close {
            tx.flush().await.context("flushing")?;
        } else {
            self.send_end(&mut tx).await?;
        }
        Ok(self.report(sent, sent, None))
    }

    async fn send_end<T: Tx>(&mut self, tx: &mut T) -> Result<()> {
        self.source.end();
        if self.lossy {
            // One of several will arrive; the receiver that has it may be gone when the others come.
            for _ in 0..LOSSY_END_MARKS {
                let _ = tx.send(&mut self.source.clone()).await;
                let _ = tx.flush().await;
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            return Ok(());
        }
        tx.send(&mut self.source).await.context("sending the end mark")?;
        tx.flush().await.context("flushing")
    }

    /// Receives until every producer has ended.
    async fn consume<M: Mechanism, R: Rx>(mut self, mut rx: R) -> Result<(PartyReport, Option<Usage>)> {
        if let Some(burst) = &self.burst {
            while !burst.is_sent() {
                pause::<M>().await;
            }
        }
        let mut hearing = self.hear()?;
        loop {
            let count = self.batch_to_get(&mut hearing);
            let got = if M::BLOCKS {
                blocking::recv(&mut rx, &mut self.verifier, count)
            } else if self.cancels {
                let (got, dropped) = batch::recv_dropping(&mut rx, &mut self.verifier, count).await;
                self.dropped += dropped;
                got
            } else {
                batch::recv(&mut rx, &mut self.verifier, count).await
            };
            if self.has_received(&mut hearing, got, count)? {
                break;
            }
        }
        if self.verifier.stopped() {
            // To those that still send it would be gone, and that is not what happened. The child is ended as it reports.
            std::mem::forget(rx);
        }
        self.heard(hearing)
    }

    /// Asks and waits for the answer, over and over, and notes how long it took.
    async fn ping<M: Mechanism, T: Tx, R: Rx>(
        mut self,
        mut ends: Duplex<T, R>,
    ) -> Result<(PartyReport, Option<Usage>)> {
        let mut asking = Party::asking()?;
        loop {
            let left = self.share.map_or(u64::MAX, |share| share - self.source.made());
            let round_trips = asking.batch.min(left);
            let asked_ns = now_ns();
            let asked = if M::BLOCKS {
                blocking::ask(&mut ends, &mut self.source, &mut self.verifier, round_trips)
            } else {
                batch::ask(&mut ends, &mut self.source, &mut self.verifier, round_trips).await
            };
            let mut answered = asked.is_ok();
            asked.or_else(|stopped| self.forgive(stopped))?;
            // An answer that came late is not the answer to the question asked since.
            while self.lossy && answered && self.verifier.progress().any(|(next, _)| next < self.source.made()) {
                let got = ends.rx.recv(&mut self.verifier).await.map_err(Stopped::Receiving);
                answered = got.is_ok();
                got.or_else(|stopped| self.forgive(stopped))?;
            }
            let now = now_ns();
            if self.has_asked(&mut asking, now, answered.then(|| (now - asked_ns, round_trips))) {
                break;
            }
        }
        let sent = self.source.made();
        self.meter.end(sent);
        self.send_end(&mut ends.tx).await?;
        while !self.verifier.ended() {
            if let Err(error) = ends.rx.recv(&mut self.verifier).await {
                self.forgive(Stopped::Receiving(error))?;
                break;
            }
        }
        self.asked(sent, asking)
    }

    /// Answers until the end mark, and that too.
    async fn pong<M: Mechanism, T: Tx, R: Rx>(
        mut self,
        mut ends: Duplex<T, R>,
    ) -> Result<(PartyReport, Option<Usage>)> {
        let mut heard_ns = self.meter.now();
        loop {
            let before = self.source.made();
            let count = self.meter.stride(before);
            let done = if M::BLOCKS {
                blocking::answer(&mut ends, &mut self.source, &mut self.verifier, count)
            } else {
                batch::answer(&mut ends, &mut self.source, &mut self.verifier, count).await
            };
            if self.has_answered(done, before, &mut heard_ns)? {
                break;
            }
        }
        let sent = self.source.made();
        self.meter.end(sent);
        self.send_end(&mut ends.tx).await?;
        Ok(self.report(sent, sent, None))
    }

    /// Answers the questions of several until each has sent its end mark, and these too.
    async fn serve<T: Tx, R: Rx>(mut self, mut ends: Several<T, R>) -> Result<(PartyReport, Option<Usage>)> {
        let mut heard_ns = self.meter.now();
        let mut nexts = self.each_stream();
        loop {
            let before = self.verifier.received();
            let count = self.meter.stride(before);
            let done = blocking::serve(&mut ends, &mut nexts, &mut self.verifier, count);
            if self.has_served(done, before, &mut heard_ns)? {
                break;
            }
        }
        let served = self.verifier.received();
        self.close(served);
        for tx in &mut ends.txs {
            tx.flush().await.context("flushing")?;
        }
        Ok(self.report(served, served, None))
    }
}

/// Lets the other end of a burst go on.
async fn pause<M: Mechanism>() {
    if M::BLOCKS {
        std::thread::sleep(std::time::Duration::from_micros(100));
    } else {
        yield_now().await;
    }
}
