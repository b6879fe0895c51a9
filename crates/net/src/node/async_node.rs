//! A [`Node`] driven by tokio.
//!
//! epoll's own descriptor becomes readable when it has events, and the runtime watches that
//! descriptor. It is edge-triggered: events that arrive unobserved cause one notification only. So
//! the node polls until nothing is left before it waits again.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout_at;

use super::Node;
use crate::event::Event;
use crate::handle::Handle;

/// How many events are delivered before the task yields to others.
const TURN: u32 = 128;

/// A [`Node`] whose events are awaited in a task of a tokio runtime. Needs the feature `tokio`.
///
/// It works like [`Node`]: it starts no thread of its own for I/O, messages are borrowed, and the
/// [`Handle`] sends and never blocks.
///
/// ```
/// use estafette_net::{AsyncNode, Event, Node};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut node = AsyncNode::new(Node::<()>::new()?)?;
/// let handle = node.handle();
/// let listener = handle.listen("tcp+msg://127.0.0.1:0")?;
/// let client = handle.connect(&handle.local_address(listener).unwrap())?;
/// assert!(handle.send(client, b"hello").is_accepted());
/// while let Some(event) = node.next().await? {
///     if let Event::Message(_, message) = event {
///         assert_eq!(*message, *b"hello");
///         handle.stop();
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct AsyncNode<S = ()> {
    node: Node<S>,
    /// Becomes readable when epoll has events for the node.
    epoll: AsyncFd<OwnedFd>,
    /// How many events were delivered since the task last yielded.
    turns: u32,
}

impl<S> AsyncNode<S> {
    /// Creates a node that the runtime of the calling task drives. This switches [`Node::spin`]
    /// off.
    ///
    /// # Errors
    ///
    /// If the process has no file descriptors left.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, or if the runtime has no I/O driver. [`AsyncNode::next`] panics
    /// if the runtime has no timer.
    pub fn new(node: Node<S>) -> io::Result<AsyncNode<S>> {
        // The replacement for `with_interest` is unsafe, for types whose descriptor may change or
        // be closed. That of an `OwnedFd` cannot.
        #[allow(deprecated, reason = "no unsafe code in this crate")]
        let epoll = AsyncFd::with_interest(node.backend.descriptor()?, Interest::READABLE)?;
        // epoll does not report again what it has reported to tokio, so spinning is off.
        let mut node = node.spin(Duration::ZERO);
        node.polling.always_poll();
        Ok(AsyncNode { node, epoll, turns: 0 })
    }

    /// Returns a handle, which any thread and any task can use to control this node.
    pub fn handle(&self) -> Handle<S> {
        self.node.handle()
    }

    /// Returns the next event, or `None` after [`Handle::stop`]. A later call returns events again,
    /// unless the node [has shut down](Handle::shutdown).
    ///
    /// This method is cancel safe: if it is dropped, as by `tokio::select!`, a later call returns
    /// the event. It yields to other tasks at least every 128 events.
    ///
    /// # Errors
    ///
    /// As [`Node::next`].
    pub async fn next(&mut self) -> io::Result<Option<Event<'_, S>>> {
        let next = loop {
            if self.turns == TURN {
                // Reset first, so that a call cancelled here does not yield again.
                self.turns = 0;
                yield_once().await;
            }
            self.turns += 1;
            if let Some(next) = self.node.advance(Some(Duration::ZERO))? {
                break next;
            }
            if self.node.shared.stopped.swap(false, Ordering::SeqCst) {
                return Ok(None);
            }
            if self.node.turns.has_later() || self.node.backend.may_have_more() {
                continue;
            }
            // If the call is cancelled here, the node counts as asleep until the next call. The
            // cost is one needless wake-up.
            let due = self.node.prepare_sleep();
            if due.is_none_or(|at| at > Instant::now()) {
                wait(&self.epoll, due).await?;
                self.turns = 0;
            }
            self.node.shared.asleep.awake();
        };
        Ok(Some(self.node.make_event(next)))
    }
}

/// Waits until epoll has events, or until the deadline.
async fn wait(epoll: &AsyncFd<OwnedFd>, until: Option<Instant>) -> io::Result<()> {
    let mut ready = match until {
        None => epoll.readable().await?,
        Some(at) => match timeout_at(at.into(), epoll.readable()).await {
            Ok(ready) => ready?,
            Err(_) => return Ok(()),
        },
    };
    // Cleared before the node polls: what arrives afterwards causes a new notification.
    ready.clear_ready();
    Ok(())
}

/// Yields to other tasks once.
async fn yield_once() {
    let mut yielded = false;
    poll_fn(|context| {
        if mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl<S> fmt::Debug for AsyncNode<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncNode").field("endpoints", &self.node.shared.count()).finish_non_exhaustive()
    }
}
