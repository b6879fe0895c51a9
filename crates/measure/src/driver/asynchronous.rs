//! Runs the loops of ends that are futures.

use std::future::{Future, poll_fn};
use std::mem::forget;
use std::pin::{Pin, pin};
use std::task::{self, Poll};

use anyhow::Result;

use super::party::LoopSetup;
use super::receive::ReceiveLoop;
use super::reply::ReplyLoop;
use super::request::RequestLoop;
use super::send::SendLoop;
use super::step::{Action, ActionResult, Control as _, EndError, PartyResult, Step, Waiting};
use crate::clock::now_ns;
use crate::exchange::EXCHANGE;
use crate::loop_ends::BothEnds;
use crate::mechanism::{AsyncRx, AsyncTx};
use crate::message::{Generator, Verifier};
use crate::schedule::yield_now;

/// Runs a loop to its end, as `run` of [`super::blocking`]. It is a macro because the future of a
/// closure cannot be said to be `Send`.
macro_rules! run {
    ($ends:ident, $control:ident, |$action:ident| $act:expr) => {{
        loop {
            match $control.next()? {
                Step::Act($action) => {
                    let ended = $act;
                    $control.handle($action, ended)?;
                }
                Step::Wait(waiting) => $control.waited(wait(waiting).await),
                Step::Done => break,
            }
        }
        if $control.keeps_open() {
            forget($ends);
        }
        $control.finish()
    }};
}

/// Waits, and lets other tasks run. Returns the time at which it ended; `None` if the time had come
/// before it began.
async fn wait(waiting: Waiting) -> Option<u64> {
    let due_ns = match waiting {
        Waiting::About(_) => {
            yield_now().await;
            return Some(now_ns());
        }
        Waiting::Until(due_ns) => due_ns,
    };
    let mut now = now_ns();
    if now >= due_ns {
        return None;
    }
    while now < due_ns {
        yield_now().await;
        now = now_ns();
    }
    Some(now)
}

/// Runs the loop of a producer.
pub(super) async fn send<T: AsyncTx>(mut tx: T, setup: LoopSetup) -> Result<PartyResult> {
    let mut control = SendLoop::new(setup);
    run!(tx, control, |action| match action {
        Action::Flush => flush(&mut tx).await,
        // One call: the future of a batch is compiled once for each mechanism.
        Action::Batch(_) | Action::Send => {
            let count = if let Action::Batch(count) = action { count } else { 1 };
            send_batch(&mut tx, &mut control.source, count).await
        }
        Action::Receive => unreachable!("a producer does not receive"),
    })
}

/// Runs the loop of a consumer.
pub(super) async fn receive<R: AsyncRx>(mut rx: R, setup: LoopSetup) -> Result<PartyResult> {
    let mut control = ReceiveLoop::new(setup)?;
    run!(rx, control, |action| {
        let Action::Batch(count) = action else { unreachable!("a consumer only receives") };
        if control.drops_receives {
            let (ended, dropped) = receive_dropping(&mut rx, &mut control.verifier, count).await;
            control.dropped += dropped;
            ended
        } else {
            receive_batch(&mut rx, &mut control.verifier, count).await
        }
    })
}

/// Runs the requesting loop of a round trip.
pub(super) async fn request<T: AsyncTx, R: AsyncRx>(mut ends: BothEnds<T, R>, setup: LoopSetup) -> Result<PartyResult> {
    let mut control = RequestLoop::new(setup)?;
    run!(ends, control, |action| match action {
        Action::Batch(count) => round_trips(&mut ends, &mut control.source, &mut control.verifier, count).await,
        Action::Send => send_batch(&mut ends.tx, &mut control.source, 1).await,
        Action::Receive => receive_batch(&mut ends.rx, &mut control.verifier, 1).await,
        Action::Flush => flush(&mut ends.tx).await,
    })
}

/// Runs the replying loop of a round trip.
pub(super) async fn reply<T: AsyncTx, R: AsyncRx>(mut ends: BothEnds<T, R>, setup: LoopSetup) -> Result<PartyResult> {
    let mut control = ReplyLoop::new(setup);
    run!(ends, control, |action| match action {
        Action::Batch(count) => replies(&mut ends, &mut control.source, &mut control.verifier, count).await,
        Action::Send => send_batch(&mut ends.tx, &mut control.source, 1).await,
        Action::Receive => receive_batch(&mut ends.rx, &mut control.verifier, 1).await,
        Action::Flush => flush(&mut ends.tx).await,
    })
}

async fn flush<T: AsyncTx>(tx: &mut T) -> ActionResult {
    tx.flush().await.map_err(EndError::Sending)
}

#[inline(always)]
async fn send_batch<T: AsyncTx>(tx: &mut T, source: &mut Generator, count: u64) -> ActionResult {
    poll_outlined(tx.send_all(source, count)).await.map_err(EndError::Sending)
}

#[inline(always)]
async fn receive_batch<R: AsyncRx>(rx: &mut R, verifier: &mut Verifier, count: u64) -> ActionResult {
    poll_outlined(rx.recv_all(verifier, count)).await.map_err(EndError::Receiving)
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

/// As [`receive_batch`], but drops every receive that is not ready at once and starts a new one.
/// Also returns the number of dropped receives.
async fn receive_dropping<R: AsyncRx>(rx: &mut R, verifier: &mut Verifier, count: u64) -> (ActionResult, u64) {
    let mut dropped = 0;
    for _ in 0..count {
        loop {
            // The future is polled once and dropped at the end of the statement, at a varying
            // moment of the message's transfer.
            let polled = poll_once(rx.recv(verifier), dropped).await;
            match polled {
                Poll::Ready(Ok(())) => break,
                Poll::Ready(Err(error)) => return (Err(EndError::Receiving(error)), dropped),
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
async fn round_trips<T: AsyncTx, R: AsyncRx>(
    BothEnds { tx, rx }: &mut BothEnds<T, R>,
    source: &mut Generator,
    verifier: &mut Verifier,
    count: u64,
) -> ActionResult {
    for _ in 0..count {
        tx.send(source).await.map_err(EndError::Sending)?;
        EXCHANGE.requester.set(source.made(), true);
        rx.recv(verifier).await.map_err(EndError::Receiving)?;
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
async fn replies<T: AsyncTx, R: AsyncRx>(
    BothEnds { tx, rx }: &mut BothEnds<T, R>,
    source: &mut Generator,
    verifier: &mut Verifier,
    count: u64,
) -> ActionResult {
    for _ in 0..count {
        rx.recv(verifier).await.map_err(EndError::Receiving)?;
        EXCHANGE.replier.set(source.made(), true);
        if verifier.ended() {
            break;
        }
        tx.send(source).await.map_err(EndError::Sending)?;
        EXCHANGE.replier.set(source.made(), false);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn waiting_ends_at_the_time_and_not_before() {
        let due_ns = now_ns() + 200_000;
        assert!(pollster::block_on(wait(Waiting::Until(due_ns))).unwrap_or(due_ns) >= due_ns);
        let began_ns = now_ns();
        assert!(pollster::block_on(wait(Waiting::About(Duration::from_secs(9)))).unwrap() >= began_ns);
        assert_eq!(pollster::block_on(wait(Waiting::Until(0))), None, "what is due already is not waited for");
    }
}
