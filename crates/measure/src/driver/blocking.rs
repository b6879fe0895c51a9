//! Runs the loops of ends that block their thread.
//!
//! Each batch is a function that is not inlined. In the loop's future, which is on the heap, every
//! message would load and store the state of the ends. That doubles the time per message in the
//! fastest cell. The compiler knows that the `&mut` arguments of a function do not alias, so it
//! keeps their state in registers. A single message is a batch of one: so the code of the ends,
//! most of what a mechanism's crate compiles, is not compiled again for it.

use std::hint::spin_loop;
use std::mem::forget;

use anyhow::Result;

use super::receive::ReceiveLoop;
use super::reply::ReplyLoop;
use super::request::RequestLoop;
use super::send::SendLoop;
use super::serve::ServeLoop;
use super::step::{Action, ActionResult, Control, EndError, PartyResult, Step, Waiting};
use super::turns::TurnsLoop;
use crate::clock::now_ns;
use crate::exchange::EXCHANGE;
use crate::loop_ends::{BothEnds, ServerEnds};
use crate::mechanism::{Rx, Tx};
use crate::message::{Generator, Verifier};
use crate::pattern::TURN;

/// Runs a loop to its end. `act` calls the ends.
#[inline(always)]
fn run<E, C: Control>(
    mut ends: E,
    mut control: C,
    act: impl Fn(&mut E, &mut C, Action) -> ActionResult,
) -> Result<PartyResult> {
    loop {
        match control.next()? {
            Step::Act(action) => {
                let ended = act(&mut ends, &mut control, action);
                control.handle(action, ended)?;
            }
            Step::Wait(waiting) => control.waited(wait(waiting)),
            Step::Done => break,
        }
    }
    if control.keeps_open() {
        forget(ends);
    }
    control.finish()
}

/// Waits. Returns the time at which it ended; `None` if the time had come before it began.
fn wait(waiting: Waiting) -> Option<u64> {
    let due_ns = match waiting {
        Waiting::About(time) => {
            std::thread::sleep(time);
            return Some(now_ns());
        }
        Waiting::Until(due_ns) => due_ns,
    };
    let mut now = now_ns();
    if now >= due_ns {
        return None;
    }
    while now < due_ns {
        spin_loop();
        now = now_ns();
    }
    Some(now)
}

/// Runs the loop of a producer.
pub(super) fn send<T: Tx>(tx: T, control: SendLoop) -> Result<PartyResult> {
    run(tx, control, |tx, control, action| match action {
        Action::Flush => flush(tx),
        Action::Batch(count) => send_batch(tx, &mut control.source, count),
        Action::Send => send_batch(tx, &mut control.source, 1),
        Action::Receive => unreachable!("a producer does not receive"),
    })
}

/// Runs the loop of a consumer.
pub(super) fn receive<R: Rx>(rx: R, control: ReceiveLoop) -> Result<PartyResult> {
    run(rx, control, |rx, control, action| match action {
        Action::Batch(count) => receive_batch(rx, &mut control.verifier, count),
        _ => unreachable!("a consumer only receives"),
    })
}

/// Runs the requesting loop of a round trip.
pub(super) fn request<T: Tx, R: Rx>(ends: BothEnds<T, R>, control: RequestLoop) -> Result<PartyResult> {
    run(ends, control, |ends, control, action| match action {
        Action::Batch(count) => round_trips(ends, &mut control.source, &mut control.verifier, count),
        Action::Send => send_batch(&mut ends.tx, &mut control.source, 1),
        Action::Receive => receive_batch(&mut ends.rx, &mut control.verifier, 1),
        Action::Flush => flush(&mut ends.tx),
    })
}

/// Runs the replying loop of a round trip.
pub(super) fn reply<T: Tx, R: Rx>(ends: BothEnds<T, R>, control: ReplyLoop) -> Result<PartyResult> {
    run(ends, control, |ends, control, action| match action {
        Action::Batch(count) => replies(ends, &mut control.source, &mut control.verifier, count),
        Action::Send => send_batch(&mut ends.tx, &mut control.source, 1),
        Action::Receive => receive_batch(&mut ends.rx, &mut control.verifier, 1),
        Action::Flush => flush(&mut ends.tx),
    })
}

/// Runs the loop of a server of several clients.
pub(super) fn serve<T: Tx, R: Rx>(ends: ServerEnds<T, R>, control: ServeLoop) -> Result<PartyResult> {
    run(ends, control, |ends, control, action| match action {
        Action::Batch(count) => serve_batch(ends, &mut control.sources, &mut control.verifier, count),
        Action::Flush => ends.txs.iter_mut().try_for_each(flush),
        Action::Send | Action::Receive => unreachable!("a server replies in batches"),
    })
}

/// Runs the loop of a sender on several connections. There is one end for each connection, or one
/// for all.
pub(super) fn send_in_turn<T: Tx>(txs: Vec<T>, control: TurnsLoop) -> Result<PartyResult> {
    run(txs, control, |txs, control, action| {
        match action {
            Action::Batch(count) => turns(txs, &mut control.sources, &mut control.turn, count),
            // The end mark of each connection.
            Action::Send => {
                let last = txs.len() - 1;
                control.sources.iter_mut().enumerate().try_for_each(|(connection, source)| {
                    let tx = &mut txs[connection.min(last)];
                    tx.send(source).map_err(EndError::Sending)?;
                    flush(tx)
                })
            }
            Action::Receive | Action::Flush => unreachable!("a sender on several connections flushes at each turn"),
        }
    })
}

fn flush<T: Tx>(tx: &mut T) -> ActionResult {
    tx.flush().map_err(EndError::Sending)
}

#[inline(never)]
fn send_batch<T: Tx>(tx: &mut T, source: &mut Generator, count: u64) -> ActionResult {
    // A release store of the mechanism forces the compiler to write everything behind a reference to memory first. Such stores limit the
    // speed of the fastest cell. The state of a local variable stays in registers.
    let mut messages = source.take();
    let result = (0..count).try_for_each(|_| tx.send(&mut messages)).map_err(EndError::Sending);
    *source = messages;
    result
}

#[inline(never)]
fn receive_batch<R: Rx>(rx: &mut R, verifier: &mut Verifier, count: u64) -> ActionResult {
    rx.recv_all(verifier, count).map_err(EndError::Receiving)
}

/// Makes `count` round trips: sends each request after the reply to the one before. Stops at a
/// damaged reply.
#[inline(never)]
fn round_trips<T: Tx, R: Rx>(
    BothEnds { tx, rx }: &mut BothEnds<T, R>,
    source: &mut Generator,
    verifier: &mut Verifier,
    count: u64,
) -> ActionResult {
    for _ in 0..count {
        tx.send(source).map_err(EndError::Sending)?;
        EXCHANGE.requester.set(source.made(), true);
        rx.recv(verifier).map_err(EndError::Receiving)?;
        EXCHANGE.requester.set(source.made(), false);
        if verifier.ended() {
            break;
        }
    }
    Ok(())
}

/// Replies to `count` requests, or to fewer if the end mark comes. It does not reply to the end
/// mark.
#[inline(never)]
fn replies<T: Tx, R: Rx>(
    BothEnds { tx, rx }: &mut BothEnds<T, R>,
    source: &mut Generator,
    verifier: &mut Verifier,
    count: u64,
) -> ActionResult {
    for _ in 0..count {
        rx.recv(verifier).map_err(EndError::Receiving)?;
        EXCHANGE.replier.set(source.made(), true);
        if verifier.ended() {
            break;
        }
        tx.send(source).map_err(EndError::Sending)?;
        EXCHANGE.replier.set(source.made(), false);
    }
    Ok(())
}

/// Replies to `count` requests, or to fewer if every client has sent its end mark. Each reply is in
/// the sequence of its client and goes to the end of that client. An end mark is the reply to an
/// end mark.
#[inline(never)]
fn serve_batch<T: Tx, R: Rx>(
    ends: &mut ServerEnds<T, R>,
    sources: &mut [Generator],
    verifier: &mut Verifier,
    count: u64,
) -> ActionResult {
    let last = ends.txs.len() - 1;
    for _ in 0..count {
        let ends_before = verifier.ends();
        ends.rx.recv(verifier).map_err(EndError::Receiving)?;
        EXCHANGE.replier.set(verifier.received(), true);
        if verifier.found_damage() {
            break;
        }
        let client = verifier.last().0;
        let source = &mut sources[client];
        if verifier.ends() > ends_before {
            source.end();
        }
        ends.txs[client.min(last)].send(source).map_err(EndError::Sending)?;
        EXCHANGE.replier.set(verifier.received(), false);
        if verifier.ended() {
            break;
        }
    }
    Ok(())
}

/// Sends `count` messages: up to [`TURN`] on one connection, then up to as many on the next. `turn`
/// is the connection that sends next.
#[inline(never)]
fn turns<T: Tx>(txs: &mut [T], sources: &mut [Generator], turn: &mut usize, count: u64) -> ActionResult {
    let last = txs.len() - 1;
    let mut left = count;
    while left > 0 {
        let in_this_turn = left.min(TURN);
        let tx = &mut txs[(*turn).min(last)];
        let source = &mut sources[*turn];
        (0..in_this_turn).try_for_each(|_| tx.send(source)).map_err(EndError::Sending)?;
        flush(tx)?;
        *turn = (*turn + 1) % sources.len();
        left -= in_this_turn;
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
        let ended_ns = wait(Waiting::Until(due_ns)).unwrap_or(due_ns);
        assert!(ended_ns >= due_ns && now_ns() >= ended_ns);
        let began_ns = now_ns();
        assert!(wait(Waiting::About(Duration::from_micros(10))).unwrap() >= began_ns + 10_000);
        assert_eq!(wait(Waiting::Until(0)), None, "what is due already is not waited for");
    }
}
