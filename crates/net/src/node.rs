//! The node: an event loop on one thread that serves every connection and reports events.

#[cfg(feature = "tokio")]
mod async_node;
mod counting;
mod deadline_heap;
mod deadlines;
mod delivery;
mod ending;
mod entry;
mod half;
mod lost;
mod names;
mod opening;
#[cfg(test)]
mod orders;
mod outbox;
mod pausing;
mod polling;
mod reader;
mod reading;
mod shutdown;
mod turns;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::mem;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[cfg(feature = "tokio")]
pub use self::async_node::AsyncNode;
use self::deadline_heap::DeadlineHeap;
use self::entry::Entry;
use self::outbox::Outbox;
use self::polling::Polling;
use self::reader::Reader;
use self::turns::Turns;
use crate::backend::{Backend, BackendPair, Ready, epoll};
use crate::codec::Kind;
use crate::command::Command;
use crate::connection::{Connection, Flushed};
use crate::event::{Endpoint, Event, Reason};
use crate::handle::Handle;
use crate::incoming::{Incoming, MessageLocation, after};
use crate::limits::Limits;
use crate::lock::lock;
use crate::shared::Shared;
use crate::slab::Key;
use crate::slice::TimeSlice;
use crate::transport::{Inproc, Tcp, Transport, Udp, Unix};

/// Owns every connection and serves them in the thread that calls [`Node::run`], [`Node::poll`] or
/// [`Node::next`].
///
/// Use a [`Handle`] to send, connect and listen. It works from any thread, and inside an event
/// callback.
///
/// `S` is the type of the program's own signals: [`Handle::signal`] passes a value to the node's
/// thread, which delivers it as [`Event::Signal`]. A program without signals uses `()`.
///
/// Dropping a node ends every connection at once and discards what is still queued. To have it
/// written, call [`Handle::close`] and keep running the node until `Closed` arrives.
///
/// ```no_run
/// use estafette_net::{Event, Node};
///
/// let mut node = Node::<()>::new()?;
/// let handle = node.handle();
/// handle.listen("tcp+msg://127.0.0.1:4000")?;
/// node.run(|event| {
///     if let Event::Message(from, message) = event {
///         if !handle.send(from, &message).is_accepted() {
///             handle.close(from);
///         }
///     }
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Node<S = ()> {
    shared: Arc<Shared<S>>,
    backend: Box<dyn Backend>,
    ready: Vec<Ready>,
    entries: Vec<Option<Entry>>,
    reader: Reader,
    turns: Turns,
    outbox: Outbox<S>,
    deadlines: DeadlineHeap,
    /// The time as of the last look at the clock.
    clock: Instant,
    polling: Polling,
    /// How many requests to close were handled: see
    /// [`CloseRequests`](crate::close_requests::CloseRequests).
    closes_seen: u32,
    /// Set while the node shuts down: when the rest is cut.
    shutdown_at: Option<Instant>,
}

/// The next event to deliver, or where the next message lies.
enum Next<S> {
    Event(Event<'static, S>),
    Message(Endpoint, MessageLocation, Kind),
}

impl<S> Node<S> {
    /// Creates a node with the default limits. It has a few file descriptors and a read buffer of
    /// 256 KiB, which all its connections share.
    ///
    /// # Errors
    ///
    /// If the process has no file descriptors left.
    pub fn new() -> io::Result<Node<S>> {
        Node::with_limits(Limits::default())
    }

    /// Creates a node with custom limits.
    ///
    /// # Errors
    ///
    /// As [`Node::new`].
    pub fn with_limits(limits: Limits) -> io::Result<Node<S>> {
        Ok(Node::with_backend(epoll()?, limits))
    }

    /// As [`Node::with_limits`], with a given backend.
    pub(crate) fn with_backend((backend, registry): BackendPair, limits: Limits) -> Node<S> {
        // With a read budget of 0 no turn would ever end.
        let limits = Limits { read_budget: limits.read_budget.max(1), ..limits };
        let (reader, now) = (Reader::new(TimeSlice::new(limits.time_slice)), Instant::now());
        let transports: [(&str, Arc<dyn Transport>); _] = [
            ("inproc", Arc::new(Inproc)),
            ("tcp", Arc::new(Tcp)),
            #[cfg(feature = "tls")]
            ("tls", Arc::new(crate::transport::Tls)),
            ("udp", Arc::new(Udp)),
            ("unix", Arc::new(Unix)),
        ];
        let transports = transports.map(|(scheme, transport)| (scheme.to_owned(), transport));
        Node {
            shared: Arc::new(Shared::new(limits, registry, HashMap::from(transports))),
            backend,
            ready: Vec::new(),
            entries: Vec::new(),
            reader,
            turns: Turns::default(),
            outbox: Outbox::new(),
            deadlines: DeadlineHeap::default(),
            clock: now,
            polling: Polling::new(now),
            closes_seen: 0,
            shutdown_at: None,
        }
    }

    /// Makes the node busy-wait this long for more after it has received something, before it
    /// sleeps. This uses CPU time and saves the latency of a wake-up.
    #[must_use]
    pub fn spin(mut self, time: Duration) -> Node<S> {
        self.polling.set_spin(time);
        self
    }

    /// Adds a custom transport for addresses of this scheme, or replaces the one that it had.
    /// `<scheme>+msg` then works too and keeps message boundaries.
    pub fn add_transport(&self, scheme: &str, transport: Arc<dyn Transport>) {
        let mut transports = self.shared.transports.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        transports.insert(scheme.to_ascii_lowercase(), transport);
    }

    /// Returns a handle, which any thread can use to control this node. Costs no more than a clone
    /// of an `Arc`.
    pub fn handle(&self) -> Handle<S> {
        Handle { shared: self.shared.clone() }
    }

    /// Runs the event loop and calls `on_event` with each event, until [`Handle::stop`] or the end
    /// of a [`Handle::shutdown`].
    ///
    /// Blocks the thread while nothing happens. While `on_event` runs, the node serves no other
    /// connection: long work belongs into another thread, which sends by a [`Handle`].
    ///
    /// # Errors
    ///
    /// If waiting for events fails in the kernel. No peer can cause this.
    pub fn run(&mut self, mut on_event: impl FnMut(Event<'_, S>)) -> io::Result<()> {
        let stopped = &self.shared.clone().stopped;
        while !(stopped.load(Ordering::SeqCst) && stopped.swap(false, Ordering::SeqCst)) {
            if let Some(event) = self.next(None)? {
                on_event(event);
            }
        }
        Ok(())
    }

    /// Runs one turn of the event loop: waits unless there is work, then handles commands,
    /// readiness and deadlines.
    fn turn(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.signals();
        if !self.outbox.is_empty() || !self.turns.is_empty() {
            self.poll_now()?;
        } else if !self.try_last()? {
            let since = self.clock;
            self.sleep(timeout)?;
            self.clock = Instant::now();
            self.polling.waited(since, self.clock, &self.ready);
        }
        self.handle_readiness();
        // Those that have just become ready come first.
        self.turns.add_later();
        self.deadlines();
        self.cut_shutdown();
        Ok(())
    }

    /// Handles commands, and the readiness that the last poll of epoll returned.
    fn handle_readiness(&mut self) {
        // Commands come first: a new connection has to be known before its descriptor's readiness
        // is handled.
        self.commands();
        let mut ready = mem::take(&mut self.ready);
        for ready in ready.drain(..) {
            self.became_ready(ready);
        }
        self.ready = ready;
    }

    /// Schedules a read of the last active connection instead of a wait, if that is likely to find
    /// something. Returns whether it did.
    fn try_last(&mut self) -> io::Result<bool> {
        let Some(read) = self.polling.direct_read(self.clock, self.reader.slice.limit()) else {
            return Ok(false);
        };
        if read.polls {
            self.poll_now()?;
        }
        self.will_read(read.index);
        Ok(true)
    }

    /// Polls epoll without waiting.
    fn poll_now(&mut self) -> io::Result<()> {
        self.polling.polls(self.clock);
        self.backend.wait(Some(Duration::ZERO), &mut self.ready)
    }

    /// Sleeps until a descriptor is ready, the timeout passes, or another thread wakes the node.
    fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let due = self.prepare_sleep().map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = timeout.into_iter().chain(due).min();
        // epoll counts in milliseconds. Round up, so that a deadline has passed when the wait ends.
        let timeout = timeout.map(|timeout| match timeout.subsec_nanos() % 1_000_000 {
            0 => timeout,
            _ => timeout.saturating_add(Duration::from_millis(1)),
        });
        let waited = self.backend.wait(timeout, &mut self.ready);
        self.shared.asleep.awake();
        waited
    }

    /// Marks the node as asleep, so that other threads wake it. Returns until when it may sleep,
    /// which is now if there is work already.
    fn prepare_sleep(&mut self) -> Option<Instant> {
        let due = self.next_deadline();
        self.shared.asleep.prepare();
        if self.shared.has_work(self.clock) {
            return Some(self.clock);
        }
        let timed = lock(&self.shared.signals).next_due();
        due.into_iter().chain(timed).chain(self.shutdown_at).min()
    }

    /// Moves signals to the outbox, and notes the delayed ones whose time has come.
    fn signals(&mut self) {
        let mut signals = lock(&self.shared.signals);
        let mut urgent: Vec<_> = signals.urgent.drain(..).collect();
        signals.usual.drain(..).for_each(|signal| self.outbox.push(Event::Signal(signal)));
        // Every turn begins without any, because they are delivered before the next one.
        self.outbox.push_due(signals.due(self.clock));
        drop(signals);
        while let Some(signal) = urgent.pop() {
            self.outbox.push_first(Event::Signal(signal));
        }
    }

    /// Takes the next delayed signal that is due and was not cancelled.
    #[inline]
    pub(super) fn take_due_signal(&mut self) -> Option<S> {
        while let Some(timer) = self.outbox.pop_due() {
            let signal = lock(&self.shared.signals).take_timed(timer);
            if signal.is_some() {
                return signal;
            }
        }
        None
    }

    /// Whether an endpoint is to be closed before anything more is delivered.
    #[inline(always)]
    fn must_close(&self) -> bool {
        self.shared.close_requests.count() != self.closes_seen
    }

    fn commands(&mut self) {
        self.closes_seen = self.shared.close_requests.count();
        // Usually there is no command, and nothing to allocate.
        let commands = mem::take(&mut *lock(&self.shared.commands));
        for command in commands {
            match command {
                Command::Begin(key, begun) => self.add_connection(key, *begun),
                Command::Found(key, waiting, found) => self.found(key, &waiting, found),
                Command::Watch(key) => self.watch(key),
                Command::AwaitPeer(key, pending_peer) => self.await_peer(key, pending_peer),
                Command::Close(key, farewell) => self.close(key, &farewell),
                Command::Finish(key) => self.finish(key),
                Command::Pause(key, pauses) => self.pause(key, pauses),
                Command::Shutdown(asked, within) => self.begin_shutdown(after(asked, within)),
                Command::SendFailed(key, connection, error) => {
                    if self.stream_of(key, Arc::as_ptr(&connection)).is_some() {
                        self.send_failed(key, error);
                    }
                }
            }
        }
    }

    fn set(&mut self, index: usize, entry: Entry) {
        self.forget_reads(index);
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, || None);
        }
        if let Some(replaced) = self.entries[index].replace(entry)
            && replaced.is_queued()
        {
            self.turns.remove(replaced.key());
        }
    }

    /// Forgets what was read from an entry that is removed or replaced.
    fn forget_reads(&mut self, index: usize) {
        self.count_run();
        self.reader.forget(index);
    }

    fn stream(&mut self, key: Key) -> Option<&mut Incoming> {
        match self.entries.get_mut(key.index as usize) {
            Some(Some(Entry::Stream(incoming))) if incoming.key == key => Some(incoming),
            _ => None,
        }
    }

    /// As [`Node::stream`], but only if the key still stands for this very connection.
    fn stream_of(&mut self, key: Key, connection: *const Connection) -> Option<&mut Incoming> {
        self.stream(key).filter(|incoming| ptr::eq(Arc::as_ptr(&incoming.connection), connection))
    }

    /// Handles readiness of one entry: schedules a read, and writes what is queued.
    fn became_ready(&mut self, ready: Ready) {
        let Some(Some(entry)) = self.entries.get_mut(ready.index) else { return };
        match entry {
            Entry::Stream(incoming) => {
                incoming.read_to_end |= ready.read_closed;
                incoming.write_closed = incoming.write_closed.max(ready.write_closed);
                let (key, connecting) = (incoming.key, incoming.life.is_connecting());
                if connecting && !self.poll_connected(key) {
                    return;
                }
                if (ready.writable || connecting) && !self.became_writable(key) {
                    return;
                }
            }
            Entry::Datagrams(datagrams) => {
                if ready.writable && datagrams.socket.take_waiting() {
                    self.outbox.push(Event::Drained(Endpoint::new(datagrams.key)));
                }
            }
            Entry::Listener(_) => {}
        }
        if ready.readable {
            self.will_read(ready.index);
        }
    }

    /// Schedules an entry for reading in this turn, at most once. The one that is being read goes
    /// on anyway, and is read again in the next turn.
    fn will_read(&mut self, index: usize) {
        let is_current = self.reader.current.as_ref().is_some_and(|(current, _)| *current == index);
        let Some(Some(entry)) = self.entries.get_mut(index) else { return };
        let key = entry.key();
        match entry.unpaused() {
            Some(reading) if is_current => self.turns.queue_later(reading, key),
            Some(reading) => self.turns.queue(reading, key),
            None => {}
        }
    }

    /// Writes what is queued at a connection. Returns whether the connection still exists.
    fn became_writable(&mut self, key: Key) -> bool {
        let Some(incoming) = self.stream(key) else { return false };
        let connection = incoming.connection.clone();
        match connection.flush() {
            Ok(Flushed::Waiting) => true,
            Ok(Flushed::Empty { notify }) => {
                if notify {
                    self.outbox.push(Event::Drained(Endpoint::new(key)));
                }
                self.continue_finish(key)
            }
            Ok(Flushed::Finished) => self.continue_end(key),
            Err(error) => {
                self.send_failed(key, error);
                true
            }
        }
    }
}

impl<S> Drop for Node<S> {
    fn drop(&mut self) {
        self.shared.gone.store(true, Ordering::SeqCst);
        self.commands();
        for index in 0..self.entries.len() {
            if let Some(key) = self.entries[index].as_ref().map(Entry::key) {
                self.close_or_reconnect(key, Reason::Closed);
            }
        }
        self.shared.last_counters.clear();
    }
}

impl<S> fmt::Debug for Node<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("endpoints", &self.shared.count()).finish_non_exhaustive()
    }
}
