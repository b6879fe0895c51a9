//! Batches: the innermost loops, with nothing in them but a mechanism's ends and the messages.
//!
//! Each is written once, asynchronous. Where a party has a thread of its own it runs a batch by the function of the same
//! name in [`blocking`]. That is a plain function, so the state of its ends lives in registers; in the party's own future,
//! on the heap, every message would load and store it anew, which doubles the time of the tightest cell.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{self, Poll};

use crate::case::TURN;
use crate::mechanism::{Rx, Tx};
use crate::message::{Generator, Verifier};
use crate::schedule::yield_now;

/// Which of its ends a batch stopped at, and why.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// The sending end.
    Sending(io::Error),
    /// The receiving end.
    Receiving(io::Error),
}

impl Stopped {
    /// Whether there is nothing more to receive, as every sender has gone.
    pub(crate) fn at_the_end(&self) -> bool {
        matches!(self, Stopped::Receiving(error) if error.kind() == io::ErrorKind::UnexpectedEof)
    }
}

/// How a batch ended.
pub(crate) type Ended = Result<(), Stopped>;

/// The two directions of one side of a ping-pong.
#[derive(Debug)]
pub(crate) struct Duplex<T, R> {
    pub(crate) tx: T,
    pub(crate) rx: R,
}

/// A server's ends: one that hears all its clients, and one to answer each of them, or all.
#[derive(Debug)]
pub(crate) struct Several<T, R> {
    pub(crate) rx: R,
    pub(crate) txs: Vec<T>,
}

/// What sends on several connections by turns: an end for each of them, or one for all, and the messages of each.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    pub(crate) txs: Vec<T>,
    pub(crate) nexts: Vec<Generator>,
    /// Whose turn it is.
    pub(crate) turn: usize,
}

/// Polls a future by a function of its own, in which no other loop competes for registers.
async fn apart<F: Future>(future: F) -> F::Output {
    #[inline(never)]
    fn poll<F: Future>(future: Pin<&mut F>, context: &mut task::Context<'_>) -> Poll<F::Output> {
        future.poll(context)
    }
    let mut future = pin!(future);
    poll_fn(|context| poll(future.as_mut(), context)).await
}

/// Sends so many messages.
#[inline(always)]
pub(crate) async fn send<T: Tx>(tx: &mut T, source: &mut Generator, count: u64) -> Ended {
    apart(tx.send_all(source, count)).await.map_err(Stopped::Sending)
}

/// Receives so many messages, or until every producer has ended.
#[inline(always)]
pub(crate) async fn recv<R: Rx>(rx: &mut R, verifier: &mut Verifier, count: u64) -> Ended {
    apart(rx.recv_all(verifier, count)).await.map_err(Stopped::Receiving)
}

/// Receives so many messages, or until every producer has ended; drops every receive that has to wait, and asks again.
/// Returns how many were dropped.
#[inline(always)]
pub(crate) async fn recv_dropping<R: Rx>(rx: &mut R, verifier: &mut Verifier, count: u64) -> (Ended, u64) {
    let mut dropped = 0;
    for _ in 0..count {
        loop {
            // Polled once, then dropped at the end of the statement, at some moment of the message's way.
            let polled = poll_once(rx.recv(verifier), dropped).await;
            match polled {
                Poll::Ready(Ok(())) => break,
                Poll::Ready(Err(error)) => return (Err(Stopped::Receiving(error)), dropped),
                Poll::Pending => dropped += 1,
            }
            yield_now().await;
        }
        if verifier.ended() {
            break;
        }
    }
    (Ok(()), dropped)
}

/// Polls a future once, lets a moment pass that differs from call to call, and drops it.
async fn poll_once<F: Future>(future: F, salt: u64) -> Poll<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| {
        let polled = future.as_mut().poll(context);
        if polled.is_pending() {
            (0..salt.wrapping_mul(7) % 256).for_each(|_| std::hint::spin_loop());
        }
        Poll::Ready(polled)
    })
    .await
}

/// Asks so many questions, each after the answer to the one before.
#[inline(always)]
pub(crate) async fn ask<T: Tx, R: Rx>(
    ends: &mut Duplex<T, R>,
    source: &mut Generator,
    verifier: &mut Verifier,
    count: u64,
) -> Ended {
    for _ in 0..count {
        ends.tx.send(source).await.map_err(Stopped::Sending)?;
        ends.rx.recv(verifier).await.map_err(Stopped::Receiving)?;
    }
    Ok(())
}

/// Answers so many questions, or until the end mark, which it does not answer.
#[inline(always)]
pub(crate) async fn answer<T: Tx, R: Rx>(
    ends: &mut Duplex<T, R>,
    source: &mut Generator,
    verifier: &mut Verifier,
    count: u64,
) -> Ended {
    for _ in 0..count {
        ends.rx.recv(verifier).await.map_err(Stopped::Receiving)?;
        if verifier.ended() {
            break;
        }
        ends.tx.send(source).await.map_err(Stopped::Sending)?;
    }
    Ok(())
}

/// The same on a thread that may block.
///
/// Nothing may be inlined into the party's future, or its state is in memory again. That references given to a function do
/// not overlap is what lets the compiler keep them in registers.
pub(crate) mod blocking {
    use std::pin::pin;
    use std::task::{self, Poll, Waker};

    use super::{Duplex, Ended, Generator, Rx, Several, Stopped, TURN, Turns, Tx, Verifier};

    #[inline(never)]
    pub(crate) fn send<T: Tx>(tx: &mut T, source: &mut Generator, count: u64) -> Ended {
        // A mechanism's stores that release what was written keep everything behind a reference in memory, and the stores
        // of the tightest cell are what it waits for. A local's state is in registers.
        let mut messages = source.take();
        let put = (0..count).try_for_each(|_| block(tx.send(&mut messages)).map_err(Stopped::Sending));
        *source = messages;
        put
    }

    /// Sends so many messages, a turn's on each connection.
    #[inline(never)]
    pub(crate) fn send_in_turn<T: Tx>(turns: &mut Turns<T>, count: u64) -> Ended {
        let last = turns.txs.len() - 1;
        let mut left = count;
        while left > 0 {
            let here = left.min(TURN);
            let tx = &mut turns.txs[turns.turn.min(last)];
            let source = &mut turns.nexts[turns.turn];
            (0..here).try_for_each(|_| block(tx.send(source))).map_err(Stopped::Sending)?;
            block(tx.flush()).map_err(Stopped::Sending)?;
            turns.turn = (turns.turn + 1) % turns.nexts.len();
            left -= here;
        }
        Ok(())
    }

    /// Sends the mark that ends the stream of each connection.
    pub(crate) fn end_in_turn<T: Tx>(turns: &mut Turns<T>) -> Ended {
        let last = turns.txs.len() - 1;
        for (connection, source) in turns.nexts.iter_mut().enumerate() {
            source.end();
            let tx = &mut turns.txs[connection.min(last)];
            block(tx.send(source)).and_then(|()| block(tx.flush())).map_err(Stopped::Sending)?;
        }
        Ok(())
    }

    #[inline(never)]
    pub(crate) fn recv<R: Rx>(rx: &mut R, verifier: &mut Verifier, count: u64) -> Ended {
        rx.recv_all_blocking(verifier, count).map_err(Stopped::Receiving)
    }

    #[inline(never)]
    pub(crate) fn ask<T: Tx, R: Rx>(
        ends: &mut Duplex<T, R>,
        source: &mut Generator,
        verifier: &mut Verifier,
        count: u64,
    ) -> Ended {
        block(super::ask(ends, source, verifier, count))
    }

    #[inline(never)]
    pub(crate) fn answer<T: Tx, R: Rx>(
        ends: &mut Duplex<T, R>,
        source: &mut Generator,
        verifier: &mut Verifier,
        count: u64,
    ) -> Ended {
        block(super::answer(ends, source, verifier, count))
    }

    /// Answers so many questions, each in the sequence of the client that asked and on the end for it; end marks too, until
    /// every client's has come.
    #[inline(never)]
    pub(crate) fn serve<T: Tx, R: Rx>(
        ends: &mut Several<T, R>,
        nexts: &mut [Generator],
        verifier: &mut Verifier,
        count: u64,
    ) -> Ended {
        for _ in 0..count {
            let ends_before = verifier.ends();
            block(ends.rx.recv(verifier)).map_err(Stopped::Receiving)?;
            let client = verifier.last().0;
            let source = &mut nexts[client];
            if verifier.ends() > ends_before {
                source.end();
            }
            let last = ends.txs.len() - 1;
            block(ends.txs[client.min(last)].send(source)).map_err(Stopped::Sending)?;
            if verifier.ended() {
                break;
            }
        }
        Ok(())
    }

    /// Runs a future to its end on this thread. One of a blocking mechanism is ready at the first poll.
    #[inline(always)]
    pub(crate) fn block<F: Future>(future: F) -> F::Output {
        let mut future = pin!(future);
        match future.as_mut().poll(&mut task::Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => output,
            Poll::Pending => pollster::block_on(future),
        }
    }

    #[cfg(test)]
    mod tests {
        use std::future::poll_fn;

        use super::*;

        #[test]
        fn a_future_that_is_not_ready_is_waited_for() {
            let mut polls = 0;
            let future = poll_fn(|context| {
                polls += 1;
                if polls < 3 {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Ready(polls)
            });
            assert_eq!(block(future), 3);
        }
    }
}
