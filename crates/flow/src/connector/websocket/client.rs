//! The connection to a WebSocket server, and its thread.

use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use estafette_net::{Address, Endpoint, Error, Event, Handle, Limits, Node, Options, Outcome, Reason, Reconnect};

use super::inbox::Inbox;
use super::outbox::Outbox;
use crate::connector::outlet::{Next, Stop};

/// The delay before the first attempt to reconnect. It doubles with each failure.
const INITIAL_DELAY: Duration = Duration::from_millis(100);
/// The maximum of the delay.
const MAX_DELAY: Duration = Duration::from_secs(10);
/// How long a server may take to answer a close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// The idle time after which TCP keepalive checks whether the server is alive.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Signals the thread to connect.
struct Connect;

/// A connection that reconnects when it is lost. Receiving and sending wait until it is
/// established.
pub(super) struct Client {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The state shared by the connection's thread and the threads that receive and send.
struct Shared {
    name: String,
    address: Address,
    handle: Handle<Connect>,
    state: Mutex<State>,
    /// Notified when a message has arrived, or receiving has ended.
    arrived: Condvar,
    /// Notified when the connection is established or can send more, or sending has ended.
    writable: Condvar,
}

#[derive(Default)]
struct State {
    /// The connection, also while it reconnects.
    endpoint: Option<Endpoint>,
    is_connected: bool,
    inbox: Inbox,
    /// Whether reading is paused, because the inbox is full.
    is_paused: bool,
    outbox: Outbox,
    /// How often something changed that may allow a refused message to be sent.
    changes: u64,
    is_receiving_over: bool,
    is_stopped: bool,
    /// Whether the connection must be closed.
    is_closing: bool,
    /// Why the thread has failed, unless it was stopped.
    failure: Option<String>,
}

impl Client {
    /// Starts to connect. `name` is for logs, `max_message` is in bytes. Everything ends when
    /// `stop` is set.
    ///
    /// # Errors
    ///
    /// If the URL is invalid, or the system has no file descriptor or thread left.
    pub(super) fn start(name: &str, url: &str, max_message: usize, stop: &Stop) -> Result<Client> {
        let address: Address = url.parse().with_context(|| format!("cannot connect to {url}"))?;
        let mut limits = Limits::default();
        // A server that sends a longer message is disconnected.
        limits.message = limits.message.max(max_message);
        limits.unfinished = limits.unfinished.max(max_message);
        limits.flush = CLOSE_TIMEOUT;
        let node = Node::with_limits(limits).context("cannot wait for a connection")?;
        let (handle, name) = (node.handle(), name.to_owned());
        let (arrived, writable) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { name, address, handle, state: Mutex::default(), arrived, writable });
        shared.handle.signal(Connect);
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("websocket".into()).spawn(move || of_thread.run(node));
        let client = Client { shared, thread: Some(thread.context("cannot start a thread")?) };
        let of_hook = Arc::clone(&client.shared);
        stop.on_set(move || of_hook.stop());
        Ok(client)
    }

    /// Ends [`Client::receive`] when `stop` is set. Sending continues.
    pub(super) fn end_receiving_on(&self, stop: &Stop) {
        let shared = Arc::clone(&self.shared);
        stop.on_set(move || shared.end_receiving());
    }

    /// Discards all messages that arrive from now on.
    pub(super) fn end_receiving(&self) {
        self.shared.end_receiving();
    }

    /// Waits for messages, and swaps them into `inbox`, whose old content is discarded.
    ///
    /// # Errors
    ///
    /// If the connection's thread has failed.
    pub(super) fn receive(&self, inbox: &mut Inbox) -> Result<Next> {
        inbox.clear();
        let state = self.shared.state();
        let mut state = wait_while(&self.shared.arrived, state, |state| state.inbox.is_empty() && !state.is_ended());
        if let Some(failure) = &state.failure {
            bail!("{failure}");
        }
        if state.is_ended() {
            return Ok(Next::Stop);
        }
        mem::swap(&mut state.inbox, inbox);
        self.shared.resume(&mut state);
        Ok(Next::Continue)
    }

    /// Sends a binary message. Waits until the connection is established and the system has
    /// accepted the whole message.
    ///
    /// # Errors
    ///
    /// If the client was stopped, or the connection's thread has failed.
    pub(super) fn send(&self, message: &[u8]) -> Result<()> {
        let shared = &self.shared;
        let mut state = shared.state();
        loop {
            state = wait_while(&shared.writable, state, |state| !state.is_connected && !state.is_stopped);
            state.verify_sending()?;
            let Some(endpoint) = state.endpoint else { bail!("there is no connection") };
            match shared.handle.send(endpoint, message) {
                Outcome::Sent => return Ok(()),
                Outcome::Queued => {
                    state.outbox = Outbox::Queued;
                    let is_queued = |state: &mut State| state.outbox == Outbox::Queued && !state.is_stopped;
                    state = wait_while(&shared.writable, state, is_queued);
                    state.verify_sending()?;
                    if mem::take(&mut state.outbox) == Outbox::Empty {
                        return Ok(());
                    }
                }
                // The event that reports the loss follows.
                Outcome::Closed => state.is_connected = false,
                Outcome::TooLarge => {
                    tracing::error!(connector = shared.name, bytes = message.len(), "a message is too long to be sent");
                    return Ok(());
                }
                _ => {
                    let seen = state.changes;
                    let is_same = |state: &mut State| state.changes == seen && !state.is_stopped;
                    state = wait_while(&shared.writable, state, is_same);
                }
            }
        }
    }

    /// Closes the connection with a close frame, and ends the thread.
    ///
    /// # Errors
    ///
    /// If the thread has failed.
    pub(super) fn close(mut self) -> Result<()> {
        let mut state = self.shared.state();
        state.is_closing = true;
        match state.endpoint {
            Some(endpoint) if !state.is_stopped => self.shared.handle.close(endpoint),
            _ => self.shared.handle.stop(),
        }
        drop(state);
        self.join();
        match self.shared.state().failure.take() {
            Some(failure) => bail!("{failure}"),
            None => Ok(()),
        }
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.handle.stop();
        self.join();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end_receiving(&self) {
        let mut state = self.state();
        state.is_receiving_over = true;
        // The connection is still read, so that pings get replies and its end is detected.
        self.resume(&mut state);
        drop(state);
        self.arrived.notify_all();
    }

    fn resume(&self, state: &mut State) {
        if mem::take(&mut state.is_paused)
            && let Some(endpoint) = state.endpoint
        {
            self.handle.resume(endpoint);
        }
    }

    /// Stops everything at once.
    fn stop(&self) {
        self.state().is_stopped = true;
        self.arrived.notify_all();
        self.writable.notify_all();
        self.handle.stop();
    }

    /// The work of the thread.
    fn run(&self, mut node: Node<Connect>) {
        let ended = node.run(|event| self.on_event(event));
        let mut state = self.state();
        if let Err(error) = ended {
            state.failure = Some(format!("cannot wait for {}: {error}", self.address));
        }
        state.is_stopped = true;
        drop(state);
        self.arrived.notify_all();
        self.writable.notify_all();
    }

    fn on_event(&self, event: Event<'_, Connect>) {
        match event {
            Event::Signal(Connect) => self.connect(),
            Event::Connected(_) => self.on_connected(),
            Event::Message(endpoint, message) => self.on_message(endpoint, &message),
            Event::Drained(_) => self.change(|state| state.outbox.on_drained()),
            Event::Lost { reason, unwritten, again_in, .. } => {
                self.log_loss(&reason, again_in);
                self.change(|state| {
                    state.is_connected = false;
                    state.outbox.on_lost(unwritten);
                });
            }
            Event::Closed { reason, .. } => self.on_closed(&reason),
            _ => {}
        }
    }

    fn connect(&self) {
        let mut state = self.state();
        if state.is_closing {
            return self.handle.stop();
        }
        let plan = Reconnect::default().initial_delay(INITIAL_DELAY).max_delay(MAX_DELAY);
        let options = Options::default().reconnect(plan).keepalive(KEEPALIVE);
        match self.handle.connect_with(self.address.clone(), &options) {
            Ok(endpoint) => state.endpoint = Some(endpoint),
            Err(error @ (Error::Address(_) | Error::Scheme { .. })) => {
                state.failure = Some(error.to_string());
                drop(state);
                self.stop();
            }
            Err(error) => {
                tracing::warn!(connector = self.name, "{error}; trying again in {MAX_DELAY:?}");
                self.handle.signal_after(MAX_DELAY, Connect);
            }
        }
    }

    fn on_connected(&self) {
        tracing::info!(connector = self.name, "connected to {}", self.address);
        self.change(|state| {
            state.is_connected = true;
            state.is_paused = false;
            state.outbox.on_connected();
        });
    }

    fn on_message(&self, from: Endpoint, message: &[u8]) {
        let mut state = self.state();
        if state.is_receiving_over || state.is_closing {
            return;
        }
        let was_empty = state.inbox.is_empty();
        state.inbox.push(message);
        if state.inbox.is_full() && !mem::replace(&mut state.is_paused, true) {
            self.handle.pause(from);
        }
        drop(state);
        if was_empty {
            self.arrived.notify_one();
        }
    }

    /// Handles the end of a connection that does not reconnect by itself.
    fn on_closed(&self, reason: &Reason) {
        if self.state().is_closing {
            return self.handle.stop();
        }
        self.log_loss(reason, MAX_DELAY);
        self.change(|state| {
            state.is_connected = false;
            state.endpoint = None;
            state.outbox.on_lost(1);
        });
        self.handle.signal_after(MAX_DELAY, Connect);
    }

    fn log_loss(&self, reason: &Reason, again_in: Duration) {
        let what = if self.state().is_connected { "lost the connection to" } else { "cannot connect to" };
        tracing::warn!(connector = self.name, "{what} {}: {reason}; trying again in {again_in:?}", self.address);
    }

    /// Changes state that a sender may wait for.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        state.changes += 1;
        drop(state);
        self.writable.notify_all();
    }
}

impl State {
    /// Whether no message is received any more.
    fn is_ended(&self) -> bool {
        self.is_stopped || self.is_receiving_over
    }

    fn verify_sending(&self) -> Result<()> {
        match &self.failure {
            Some(failure) => bail!("{failure}"),
            None if self.is_stopped => bail!("it was stopped"),
            None => Ok(()),
        }
    }
}

fn wait_while<'s>(
    changed: &Condvar,
    state: MutexGuard<'s, State>,
    condition: impl FnMut(&mut State) -> bool,
) -> MutexGuard<'s, State> {
    changed.wait_while(state, condition).unwrap_or_else(PoisonError::into_inner)
}
