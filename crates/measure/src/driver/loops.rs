//! The timed loops of all patterns, monomorphised for every mechanism.
//!
//! A loop handles a batch of [`Meter::stride`] messages, then reads the clock. Inside a batch there
//! is one call of the mechanism's end for each message, which makes or checks the message, and one
//! comparison.
//!
//! If a mechanism's ends block, each party has its own thread. Then a batch is not awaited. A plain
//! function runs it, whose state stays in registers; see `batch.rs`. The code between two batches
//! is in `party.rs`.
//!
//! [`Meter::stride`]: crate::window::Meter::stride

use std::io::ErrorKind;

use anyhow::{Context, Result, bail};

use super::party::{Party, producer};
use crate::batch::{self, Duplex, ServerEnds, Stopped, Turns, blocking};
use crate::clock::now_ns;
use crate::exchange::EXCHANGE;
use crate::mechanism::{Mechanism, Rx, Tx};
use crate::parts::Holds;
use crate::protocol::PartyReport;
use crate::schedule::yield_now;
use crate::usage::Usage;

/// How many times the end mark of a lossy mechanism is sent, because one may be lost.
const LOSSY_END_MARKS: usize = 8;

impl Party {
    /// Runs the loop of this party. If the mechanism's ends block, plain functions run the batches.
    /// `M` decides this at compile time, so only one of the two variants is compiled.
    pub(super) async fn run<M: Mechanism, T: Tx, R: Rx>(
        self,
        holds: Holds<T, R>,
    ) -> Result<(PartyReport, Option<Usage>)> {
        match holds {
            Holds::Asking(ends) => self.ping::<M, _, _>(ends).await,
            Holds::Answering(ends) => self.pong::<M, _, _>(ends).await,
            // Servers are processes with blocking ends. For tasks the server's loop is not
            // compiled.
            Holds::Serving(ends) if M::BLOCKS => self.serve(ends).await,
            Holds::Serving(_) => bail!("a server of several clients needs ends that block: see Mechanism::BLOCKS"),
            Holds::SendingInTurn(txs) if M::BLOCKS => self.produce_in_turn(txs).await,
            Holds::SendingInTurn(_) => {
                bail!("a sender on several connections needs ends that block: see Mechanism::BLOCKS")
            }
            Holds::Sending(tx) if self.pacer.is_some() => self.produce_paced::<M, _>(tx).await,
            Holds::Sending(tx) => self.produce::<M, _>(tx).await,
            Holds::Receiving(rx) => self.consume::<M, _>(rx).await,
        }
    }

    /// Sends until the time is over or this producer's share is sent, then sends the end mark.
    async fn produce<M: Mechanism, T: Tx>(mut self, mut tx: T) -> Result<(PartyReport, Option<Usage>)> {
        loop {
            let before = self.source.made();
            let mut count = self.batch_to_send(before);
            if let Some(schedule) = &mut self.schedule {
                count = 1;
                let due_ns = schedule.due_ns(producer(self.role), self.source.made());
                // Every message that is due in the window is sent, even if the mechanism is late.
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
            let missing = (before + count).saturating_sub(self.source.made());
            if sending.is_ok() && missing > 0 {
                keep_open(tx);
                return Ok(self.not_filled(missing));
            }
            if self.has_sent(sending, self.source.made())? {
                break;
            }
        }
        self.produced::<M, _>(tx).await
    }

    /// As [`Party::produce`], on several connections in turn. Each connection has its own stream of
    /// messages.
    async fn produce_in_turn<T: Tx>(mut self, txs: Vec<T>) -> Result<(PartyReport, Option<Usage>)> {
        let sources = self.each_stream();
        let mut turns = Turns { txs, sources, turn: 0 };
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

    /// As [`Party::produce`], at the rate that the pacer of a lossy mechanism allows.
    async fn produce_paced<M: Mechanism, T: Tx>(mut self, mut tx: T) -> Result<(PartyReport, Option<Usage>)> {
        'stream: loop {
            for _ in 0..self.batch_to_send(self.source.made()) {
                if let Some(pacer) = &mut self.pacer {
                    pacer.wait();
                }
                match tx.send(&mut self.source).await {
                    // With many producers on few cores, some still send when the consumer has
                    // already closed.
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
            // The channel stays open until the consumer has measured its memory.
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
            // Errors are ignored: the receiver may have got one mark and closed before the others
            // arrive.
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
        let mut state = self.consumer_state()?;
        loop {
            let count = self.batch_to_get(&mut state);
            let got = if M::BLOCKS {
                blocking::recv(&mut rx, &mut self.verifier, count)
            } else if self.cancels {
                let (got, dropped) = batch::recv_dropping(&mut rx, &mut self.verifier, count).await;
                self.dropped += dropped;
                got
            } else {
                batch::recv(&mut rx, &mut self.verifier, count).await
            };
            if self.has_received(&mut state, got, count)? {
                break;
            }
        }
        if self.verifier.found_damage() {
            keep_open(rx);
        }
        self.consumer_report(state)
    }

    /// The requesting side of a ping-pong: sends a request and waits for the reply, over and over,
    /// and records the round-trip times.
    async fn ping<M: Mechanism, T: Tx, R: Rx>(
        mut self,
        mut ends: Duplex<T, R>,
    ) -> Result<(PartyReport, Option<Usage>)> {
        let mut state = Party::asking()?;
        loop {
            let before = self.source.made();
            let left = self.share.map_or(u64::MAX, |share| share - before);
            let round_trips = state.batch.min(left);
            let began_ns = now_ns();
            let done = if M::BLOCKS {
                blocking::round_trip(&mut ends, &mut self.source, &mut self.verifier, round_trips)
            } else {
                batch::round_trip(&mut ends, &mut self.source, &mut self.verifier, round_trips).await
            };
            if self.verifier.found_damage() {
                keep_open(ends);
                return self.asked(before, state);
            }
            let missing = (before + round_trips).saturating_sub(self.source.made());
            if done.is_ok() && missing > 0 {
                keep_open(ends);
                return Ok(self.not_filled(missing));
            }
            let mut is_replied = done.is_ok();
            done.or_else(|stopped| self.forgive(stopped))?;
            // A reply to an earlier request may arrive late. Receive until the reply to the last
            // request has come.
            while self.lossy && is_replied && self.verifier.progress().any(|(next, _)| next < self.source.made()) {
                let got = ends.rx.recv(&mut self.verifier).await.map_err(Stopped::Receiving);
                is_replied = got.is_ok();
                got.or_else(|stopped| self.forgive(stopped))?;
            }
            let now = now_ns();
            if self.has_asked(&mut state, now, is_replied.then(|| (now - began_ns, round_trips))) {
                break;
            }
        }
        let sent = self.source.made();
        self.meter.end(sent);
        self.send_end(&mut ends.tx).await?;
        EXCHANGE.requester.set(sent + 1, true);
        while !self.verifier.ended() {
            if let Err(error) = ends.rx.recv(&mut self.verifier).await {
                self.forgive(Stopped::Receiving(error))?;
                break;
            }
        }
        self.asked(sent, state)
    }

    /// The replying side of a ping-pong: replies to every request, and to the end mark with its own
    /// end mark.
    async fn pong<M: Mechanism, T: Tx, R: Rx>(
        mut self,
        mut ends: Duplex<T, R>,
    ) -> Result<(PartyReport, Option<Usage>)> {
        let mut received_ns = self.meter.now();
        loop {
            let before = self.source.made();
            let count = self.meter.stride(before);
            let done = if M::BLOCKS {
                blocking::reply(&mut ends, &mut self.source, &mut self.verifier, count)
            } else {
                batch::reply(&mut ends, &mut self.source, &mut self.verifier, count).await
            };
            if self.has_answered(done, before, &mut received_ns)? {
                break;
            }
        }
        let sent = self.source.made();
        self.meter.end(sent);
        if self.verifier.found_damage() {
            keep_open(ends);
        } else {
            self.send_end(&mut ends.tx).await?;
        }
        Ok(self.report(sent, sent, None))
    }

    /// The server of several clients: replies to every request and every end mark, until all
    /// clients have sent their end mark.
    async fn serve<T: Tx, R: Rx>(mut self, mut ends: ServerEnds<T, R>) -> Result<(PartyReport, Option<Usage>)> {
        let mut received_ns = self.meter.now();
        let mut sources = self.each_stream();
        loop {
            let before = self.verifier.received();
            let count = self.meter.stride(before);
            let done = blocking::serve(&mut ends, &mut sources, &mut self.verifier, count);
            if self.has_served(done, before, &mut received_ns)? {
                break;
            }
        }
        let served = self.verifier.received();
        self.close(served);
        if self.verifier.found_damage() {
            keep_open(ends);
            return Ok(self.report(served, served, None));
        }
        for tx in &mut ends.txs {
            tx.flush().await.context("flushing")?;
        }
        Ok(self.report(served, served, None))
    }
}

/// Leaves the ends of a party open that stops at a damaged message. Dropping them would close the
/// channel, and the other parties would report a closed peer instead of the damage. The coordinator
/// kills this child after its report.
fn keep_open<E>(ends: E) {
    std::mem::forget(ends);
}

/// Gives the other end of a burst time to run: sleeps, or yields the task.
async fn pause<M: Mechanism>() {
    if M::BLOCKS {
        std::thread::sleep(std::time::Duration::from_micros(100));
    } else {
        yield_now().await;
    }
}
