//! A bounded channel between threads: a queue under a mutex, and two condition variables. Replace
//! it with yours.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Makes a channel that holds at most `capacity` messages.
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let state = State { queue: VecDeque::with_capacity(capacity), senders: 1, has_receiver: true };
    let shared =
        Arc::new(Shared { state: Mutex::new(state), capacity, not_empty: Condvar::new(), not_full: Condvar::new() });
    (Sender(shared.clone()), Receiver(shared))
}

struct Shared<T> {
    state: Mutex<State<T>>,
    capacity: usize,
    not_empty: Condvar,
    not_full: Condvar,
}

struct State<T> {
    queue: VecDeque<T>,
    senders: usize,
    has_receiver: bool,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sending end. A clone sends to the same receiver.
pub struct Sender<T>(Arc<Shared<T>>);

impl<T> Sender<T> {
    /// Sends a message. Blocks while the channel is full.
    ///
    /// # Errors
    /// Returns the message if the receiver was dropped.
    pub fn send(&self, message: T) -> Result<(), T> {
        let is_full = |state: &mut State<T>| state.has_receiver && state.queue.len() >= self.0.capacity;
        let waited = self.0.not_full.wait_while(self.0.lock(), is_full);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if !state.has_receiver {
            return Err(message);
        }
        state.queue.push_back(message);
        self.0.not_empty.notify_one();
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.0.lock().senders += 1;
        Sender(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.lock().senders -= 1;
        self.0.not_empty.notify_one();
    }
}

/// The receiving end.
pub struct Receiver<T>(Arc<Shared<T>>);

impl<T> Receiver<T> {
    /// Receives a message. Blocks while the channel is empty. Returns `None` if it is empty and all
    /// senders were dropped.
    pub fn recv(&self) -> Option<T> {
        let is_empty = |state: &mut State<T>| state.senders > 0 && state.queue.is_empty();
        let waited = self.0.not_empty.wait_while(self.0.lock(), is_empty);
        let message = waited.unwrap_or_else(PoisonError::into_inner).queue.pop_front();
        self.0.not_full.notify_one();
        message
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.lock().has_receiver = false;
        self.0.not_full.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_in_order_until_the_senders_are_gone() {
        let (sender, receiver) = channel(2);
        let sending = std::thread::spawn(move || (0..100).try_for_each(|number| sender.send(number)));
        let received: Vec<i32> = std::iter::from_fn(|| receiver.recv()).collect();
        assert_eq!(received, (0..100).collect::<Vec<_>>());
        assert_eq!(sending.join().unwrap(), Ok(()));
    }

    #[test]
    fn a_message_without_a_receiver_comes_back() {
        let (sender, receiver) = channel(1);
        drop(receiver);
        assert_eq!(sender.send("hello"), Err("hello"));
    }
}
