//! Probes how many messages a channel accepts while nobody receives: its effective capacity,
//! whatever the library calls capacity.
//!
//! Every sender sends until a send would wait. The result is the number of sends that did not wait.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::{Channel, Outcome, TaskChannel, ThreadChannel};
use crate::capacity::{self, MOST};

/// Probes a channel between threads that was opened with the given capacity. Returns `None` if the
/// capacity cannot be probed.
pub fn of_threads<C: ThreadChannel>(capacity: usize, senders: usize) -> Option<u64> {
    let (txs, rx) = open::<C>(capacity, senders)?;
    let senders = txs.into_iter().map(|mut tx| move || C::send(&mut tx, 0).into_option().is_some());
    capacity::blocked(senders.collect(), rx)
}

/// As [`of_threads`], of a channel between tasks.
pub fn of_tasks<C: TaskChannel>(capacity: usize, senders: usize) -> Option<u64> {
    let (mut txs, _rx) = open::<C>(capacity, senders)?;
    // False if the send would wait or the receiver has closed.
    let try_send = |tx: &mut C::Tx<u64>| poll_once(C::send(tx, 0)).and_then(Outcome::into_option).is_some();
    Some(txs.iter_mut().map(|tx| capacity::times(|| try_send(tx))).sum())
}

/// Opens a channel and all its senders.
#[expect(clippy::type_complexity, reason = "the ends of a channel are associated types")]
fn open<C: Channel>(capacity: usize, senders: usize) -> Option<(Vec<C::Tx<u64>>, C::Rx<u64>)> {
    if capacity > MOST / 4 || C::supports(capacity, senders).is_err() {
        return None;
    }
    let (tx, rx) = C::open::<u64>(capacity, senders);
    let mut txs: Vec<_> = (1..senders).map(|_| tx.clone()).collect();
    txs.push(tx);
    Some((txs, rx))
}

/// Polls a future once. Returns its output if it is ready.
fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
