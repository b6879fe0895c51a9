//! Credit: a cap on what is under way in a channel that has none of its own, so that a fast sender does not fill the
//! machine's memory, and mechanisms are compared with as much under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Messages that may be sent.
#[derive(Debug)]
struct Purse {
    free: AtomicUsize,
    /// How many are taken and given back at a time, so that the cost of counting is shared by many messages.
    handful: usize,
}

/// A sender's share.
#[derive(Debug)]
pub(crate) struct Spend {
    purse: Arc<Purse>,
    held: usize,
}

/// What the receiver has yet to give back.
#[derive(Debug)]
pub(crate) struct Refund {
    purse: Arc<Purse>,
    held: usize,
}

/// Credit for so many messages under way, of so many senders together.
pub(crate) fn credit(capacity: usize, senders: usize) -> (Spend, Refund) {
    let handful = (capacity / (4 * senders)).max(1);
    let purse = Arc::new(Purse { free: AtomicUsize::new(capacity), handful });
    (Spend { purse: Arc::clone(&purse), held: 0 }, Refund { purse, held: 0 })
}

impl Clone for Spend {
    /// Another sender's: what one holds is not the other's.
    fn clone(&self) -> Spend {
        Spend { purse: Arc::clone(&self.purse), held: 0 }
    }
}

impl Spend {
    /// Takes credit for one message; waits for it in the runtime's queue.
    #[inline]
    pub(crate) async fn take(&mut self) {
        while self.held == 0 {
            let Purse { free, handful } = &*self.purse;
            // Relaxed: only the number matters. The message itself is handed on by the channel.
            let taken = free
                .try_update(Ordering::Relaxed, Ordering::Relaxed, |free| (free > 0).then(|| free - free.min(*handful)));
            match taken {
                Ok(free) => self.held = free.min(*handful),
                Err(_) => tokio::task::yield_now().await,
            }
        }
        self.held -= 1;
    }
}

impl Refund {
    /// Gives back the credit of a message that has arrived. Less than a handful is withheld, and a handful is at most a
    /// quarter of the capacity: senders without credit have messages under way that will bring the rest.
    #[inline]
    pub(crate) fn give(&mut self) {
        self.held += 1;
        if self.held >= self.purse.handful {
            self.purse.free.fetch_add(self.held, Ordering::Relaxed);
            self.held = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn takes(spend: &mut Spend) -> bool {
        matches!(pin!(spend.take()).poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()))
    }

    #[test]
    fn no_more_is_under_way_than_there_is_credit_and_all_comes_back() {
        for (capacity, senders) in [(1, 1), (1, 3), (7, 2), (64, 1), (1024, 8)] {
            let (first, mut refund) = credit(capacity, senders);
            let mut spends: Vec<_> = (1..senders).map(|_| first.clone()).collect();
            spends.push(first);
            for _ in 0..3 {
                let mut under_way = 0;
                while spends.iter_mut().any(takes) {
                    under_way += 1;
                    assert!(under_way <= capacity);
                }
                assert!(under_way > capacity / 2, "{under_way} of {capacity}");
                (0..under_way).for_each(|_| refund.give());
            }
        }
    }
}
