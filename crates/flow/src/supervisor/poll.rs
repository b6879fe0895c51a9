//! Waits for file descriptors, for messages of other threads, and for a timeout, by epoll.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;

/// Identifies a file descriptor that is ready, as given when it was added.
pub(super) type Token = u64;

/// The token for messages from other threads.
pub(super) const MAILBOX: Token = u64::MAX;

/// The file descriptors to wait for, and a mailbox for messages of the type `T`.
pub(super) struct Poll<T> {
    epoll: OwnedFd,
    waker: Arc<OwnedFd>,
    mailbox: Receiver<T>,
    sender: Sender<T>,
}

/// Sends to the mailbox of a [`Poll`], from any thread.
pub(crate) struct Mailbox<T> {
    sender: Sender<T>,
    waker: Arc<OwnedFd>,
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Mailbox<T> {
        Mailbox { sender: self.sender.clone(), waker: Arc::clone(&self.waker) }
    }
}

impl<T> Mailbox<T> {
    /// Sends a message. Drops it if nobody reads the mailbox any more.
    pub(crate) fn send(&self, message: T) {
        if self.sender.send(message).is_ok() {
            // Fails only if the counter is full, which wakes the reader as well.
            let _ = rustix::io::write(&*self.waker, &1u64.to_ne_bytes());
        }
    }
}

impl<T> Poll<T> {
    pub(super) fn new() -> io::Result<Poll<T>> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let waker = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        epoll::add(&epoll, &waker, EventData::new_u64(MAILBOX), EventFlags::IN)?;
        let (sender, mailbox) = channel();
        Ok(Poll { epoll, waker, mailbox, sender })
    }

    pub(super) fn mailbox(&self) -> Mailbox<T> {
        Mailbox { sender: self.sender.clone(), waker: Arc::clone(&self.waker) }
    }

    /// Adds a file descriptor to wait for, until it is removed.
    pub(super) fn add(&self, descriptor: impl AsFd, token: Token) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, descriptor, EventData::new_u64(token), EventFlags::IN)?)
    }

    /// Removes a file descriptor. Call it before the descriptor is closed.
    pub(super) fn remove(&self, descriptor: impl AsFd) {
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// Returns the tokens of all descriptors that are ready. Waits for at most `timeout`.
    pub(super) fn wait(&self, timeout: Duration) -> io::Result<Vec<Token>> {
        let mut events = Vec::with_capacity(64);
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(events.iter().map(|event| event.data.u64()).collect())
    }

    /// Takes all messages of the mailbox. Does not block.
    pub(super) fn messages(&self) -> Vec<T> {
        let _ = rustix::io::read(&*self.waker, &mut [0; 8]);
        self.mailbox.try_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_descriptors_wake() {
        let poll = Poll::new().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        poll.add(&reader, 7).unwrap();
        assert!(poll.wait(Duration::ZERO).unwrap().is_empty());
        let mailbox = poll.mailbox();
        std::thread::spawn(move || mailbox.send("hello")).join().unwrap();
        assert_eq!(poll.wait(Duration::from_secs(60)).unwrap(), [MAILBOX]);
        assert_eq!(poll.messages(), ["hello"]);
        rustix::io::write(&writer, b"x").unwrap();
        assert_eq!(poll.wait(Duration::from_secs(60)).unwrap(), [7]);
        poll.remove(&reader);
        assert!(poll.wait(Duration::ZERO).unwrap().is_empty());
    }
}
