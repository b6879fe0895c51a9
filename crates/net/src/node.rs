//! The node: one thread that looks after every connection, and tells what happens.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::fmt;
use std::io::{self, ErrorKind};
use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::backend::{Backend, Ready, backend};
use crate::codec::{Decoder, Kind, Violation};
use crate::connection::Flushed;
use crate::event::{Endpoint, Event, Late, Message, Reason};
use crate::handle::{Begun, Command, Handle, How, Resource, Scheme, Shared, Socket, lock};
use crate::incoming::{Ending, Incoming, Place, Progress, SHARED, Window, after};
use crate::limits::Limits;
use crate::slab::Key;
use crate::transport::{Listener, Tcp, Transport, Udp, Unix};

/// How long a listener rests after the system had no descriptor for a connection, or too many had come.
const REST: Duration = Duration::from_millis(50);
/// How many connections a listener accepts before others have their turn.
const ACCEPTED_AT_ONCE: usize = 64;
/// How many looks at the last connection there are, while the node spins, for one look at all.
const LOOKS: u32 = 16;

/// Every connection, looked after by whoever calls it: [`Node::run`], [`Node::poll`] or [`Node::next`].
///
/// Sending, connecting and listening are for the [`Handle`], from any thread, also from the one that is being told an event.
///
/// ```no_run
/// use estafette_net::{Event, Node};
///
/// let mut node = Node::<()>::new()?;
/// let handle = node.handle();
/// handle.listen("tcp+msg://127.0.0.1:4000")?;
/// node.run(|event| {
///     if let Event::Message(from, message) = event {
///         if !handle.send(from, &message).taken() {
///             handle.close(from);
///         }
///     }
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Node<S = ()> {
    shared: Arc<Shared<S>>,
    backend: Backend,
    ready: Vec<Ready>,
    entries: Vec<Option<Entry>>,
    /// Read by all connections, one after the other.
    buffer: Vec<u8>,
    /// The connection that is being read.
    current: Option<(usize, Window)>,
    /// Where the last message that was told lies, if not in the buffer.
    told: Option<(usize, Place)>,
    /// To be read in this turn, and in the next.
    now: VecDeque<usize>,
    later: VecDeque<usize>,
    /// To be told.
    outbox: VecDeque<Event<'static, S>>,
    deadlines: BinaryHeap<Reverse<(Instant, Key)>>,
    clock: Instant,
    spin: Duration,
    /// The connection that had a message last, and when.
    last: Option<(usize, Instant)>,
    looks: u32,
}

/// What an index stands for.
enum Entry {
    Stream(Box<Incoming>),
    Datagrams {
        key: Key,
        socket: Arc<Socket>,
        ready: bool,
    },
    Listener {
        key: Key,
        listener: Arc<dyn Listener>,
        scheme: Scheme,
        ready: bool,
        resting: bool,
        second: Instant,
        accepted: u32,
    },
}

/// What is to be told next.
enum Next<S> {
    Event(Event<'static, S>),
    Message(Endpoint, Place, Kind),
}

impl<S> Node<S> {
    /// A node with the usual limits.
    ///
    /// # Errors
    ///
    /// If the system has no descriptors left.
    pub fn new() -> io::Result<Node<S>> {
        Node::with_limits(Limits::default())
    }

    /// A node with limits of one's own.
    ///
    /// # Errors
    ///
    /// As [`Node::new`].
    pub fn with_limits(limits: Limits) -> io::Result<Node<S>> {
        let (backend, registry) = backend()?;
        let transports: [(&str, Arc<dyn Transport>); _] = [
            ("tcp", Arc::new(Tcp)),
            #[cfg(feature = "tls")]
            ("tls", Arc::new(crate::transport::Tls)),
            ("udp", Arc::new(Udp)),
            ("unix", Arc::new(Unix)),
        ];
        let transports = transports.map(|(scheme, transport)| (scheme.to_owned(), transport));
        Ok(Node {
            shared: Arc::new(Shared::new(limits, registry, HashMap::from(transports))),
            backend,
            ready: Vec::new(),
            entries: Vec::new(),
            buffer: vec![0; SHARED],
            current: None,
            told: None,
            now: VecDeque::new(),
            later: VecDeque::new(),
            outbox: VecDeque::new(),
            deadlines: BinaryHeap::new(),
            clock: Instant::now(),
            spin: Duration::ZERO,
            last: None,
            looks: 0,
        })
    }

    /// Lets the node look for this long for more, after there was something, before it sleeps. It costs as much of a core,
    /// and saves what waking takes.
    #[must_use]
    pub fn spin(mut self, time: Duration) -> Node<S> {
        self.spin = time;
        self
    }

    /// Adds a transport of one's own, for addresses of this scheme; with `+msg` behind it, messages keep their bounds.
    pub fn add_transport(&self, scheme: &str, transport: Arc<dyn Transport>) {
        let mut transports = self.shared.transports.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        transports.insert(scheme.to_ascii_lowercase(), transport);
    }

    /// A way to this node for any thread.
    pub fn handle(&self) -> Handle<S> {
        Handle { shared: self.shared.clone() }
    }

    /// Tells everything that happens until [`Handle::stop`].
    ///
    /// # Errors
    ///
    /// If the system cannot wait: nothing that a peer can bring about.
    pub fn run(&mut self, mut tell: impl FnMut(Event<'_, S>)) -> io::Result<()> {
        while !self.shared.stopped.swap(false, Ordering::SeqCst) {
            if let Some(event) = self.next(None)? {
                tell(event);
            }
        }
        Ok(())
    }

    /// Tells what is there now, at least one event if one comes in time, and how many it were. For a loop of one's own: a
    /// timeout of zero never waits, `None` waits for as long as it takes, or until [`Handle::stop`].
    ///
    /// # Errors
    ///
    /// As [`Node::run`].
    pub fn poll(&mut self, timeout: Option<Duration>, mut tell: impl FnMut(Event<'_, S>)) -> io::Result<usize> {
        let mut count = 0;
        let mut timeout = timeout;
        while let Some(event) = self.next(timeout)? {
            tell(event);
            count += 1;
            timeout = Some(Duration::ZERO);
            if self.now.is_empty() && self.current.is_none() && self.outbox.is_empty() {
                break;
            }
        }
        Ok(count)
    }

    /// The next event, or none if none comes in time. `None` waits for as long as it takes, or until [`Handle::stop`].
    ///
    /// # Errors
    ///
    /// As [`Node::run`].
    pub fn next(&mut self, timeout: Option<Duration>) -> io::Result<Option<Event<'_, S>>> {
        Ok(match self.advance(timeout)? {
            None => None,
            Some(Next::Event(event)) => Some(event),
            Some(Next::Message(from, place, kind)) => Some(Event::Message(from, self.message(from, place, kind))),
        })
    }

    /// Lends a message from where it lies.
    fn message(&mut self, from: Endpoint, place: Place, kind: Kind) -> Message<'_> {
        let index = from.key.index as usize;
        let at: Range<usize> = match place {
            Place::Shared(at) => at,
            Place::Held | Place::Assembled => {
                self.told = Some((index, place.clone()));
                let Some(Some(Entry::Stream(incoming))) = self.entries.get_mut(index) else {
                    unreachable!("its message has just been read")
                };
                let owner = match place {
                    Place::Held => incoming.held(),
                    _ => incoming.decoder.assembled(),
                };
                return Message { bytes: &mut [], owner: Some(owner), kind };
            }
        };
        Message { bytes: &mut self.buffer[at], owner: None, kind }
    }

    /// Goes on until there is something to tell, or the time is over.
    fn advance(&mut self, timeout: Option<Duration>) -> io::Result<Option<Next<S>>> {
        if let Some((index, place)) = self.told.take()
            && let Some(Some(Entry::Stream(incoming))) = self.entries.get_mut(index)
        {
            incoming.release_told(&place);
        }
        let mut until = None;
        let mut waited = false;
        loop {
            if let Some(event) = self.outbox.pop_front() {
                return Ok(Some(Next::Event(event)));
            }
            if let Some((index, window)) = self.current.take() {
                if let Some(next) = self.read_on(index, window) {
                    return Ok(Some(next));
                }
                continue;
            }
            if let Some(index) = self.now.pop_front() {
                self.begin(index);
                continue;
            }
            if waited && timeout == Some(Duration::ZERO) || self.shared.stopped.load(Ordering::SeqCst) {
                return Ok(None);
            }
            let left = match timeout {
                None => None,
                Some(timeout) => {
                    let now = Instant::now();
                    let until = *until.get_or_insert_with(|| after(now, timeout));
                    if waited && now >= until {
                        return Ok(None);
                    }
                    Some(until.saturating_duration_since(now))
                }
            };
            self.turn(left)?;
            waited = true;
        }
    }

    /// Begins a turn: waits, unless there is something to do, and looks at what has become ready.
    fn turn(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.clock = Instant::now();
        self.commands();
        self.signals();
        self.now.append(&mut self.later);
        let busy = !self.now.is_empty() || !self.outbox.is_empty();
        if busy {
            self.backend.wait(Some(Duration::ZERO), &mut self.ready)?;
        } else if !self.look()? {
            self.sleep(timeout)?;
        }
        self.clock = Instant::now();
        // Before anything is made of its descriptor's readiness, a connection has to be known.
        self.commands();
        let mut ready = mem::take(&mut self.ready);
        for ready in ready.drain(..) {
            self.became_ready(ready);
        }
        self.ready = ready;
        self.deadlines();
        Ok(())
    }

    /// Has the connection that had a message last looked at again, for as long as the node spins after a message, and once in
    /// a while everything. Whether it does.
    fn look(&mut self) -> io::Result<bool> {
        let Some((index, since)) = self.last else { return Ok(false) };
        if self.spin.is_zero() || self.clock.duration_since(since) >= self.spin {
            return Ok(false);
        }
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(LOOKS) {
            self.backend.wait(Some(Duration::ZERO), &mut self.ready)?;
        }
        self.will_read(index);
        Ok(true)
    }

    /// Sleeps until something becomes ready, the time is over, or somebody wakes the node.
    fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let shared = &self.shared;
        shared.asleep.store(true, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
        // Pairs with `Shared::wake`.
        let signals = lock(&shared.signals);
        let asked = !signals.urgent.is_empty()
            || !signals.usual.is_empty()
            || !lock(&shared.commands).is_empty()
            || shared.stopped.load(Ordering::SeqCst);
        let timed = signals.timed.peek().map(|timed| timed.at);
        drop(signals);
        let due = self.deadlines.peek().map(|Reverse((at, _))| *at).into_iter().chain(timed).min();
        let due = due.map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = if asked { Some(Duration::ZERO) } else { timeout.into_iter().chain(due).min() };
        // epoll counts in milliseconds: rounded up, so that what is due is due when it wakes.
        let timeout = timeout.map(|timeout| match timeout.subsec_nanos() % 1_000_000 {
            0 => timeout,
            _ => timeout.saturating_add(Duration::from_millis(1)),
        });
        let waited = self.backend.wait(timeout, &mut self.ready);
        self.shared.asleep.store(false, Ordering::SeqCst);
        waited
    }

    /// Puts what is due into the outbox.
    fn signals(&mut self) {
        let mut signals = lock(&self.shared.signals);
        let mut urgent: Vec<_> = signals.urgent.drain(..).collect();
        self.outbox.extend(signals.usual.drain(..).map(Event::Signal));
        while signals.timed.peek().is_some_and(|timed| timed.at <= self.clock) {
            let timed = signals.timed.pop().expect("it was looked at");
            self.outbox.push_back(Event::Signal(timed.signal));
        }
        drop(signals);
        while let Some(signal) = urgent.pop() {
            self.outbox.push_front(Event::Signal(signal));
        }
    }

    fn commands(&mut self) {
        // Usually there is none, and nothing to allocate.
        let commands = mem::take(&mut *lock(&self.shared.commands));
        for command in commands {
            match command {
                Command::Begin(begun) => self.look_after(*begun),
                Command::Watch(key) => self.watch(key),
                Command::Close(key, farewell) => self.close(key, &farewell),
                Command::Broken(key, error) => self.broken(key, error),
            }
        }
    }

    fn set(&mut self, index: usize, entry: Entry) {
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, || None);
        }
        self.entries[index] = Some(entry);
    }

    fn look_after(&mut self, begun: Begun) {
        let Begun { key, connection, decoder, how } = begun;
        // It may have been closed before the node came to know of it.
        if !self.shared.connection(key).is_some_and(|there| Arc::ptr_eq(&there, &connection)) {
            self.shared.registry.remove(connection.link.source());
            connection.close();
            return;
        }
        let incoming = Incoming::new(key, connection, decoder, how, self.clock);
        self.set(key.index as usize, Entry::Stream(Box::new(incoming)));
        self.arm(key);
    }

    fn watch(&mut self, key: Key) {
        let resources = self.shared.resources.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let entry = match resources.get(key) {
            Some(Resource::Datagrams(socket)) => Entry::Datagrams { key, socket: socket.clone(), ready: false },
            Some(Resource::Listener(listener, scheme)) => Entry::Listener {
                key,
                listener: listener.clone(),
                scheme: *scheme,
                ready: false,
                resting: false,
                second: self.clock,
                accepted: 0,
            },
            _ => return,
        };
        drop(resources);
        self.set(key.index as usize, entry);
    }

    fn stream(&mut self, key: Key) -> Option<&mut Incoming> {
        match self.entries.get_mut(key.index as usize) {
            Some(Some(Entry::Stream(incoming))) if incoming.key == key => Some(incoming),
            _ => None,
        }
    }

    /// Puts what became ready among what is to be read, and writes what waits.
    fn became_ready(&mut self, ready: Ready) {
        let Some(Some(entry)) = self.entries.get_mut(ready.index) else { return };
        match entry {
            Entry::Stream(incoming) => {
                incoming.hung_up |= ready.closed;
                let (key, linked) = (incoming.key, incoming.linked);
                if !linked && !self.link_up(key) {
                    return;
                }
                if (ready.writable || !linked) && !self.became_writable(key) {
                    return;
                }
            }
            Entry::Datagrams { key, socket, .. } => {
                if ready.writable && socket.owes_drained.swap(false, Ordering::SeqCst) {
                    self.outbox.push_back(Event::Drained(Endpoint::new(*key)));
                }
            }
            Entry::Listener { .. } => {}
        }
        if ready.readable {
            self.will_read(ready.index);
        }
    }

    /// Goes on to bring a link about. Whether it is there.
    fn link_up(&mut self, key: Key) -> bool {
        let Some(incoming) = self.stream(key) else { return false };
        match incoming.connection.link.connected() {
            Ok(()) => {
                incoming.linked = true;
                // A WebSocket is open when its request has been answered.
                if !matches!(incoming.decoder, Decoder::WebSocket(_)) {
                    self.open(key);
                }
                // What the link itself has read too much of, epoll does not tell of.
                self.will_read(key.index as usize);
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => {
                self.not_connected(key, error);
                false
            }
        }
    }

    /// Puts an entry among what is to be read in this turn, once.
    fn will_read(&mut self, index: usize) {
        let Some(Some(entry)) = self.entries.get_mut(index) else { return };
        let ready = match entry {
            Entry::Stream(incoming) => &mut incoming.ready,
            Entry::Datagrams { ready, .. } | Entry::Listener { ready, .. } => ready,
        };
        if !mem::replace(ready, true) {
            self.now.push_back(index);
        }
    }

    /// Writes what waits at a connection. Whether it is still there.
    fn became_writable(&mut self, key: Key) -> bool {
        let Some(incoming) = self.stream(key) else { return false };
        let connection = incoming.connection.clone();
        match connection.flush() {
            Ok(Flushed::Waiting) => true,
            Ok(Flushed::Empty { told }) => {
                if told {
                    self.outbox.push_back(Event::Drained(Endpoint::new(key)));
                }
                true
            }
            Ok(Flushed::Finished) => self.go_on_ending(key),
            Err(error) => {
                self.broken(key, error);
                true
            }
        }
    }

    /// The system reported an error to a sender. What came before is told before the end.
    fn broken(&mut self, key: Key, error: io::Error) {
        let Some(incoming) = self.stream(key) else { return };
        if incoming.opening.is_some() || incoming.ending.is_some() {
            return self.end(key, Reason::Io(error), &[]);
        }
        incoming.connection.close();
        incoming.failed.get_or_insert(error);
        incoming.hung_up = true;
        self.will_read(key.index as usize);
    }

    /// A connection has come about.
    fn open(&mut self, key: Key) {
        let clock = self.clock;
        let Some(incoming) = self.stream(key) else { return };
        let Some(how) = incoming.opening.take() else { return };
        incoming.since = clock;
        incoming.unfinished_since = None;
        let opened = incoming.connection.open();
        let endpoint = Endpoint::new(key);
        self.outbox.push_back(match how {
            How::Connecting { .. } => Event::Connected(endpoint),
            How::Accepted(listener) => Event::Accepted { endpoint, listener: Endpoint::new(listener) },
        });
        self.arm(key);
        match opened {
            Ok(Flushed::Empty { told: true }) => self.outbox.push_back(Event::Drained(endpoint)),
            Ok(_) => {}
            Err(error) => return self.broken(key, error),
        }
        if let Some(farewell) = self.stream(key).and_then(|incoming| incoming.farewell.take()) {
            self.end(key, Reason::Closed, &farewell);
        }
    }

    /// A connection did not come about. The host's next address is tried, if it has one.
    fn not_connected(&mut self, key: Key, error: io::Error) {
        let Some(incoming) = self.stream(key) else { return };
        let connection = incoming.connection.clone();
        if let Some(How::Connecting { address, others, options }) = incoming.opening.take()
            && !others.is_empty()
        {
            self.shared.registry.remove(connection.link.source());
            if self.shared.begin(&address, others, &options, Some((key, &connection))).is_ok() {
                return;
            }
        }
        self.forget(key, Reason::NotConnected(error));
    }

    /// Takes up an entry that is to be read.
    fn begin(&mut self, index: usize) {
        match self.entries.get_mut(index) {
            Some(Some(Entry::Stream(incoming))) => {
                incoming.ready = false;
                let window = incoming.begin(&mut self.buffer, &self.shared.limits);
                self.current = Some((index, window));
            }
            Some(Some(Entry::Datagrams { ready, .. })) => {
                *ready = false;
                self.current = Some((index, Window::of(self.shared.limits.turn)));
            }
            Some(Some(Entry::Listener { ready, resting, .. })) => {
                *ready = false;
                if !*resting {
                    self.accept(index);
                }
            }
            _ => {}
        }
    }

    /// Reads on where reading was interrupted by something to tell.
    fn read_on(&mut self, index: usize, mut window: Window) -> Option<Next<S>> {
        match self.entries.get_mut(index) {
            Some(Some(Entry::Stream(incoming))) => {
                let progress = incoming.advance(&mut self.buffer, &mut window, &self.shared.limits, self.clock);
                self.progress(index, window, progress)
            }
            Some(Some(Entry::Datagrams { .. })) => self.receive(index, window),
            _ => None,
        }
    }

    fn progress(&mut self, index: usize, window: Window, progress: Progress) -> Option<Next<S>> {
        let Some(Some(Entry::Stream(incoming))) = self.entries.get_mut(index) else { return None };
        let key = incoming.key;
        match progress {
            Progress::Message(place, kind) => {
                self.last = Some((index, self.clock));
                self.current = Some((index, window));
                if incoming.ending.is_some() {
                    // Nobody wants it any more.
                    incoming.release_told(&place);
                    return None;
                }
                return Some(Next::Message(Endpoint::new(key), place, kind));
            }
            Progress::Open => {
                self.current = Some((index, window));
                self.open(key);
            }
            Progress::Idle => match incoming.failed.take() {
                Some(error) => self.forget(key, Reason::Io(error)),
                None => self.arm(key),
            },
            Progress::Yield => {
                incoming.ready = true;
                self.later.push_back(index);
                self.arm(key);
            }
            Progress::End(reason, reply) => {
                let failed = incoming.failed.take();
                match (reason, failed) {
                    (Reason::Ended | Reason::Truncated | Reason::Io(_), Some(error)) => {
                        self.forget(key, Reason::Io(error))
                    }
                    (reason, Some(_)) => self.forget(key, reason),
                    (reason, None) => self.end(key, reason, &reply),
                }
                // More may be there, of which epoll does not tell again.
                if let Some(Some(Entry::Stream(incoming))) = self.entries.get_mut(index)
                    && incoming.key == key
                    && incoming.ending.as_ref().is_some_and(|ending| !ending.ended)
                    && !mem::replace(&mut incoming.ready, true)
                {
                    self.later.push_back(index);
                }
            }
        }
        None
    }

    /// Receives one datagram.
    fn receive(&mut self, index: usize, mut window: Window) -> Option<Next<S>> {
        let Some(Some(Entry::Datagrams { key, socket, ready })) = self.entries.get_mut(index) else { return None };
        if window.is_spent() {
            *ready = true;
            self.later.push_back(index);
            return None;
        }
        match socket.datagrams.receive(&mut self.buffer) {
            Ok((len, remote)) => {
                window.spend(len.max(64));
                self.last = Some((index, self.clock));
                self.current = Some((index, window));
                let endpoint = Endpoint { key: *key, remote };
                Some(Next::Message(endpoint, Place::Shared(0..len), Kind::Binary))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            // What an earlier datagram of ours met with. The error is gone with this, and the next may be a datagram.
            Err(_) => {
                window.spend(4096);
                self.current = Some((index, window));
                None
            }
        }
    }

    /// Accepts what waits at a listener, within limits.
    fn accept(&mut self, index: usize) {
        for _ in 0..ACCEPTED_AT_ONCE {
            let Some(Some(Entry::Listener { key, listener, scheme, second, accepted, .. })) =
                self.entries.get_mut(index)
            else {
                return;
            };
            let (key, scheme) = (*key, *scheme);
            if self.clock.duration_since(*second) >= Duration::from_secs(1) {
                (*second, *accepted) = (self.clock, 0);
            }
            if *accepted >= self.shared.limits.accepts || self.shared.count() >= self.shared.limits.connections {
                return self.rest(key);
            }
            match listener.accept() {
                Ok(link) => {
                    *accepted += 1;
                    match self.shared.accept(link, key, scheme) {
                        Ok(begun) => {
                            let key = begun.key;
                            self.look_after(begun);
                            self.link_up(key);
                        }
                        Err(_) => return self.rest(key),
                    }
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    // The peer has gone in the meantime.
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                    // No descriptors, or no memory: those that are there are served, and it is tried again.
                    _ => return self.rest(key),
                },
            }
        }
        if let Some(Some(Entry::Listener { ready, .. })) = self.entries.get_mut(index) {
            *ready = true;
            self.later.push_back(index);
        }
    }

    /// Lets a listener rest: epoll does not tell again of what waits there already.
    fn rest(&mut self, key: Key) {
        if let Some(Some(Entry::Listener { resting, .. })) = self.entries.get_mut(key.index as usize)
            && mem::replace(resting, true)
        {
            return;
        }
        self.deadlines.push(Reverse((self.clock + REST, key)));
    }

    /// Notes a connection's next deadline, unless an earlier one is noted, which will look for the next.
    fn arm(&mut self, key: Key) {
        let Some(Some(Entry::Stream(incoming))) = self.entries.get_mut(key.index as usize) else { return };
        let Some((due, _)) = incoming.due(&self.shared.limits) else { return };
        if incoming.armed.is_none_or(|armed| due < armed) {
            incoming.armed = Some(due);
            self.deadlines.push(Reverse((due, key)));
        }
        // Those of connections that are gone would stay until they are due.
        if self.deadlines.len() > 1024 + 4 * self.entries.len() {
            let entries = &self.entries;
            self.deadlines.retain(|Reverse((at, key))| match &entries.get(key.index as usize) {
                Some(Some(Entry::Stream(incoming))) => incoming.key == *key && incoming.armed == Some(*at),
                Some(Some(Entry::Listener { key: there, .. })) => there == key,
                _ => false,
            });
        }
    }

    /// Does what is due.
    fn deadlines(&mut self) {
        while let Some(Reverse((at, key))) = self.deadlines.peek().copied()
            && at <= self.clock
        {
            self.deadlines.pop();
            let index = key.index as usize;
            match self.entries.get_mut(index) {
                Some(Some(Entry::Listener { key: there, resting, .. })) if *there == key => {
                    *resting = false;
                    self.will_read(index);
                }
                Some(Some(Entry::Stream(incoming))) if incoming.key == key && incoming.armed == Some(at) => {
                    incoming.armed = None;
                    match incoming.due(&self.shared.limits) {
                        // What came while the node was busy elsewhere is looked at first, once.
                        Some((due, Some(_))) if due <= self.clock && incoming.ready && !incoming.spared => {
                            incoming.spared = true;
                            let soon = self.clock + Duration::from_millis(1);
                            incoming.armed = Some(soon);
                            self.deadlines.push(Reverse((soon, key)));
                        }
                        Some((due, late)) if due <= self.clock => self.too_late(key, late),
                        _ => {
                            incoming.spared = false;
                            self.arm(key);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// A deadline has passed.
    fn too_late(&mut self, key: Key, late: Option<Late>) {
        let Some(incoming) = self.stream(key) else { return };
        let more = matches!(&incoming.opening, Some(How::Connecting { others, .. }) if !others.is_empty());
        match late {
            None => self.give_up(key),
            Some(Late::Handshake) if more => self.not_connected(key, ErrorKind::TimedOut.into()),
            Some(Late::Handshake) => self.forget(key, Reason::Late(Late::Handshake)),
            Some(late) => self.end(key, Reason::Late(late), &[]),
        }
    }

    /// Closes what a key names.
    fn close(&mut self, key: Key, farewell: &[u8]) {
        match self.entries.get(key.index as usize) {
            Some(Some(Entry::Stream(incoming))) if incoming.key == key => self.end(key, Reason::Closed, farewell),
            Some(Some(Entry::Listener { key: there, .. } | Entry::Datagrams { key: there, .. })) if *there == key => {
                self.forget(key, Reason::Closed);
            }
            _ => {}
        }
    }

    /// Begins to end a connection, or goes on ending it.
    fn end(&mut self, key: Key, reason: Reason, farewell: &[u8]) {
        let until = after(self.clock, self.shared.limits.flush);
        let Some(incoming) = self.stream(key) else { return };
        if let (Reason::Io(_), Some(ending)) = (&reason, &incoming.ending) {
            // Of what we began, an error says that it was not finished; what the peer had brought about stays.
            return if ending.finished || !matches!(ending.reason, Reason::Closed) {
                self.give_up(key)
            } else {
                self.forget(key, reason)
            };
        }
        if incoming.opening.is_some() {
            if matches!(reason, Reason::Closed) && incoming.connection.ends() {
                incoming.farewell = Some(farewell.to_vec());
                return;
            }
            if matches!(reason, Reason::Closed) || !incoming.linked {
                return self.forget(key, reason);
            }
        }
        if matches!(reason, Reason::Io(_)) {
            return self.forget(key, reason);
        }
        let ended = matches!(reason, Reason::Ended | Reason::Truncated);
        if let Some(ending) = &mut incoming.ending {
            ending.ended |= ended;
            if matches!(reason, Reason::ClosedByPeer(_) | Reason::Violation(_)) {
                incoming.discard();
            }
            self.go_on_ending(key);
            return;
        }
        // A peer that broke the rules is not listened to any more; one that was told good-bye may still answer it.
        if !matches!(reason, Reason::Closed) {
            incoming.discard();
        }
        let connection = incoming.connection.clone();
        let farewell: Vec<u8> = match &reason {
            Reason::Late(Late::Message | Late::Idle) | Reason::NoRoom => 1008_u16.to_be_bytes().to_vec(),
            Reason::Violation(Violation::Handshake(_)) => {
                // What a refused handshake is answered with is no frame.
                connection.reply(farewell).ok();
                Vec::new()
            }
            _ => farewell.to_vec(),
        };
        incoming.ending = Some(Ending { reason, until, finished: false, ended });
        self.arm(key);
        match connection.begin_close(&farewell) {
            Ok(_) => {
                self.go_on_ending(key);
            }
            Err(error) => self.forget(key, Reason::Io(error)),
        }
    }

    /// Ends a connection as far as it can be now. Whether it is still there.
    fn go_on_ending(&mut self, key: Key) -> bool {
        let Some(incoming) = self.stream(key) else { return false };
        let connection = incoming.connection.clone();
        let waits_for_answer = matches!(incoming.decoder, Decoder::WebSocket(_)) && !incoming.discards;
        let Some(ending) = &mut incoming.ending else { return true };
        if !ending.finished && (!waits_for_answer || ending.ended) {
            match connection.flush() {
                Ok(Flushed::Finished) => match connection.link.finish() {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    // Any other error is that of a peer that is gone, which reading tells.
                    _ => ending.finished = true,
                },
                Ok(_) => {}
                Err(error) => {
                    self.end(key, Reason::Io(error), &[]);
                    return false;
                }
            }
        }
        if ending.finished && ending.ended {
            self.give_up(key);
            return false;
        }
        true
    }

    /// Ends a connection that was being ended, with the reason that it has.
    fn give_up(&mut self, key: Key) {
        let Some(ending) = self.stream(key).and_then(|incoming| incoming.ending.take()) else { return };
        self.forget(key, ending.reason);
    }

    /// Drops what a key names, and tells why.
    fn forget(&mut self, key: Key, mut reason: Reason) {
        let index = key.index as usize;
        let Some(entry) = self.entries.get_mut(index).and_then(Option::take) else { return };
        match &entry {
            Entry::Stream(incoming) => {
                let unwritten = incoming.connection.close();
                if unwritten > 0 && matches!(reason, Reason::Closed) {
                    reason = Reason::Unwritten(unwritten);
                }
                self.shared.registry.remove(incoming.connection.link.source());
                // A sender may keep the link for a moment longer; the peer is told now.
                incoming.connection.link.finish().ok();
            }
            Entry::Datagrams { socket, .. } => self.shared.registry.remove(socket.datagrams.source()),
            Entry::Listener { listener, .. } => {
                self.shared.registry.remove(listener.source());
                listener.close();
            }
        }
        drop(entry);
        self.last = self.last.filter(|(last, _)| *last != index);
        self.shared.remove(key);
        self.outbox.push_back(Event::Closed { endpoint: Endpoint::new(key), reason });
    }
}

impl<S> Drop for Node<S> {
    fn drop(&mut self) {
        self.commands();
        for index in 0..self.entries.len() {
            let key = match &self.entries[index] {
                Some(Entry::Stream(incoming)) => incoming.key,
                Some(Entry::Datagrams { key, .. } | Entry::Listener { key, .. }) => *key,
                None => continue,
            };
            self.forget(key, Reason::Closed);
        }
    }
}

impl<S> fmt::Debug for Node<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("endpoints", &self.shared.count()).finish_non_exhaustive()
    }
}
