//! Credit limits the number of messages in flight in a channel that has no limit of its own. So a
//! fast sender does not fill the machine's memory, and mechanisms are compared with the same number
//! in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The shared account of messages that may be sent.
#[derive(Debug)]
struct Account {
    free: AtomicUsize,
    /// How many messages' credit is transferred at a time. Batching spreads the cost of counting
    /// over several messages.
    batch_len: usize,
}

/// The sender's side.
#[derive(Debug)]
pub(crate) struct Spend {
    account: Arc<Account>,
    available: usize,
}

/// The receiver's side.
#[derive(Debug)]
pub(crate) struct Refund {
    account: Arc<Account>,
    withheld: usize,
}

/// Creates credit for `capacity` messages in flight, shared by `senders` senders.
pub(crate) fn credit(capacity: usize, senders: usize) -> (Spend, Refund) {
    let batch_len = (capacity / (4 * senders)).max(1);
    let account = Arc::new(Account { free: AtomicUsize::new(capacity), batch_len });
    (Spend { account: Arc::clone(&account), available: 0 }, Refund { account, withheld: 0 })
}

impl Clone for Spend {
    /// Creates another sender's side, without the credit that this one holds.
    fn clone(&self) -> Spend {
        Spend { account: Arc::clone(&self.account), available: 0 }
    }
}

impl Spend {
    /// Takes credit for one message. While there is none, yields to the runtime.
    #[inline]
    pub(crate) async fn take(&mut self) {
        while self.available == 0 {
            let Account { free, batch_len } = &*self.account;
            // Relaxed: only the number matters. The channel itself synchronises the message.
            let acquired = free.try_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
                (free > 0).then(|| free - free.min(*batch_len))
            });
            match acquired {
                Ok(free) => self.available = free.min(*batch_len),
                Err(_) => tokio::task::yield_now().await,
            }
        }
        self.available -= 1;
    }
}

impl Refund {
    /// Returns the credit of one received message. Less than a batch may remain here, and a batch
    /// is at most a quarter of the capacity. So senders without credit have messages in flight
    /// whose receipt will return more.
    #[inline]
    pub(crate) fn give(&mut self) {
        self.withheld += 1;
        if self.withheld >= self.account.batch_len {
            self.account.free.fetch_add(self.withheld, Ordering::Relaxed);
            self.withheld = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn try_take(spend: &mut Spend) -> bool {
        matches!(pin!(spend.take()).poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()))
    }

    #[test]
    fn messages_in_flight_stay_within_the_credit_and_all_credit_returns() {
        for (capacity, senders) in [(1, 1), (1, 3), (7, 2), (64, 1), (1024, 8)] {
            let (first, mut refund) = credit(capacity, senders);
            let mut spends: Vec<_> = (1..senders).map(|_| first.clone()).collect();
            spends.push(first);
            for _ in 0..3 {
                let mut in_flight = 0;
                while spends.iter_mut().any(try_take) {
                    in_flight += 1;
                    assert!(in_flight <= capacity);
                }
                assert!(in_flight > capacity / 2, "{in_flight} of {capacity}");
                (0..in_flight).for_each(|_| refund.give());
            }
        }
    }
}
