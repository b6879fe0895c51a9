//! The node, driven by tokio.
//!
//! What epoll has to tell makes epoll's own descriptor readable, which the runtime watches among all others. It is told once for
//! whatever comes while nobody looks, so the node looks until nothing is left before it waits for that again.

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

/// How many events are told before other tasks of the runtime have their turn.
const TURN: u32 = 128;

/// A [`Node`] that is awaited, in a task of a tokio runtime; with the feature `tokio`.
///
/// It is the same node: no thread is started, messages are lent from where they lie, and sending is for the [`Handle`], which
/// never waits.
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
/// assert!(handle.send(client, b"hello").taken());
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
    /// Becomes readable when something does that the node looks after.
    epoll: AsyncFd<OwnedFd>,
    /// How often the node has gone on since other tasks had their turn.
    turns: u32,
}

impl<S> AsyncNode<S> {
    /// Has a node driven by the runtime of the calling task. [`Node::spin`] is of no use there, and ends.
    ///
    /// # Errors
    ///
    /// If the system has no descriptors left.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, and in one that has no I/O. [`AsyncNode::next`] does where there is no timer.
    pub fn new(node: Node<S>) -> io::Result<AsyncNode<S>> {
        // What took its place is unsafe, for types whose descriptor may change or be closed: that of an `OwnedFd` does not.
        #[allow(deprecated, reason = "no unsafe code in this crate")]
        let epoll = AsyncFd::with_interest(node.backend.descriptor()?, Interest::READABLE)?;
        // What epoll told tokio once, it does not tell again.
        let mut node = node.spin(Duration::ZERO);
        node.always_waits = true;
        Ok(AsyncNode { node, epoll, turns: 0 })
    }

    /// A way to this node for any thread, and any task.
    pub fn handle(&self) -> Handle<S> {
        self.node.handle()
    }

    /// The next event; none after [`Handle::stop`], and events again if it is asked once more.
    ///
    /// It may be cancelled wherever it waits, as by `tokio::select!`, and nothing is lost: an event is told by the call that
    /// is ready with it, or by a later one. Other tasks have their turn at least every 128 events.
    ///
    /// # Errors
    ///
    /// As [`Node::next`].
    pub async fn next(&mut self) -> io::Result<Option<Event<'_, S>>> {
        let next = loop {
            if self.turns == TURN {
                // First, so that it is not due again if it is cancelled here.
                self.turns = 0;
                stand_back().await;
            }
            self.turns += 1;
            if let Some(next) = self.node.advance(Some(Duration::ZERO))? {
                break next;
            }
            if self.node.shared.stopped.swap(false, Ordering::SeqCst) {
                return Ok(None);
            }
            if !self.node.later.is_empty() || self.node.backend.may_have_more() {
                continue;
            }
            // If it is cancelled now, it counts as asleep until it goes on: somebody wakes it once in vain.
            let due = self.node.falls_asleep();
            if due.is_none_or(|at| at > Instant::now()) {
                wait(&self.epoll, due).await?;
                self.turns = 0;
            }
            self.node.shared.asleep.awake();
        };
        Ok(Some(self.node.told(next)))
    }
}

/// Waits until there is something to look at, or it is time.
async fn wait(epoll: &AsyncFd<OwnedFd>, until: Option<Instant>) -> io::Result<()> {
    let mut ready = match until {
        None => epoll.readable().await?,
        Some(at) => match timeout_at(at.into(), epoll.readable()).await {
            Ok(ready) => ready?,
            Err(_) => return Ok(()),
        },
    };
    // Before the node looks: what comes after this is told anew.
    ready.clear_ready();
    Ok(())
}

/// Lets other tasks have their turn.
async fn stand_back() {
    let mut stood_back = false;
    poll_fn(|context| {
        if mem::replace(&mut stood_back, true) {
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
