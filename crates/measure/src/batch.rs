//! Batches: the innermost loops. They contain only calls of a mechanism's ends.
//!
//! Each loop is an async function. A party with its own thread calls the function of the same name
//! in [`blocking`] instead. That is a plain function, so the state of its ends stays in registers.
//! In the party's future, which is on the heap, every message would load and store that state
//! again. That doubles the time per message in the fastest cell.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{self, Poll};

use crate::case::TURN;
use crate::exchange::EXCHANGE;
use crate::mechanism::{Rx, Tx};
use crate::message::{Generator, Verifier};
use crate::schedule::yield_now;

/// The error that stopped a batch, and the end where it happened.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// The sending end.
    Sending(io::Error),
    /// The receiving end.
    Receiving(io::Error),
}

impl Stopped {
    /// Whether the stream has ended: every sender has closed, and nothing is left to receive.
    pub(crate) fn at_the_end(&self) -> bool {
        matches!(self, Stopped::Receiving(error) if error.kind() == io::ErrorKind::UnexpectedEof)
    }
}

/// The result of a batch.
pub(crate) type Ended = Result<(), Stopped>;

/// The sending and the receiving end of one side of a ping-pong.
#[derive(Debug)]
pub(crate) struct Duplex<T, R> {
    pub(crate) tx: T,
    pub(crate) rx: R,
}

/// A server's ends: one to receive from all clients, and one for the replies to each client or to
/// all of them.
#[derive(Debug)]
pub(crate) struct ServerEnds<T, R> {
    pub(crate) rx: R,
    pub(crate) txs: Vec<T>,
}

/// The state of a sender that switches between several connections.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    /// One end for each connection, or one for all.
    pub(crate) txs: Vec<T>,
    /// The messages of each connection.
    pub(crate) sources: Vec<Generator>,
    /// The connection that sends next.
    pub(crate) turn: usize,
}

/// Polls a future in a separate function, where no other loop competes for registers.
async fn poll_outlined<F: Future>(future: F) -> F::Output {
    #[inline(never)]
    fn poll<F: Future>(future: Pin<&mut F>, context: &mut task::Context<'_>) -> Poll<F::Output> {
        future.poll(context)
    }
    let mut future = pin!(future);
    poll_fn(|context| poll(future.as_mut(), context)).await
}

/// Sends `count` messages.
#[inline(always)]
pub(crate) async fn send<T: Tx>(tx: &mut T, source: &mut Generator, count: u64) -> Ended {
    poll_outlined(tx.send_all(source, count)).await.map_err(Stopped::Sending)
}

/// Receives `count` messages, or fewer if every producer has sent its end mark.
#[inline(always)]
pub(crate) async fn recv<R: Rx>(rx: &mut R, verifier: &mut Verifier, count: u64) -> Ended {
    poll_outlined(rx.recv_all(verifier, count)).await.map_err(Stopped::Receiving)
}

/// As [`recv`], but drops every receive that is not ready at once and starts a new one. Also
/// returns the number of dropped receives.
#[inline(always)]
pub(crate) async fn recv_dropping<R: Rx>(rx: &mut R, verifier: &mut Verifier, count: u64) -> (Ended, u64) {
    let mut dropped = 0;
    for _ in 0..count {
        loop {
            // The future is polled once and dropped at the end of the statement, at a varying
            // moment of the message's transfer.
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

/// Polls a future once and drops it after a short delay, which differs from call to call.
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

/// Makes `count` round trips: sends each request after the reply to the one before. Stops at a
/// damaged reply.
#[inline(always)]
pub(crate) async fn round_trip<T: Tx, R: Rx>(
    ends: &mut Duplex<T, R>,
    source: &mut Generator,
    verifier: &mut Verifier,
    count: u64,
) -> Ended {
    for _ in 0..count {
        ends.tx.send(source).await.map_err(Stopped::Sending)?;
        EXCHANGE.requester.set(source.made(), true);
        ends.rx.recv(verifier).await.map_err(Stopped::Receiving)?;
        EXCHANGE.requester.set(source.made(), false);
        if verifier.ended() {
            break;
        }
    }
    Ok(())
}

/// Replies to `count` requests, or to fewer if the end mark comes. It does not reply to the end
/// mark.
#[inline(always)]
pub(crate) async fn reply<T: Tx, R: Rx>(
    ends: &mut Duplex<T, R>,
    source: &mut Generator,
    verifier: &mut Verifier,
    count: u64,
) -> Ended {
    for _ in 0..count {
        ends.rx.recv(verifier).await.map_err(Stopped::Receiving)?;
        EXCHANGE.replier.set(source.made(), true);
        if verifier.ended() {
            break;
        }
        ends.tx.send(source).await.map_err(Stopped::Sending)?;
        EXCHANGE.replier.set(source.made(), false);
    }
    Ok(())
}

/// The same loops for a thread that may block.
///
/// None of these functions may be inlined into the party's future, or its state is in memory again.
/// The compiler knows that the `&mut` arguments of a function do not alias. That lets it keep their
/// state in registers.
pub(crate) mod blocking {
    use std::pin::pin;
    use std::task::{self, Poll, Waker};

    use super::{Duplex, EXCHANGE, Ended, Generator, Rx, ServerEnds, Stopped, TURN, Turns, Tx, Verifier};

    #[inline(never)]
    pub(crate) fn send<T: Tx>(tx: &mut T, source: &mut Generator, count: u64) -> Ended {
        // A release store of the mechanism forces the compiler to write everything behind a
        // reference to memory first. Such stores limit the speed of the fastest cell. The state of
        // a local variable stays in registers.
        let mut messages = source.take();
        let result = (0..count).try_for_each(|_| block(tx.send(&mut messages)).map_err(Stopped::Sending));
        *source = messages;
        result
    }

    /// Sends `count` messages: up to [`TURN`] on one connection, then up to as many on the next.
    #[inline(never)]
    pub(crate) fn send_in_turn<T: Tx>(turns: &mut Turns<T>, count: u64) -> Ended {
        let last = turns.txs.len() - 1;
        let mut left = count;
        while left > 0 {
            let in_this_turn = left.min(TURN);
            let tx = &mut turns.txs[turns.turn.min(last)];
            let source = &mut turns.sources[turns.turn];
            (0..in_this_turn).try_for_each(|_| block(tx.send(source))).map_err(Stopped::Sending)?;
            block(tx.flush()).map_err(Stopped::Sending)?;
            turns.turn = (turns.turn + 1) % turns.sources.len();
            left -= in_this_turn;
        }
        Ok(())
    }

    /// Sends the end mark on each connection.
    pub(crate) fn end_in_turn<T: Tx>(turns: &mut Turns<T>) -> Ended {
        let last = turns.txs.len() - 1;
        for (connection, source) in turns.sources.iter_mut().enumerate() {
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
    pub(crate) fn round_trip<T: Tx, R: Rx>(
        ends: &mut Duplex<T, R>,
        source: &mut Generator,
        verifier: &mut Verifier,
        count: u64,
    ) -> Ended {
        block(super::round_trip(ends, source, verifier, count))
    }

    #[inline(never)]
    pub(crate) fn reply<T: Tx, R: Rx>(
        ends: &mut Duplex<T, R>,
        source: &mut Generator,
        verifier: &mut Verifier,
        count: u64,
    ) -> Ended {
        block(super::reply(ends, source, verifier, count))
    }

    /// Replies to `count` requests, or to fewer if every client has sent its end mark. Each reply
    /// is in the sequence of its client and goes to the end of that client. An end mark is the
    /// reply to an end mark.
    #[inline(never)]
    pub(crate) fn serve<T: Tx, R: Rx>(
        ends: &mut ServerEnds<T, R>,
        sources: &mut [Generator],
        verifier: &mut Verifier,
        count: u64,
    ) -> Ended {
        for _ in 0..count {
            let ends_before = verifier.ends();
            block(ends.rx.recv(verifier)).map_err(Stopped::Receiving)?;
            EXCHANGE.replier.set(verifier.received(), true);
            if verifier.found_damage() {
                break;
            }
            let client = verifier.last().0;
            let source = &mut sources[client];
            if verifier.ends() > ends_before {
                source.end();
            }
            let last = ends.txs.len() - 1;
            block(ends.txs[client.min(last)].send(source)).map_err(Stopped::Sending)?;
            EXCHANGE.replier.set(verifier.received(), false);
            if verifier.ended() {
                break;
            }
        }
        Ok(())
    }

    /// Runs a future to completion on this thread. The future of a blocking mechanism is ready at
    /// the first poll.
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
        fn block_waits_for_a_pending_future() {
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
