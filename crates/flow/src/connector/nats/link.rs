//! A connection to a NATS server: it reconnects with back-off, and knows what the server refused
//! last.

use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result, ensure};
use async_nats::Client;
use async_nats::jetstream::{self, context::ContextBuilder};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};
use tokio::task::{AbortHandle, JoinHandle};

use super::super::outlet::Stop;
use super::super::problem::Problem;
use super::state::{Connection, State};
use super::timing::TIMEOUT;
use super::{connect, state};
use crate::config::{Nats, NatsTopic, Topic};

/// The thread that reads and writes all connections of a host.
pub(super) struct Io {
    handle: Handle,
    /// Ends the thread when it is dropped.
    _end: oneshot::Sender<()>,
}

impl Io {
    pub(super) fn start() -> Result<Arc<Io>> {
        let runtime = Builder::new_current_thread().enable_all().build().context("cannot wait for connections")?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        let run = move || drop(runtime.block_on(ended));
        thread::Builder::new().name("nats".into()).spawn(run).context("cannot start a thread")?;
        Ok(Arc::new(Io { handle, _end: end }))
    }

    /// Runs a future on the calling thread, which waits for what the thread of the connections
    /// does.
    pub(super) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.handle.block_on(future)
    }

    /// Runs a future on the thread of the connections. Blocks until it has ended. Panics if the
    /// future panicked.
    ///
    /// # Errors
    ///
    /// The error of the future.
    pub(super) fn run(&self, future: impl Future<Output = Result<()>> + Send + 'static) -> Result<()> {
        self.join(self.spawn(future))
    }

    /// Starts a task of the thread of the connections.
    pub(super) fn spawn(&self, task: impl Future<Output = Result<()>> + Send + 'static) -> JoinHandle<Result<()>> {
        self.handle.spawn(task)
    }

    /// Blocks until a task has ended. Panics if the task panicked.
    ///
    /// # Errors
    ///
    /// The error of the task.
    pub(super) fn join(&self, task: JoinHandle<Result<()>>) -> Result<()> {
        match self.handle.block_on(task) {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(error) => Err(error).context("the thread of the connections has ended"),
            },
        }
    }
}

/// A stop signal, for tasks.
#[derive(Clone)]
pub(super) struct Signal(watch::Receiver<bool>);

impl Signal {
    pub(super) fn of(stop: &Arc<Stop>) -> Signal {
        let (sender, receiver) = watch::channel(false);
        stop.on_set(move || {
            sender.send_replace(true);
        });
        Signal(receiver)
    }

    pub(super) fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the signal is set. Cancel-safe.
    pub(super) async fn wait(&self) {
        // Fails only if the connector is gone, which ends its work too.
        let _ = self.0.clone().wait_for(|is_set| *is_set).await;
    }
}

/// A connection of one connector.
pub(super) struct Link {
    io: Arc<Io>,
    pub(super) client: Client,
    pub(super) jetstream: jetstream::Context,
    state: Arc<State>,
    /// Makes refused subscriptions again.
    renewal: AbortHandle,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.state.end();
        self.renewal.abort();
    }
}

impl Link {
    /// Connects. A server that cannot be reached is no error: the connection is made later.
    ///
    /// # Errors
    ///
    /// If the server refuses the connection, or the credentials or certificates cannot be read.
    pub(super) async fn connect(nats: &Nats, name: &str, io: &Arc<Io>, problem: &Arc<Problem>) -> Result<Link> {
        let state = Arc::new(State::new(problem));
        let client = connect::connect(nats, name, &state).await?;
        let jetstream = ContextBuilder::new().timeout(TIMEOUT).ack_timeout(TIMEOUT).build(client.clone());
        let renewal = tokio::spawn(state::renew_subscriptions(client.clone(), Arc::clone(&state)));
        Ok(Link { io: Arc::clone(io), client, jetstream, state, renewal: renewal.abort_handle() })
    }

    /// As [`Link::connect`], but blocks.
    ///
    /// # Errors
    ///
    /// As [`Link::connect`].
    pub(super) fn open(nats: &Nats, name: &str, io: &Arc<Io>, problem: &Arc<Problem>) -> Result<Link> {
        io.block_on(Link::connect(nats, name, io, problem))
    }

    /// Runs a future on the calling thread, which waits for what the thread of the connections
    /// does.
    pub(super) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.io.block_on(future)
    }

    /// The thread of the connections.
    pub(super) fn io(&self) -> Arc<Io> {
        Arc::clone(&self.io)
    }

    /// Whether the server accepts messages as long as the topic does.
    ///
    /// # Errors
    ///
    /// If it does not.
    pub(super) fn check_max_payload(&self, topic: &NatsTopic) -> Result<()> {
        let longest = topic.max_message + Topic::NATS_HEADERS;
        let allowed = self.client.max_payload();
        ensure!(
            !self.is_up() || longest <= allowed,
            "the NATS server accepts {allowed} bytes, headers included, and the topic `{}` messages of {}; set its \
             `max_message` to {} or less, or the server's `max_payload` to {longest} or more",
            topic.topic,
            topic.max_message,
            allowed.saturating_sub(Topic::NATS_HEADERS),
        );
        Ok(())
    }

    pub(super) fn is_up(&self) -> bool {
        self.connection() != Connection::Down
    }

    fn connection(&self) -> Connection {
        self.state.connection()
    }

    /// The number of the current connection, from 1. 0 while there is none.
    pub(super) fn number(&self) -> u64 {
        match self.connection() {
            Connection::Down => 0,
            Connection::Up(number) => number,
        }
    }

    /// Waits until the server can be reached. Cancel-safe.
    pub(super) async fn until_up(&self) {
        self.state.until(|connection| connection != Connection::Down).await;
    }

    /// Waits until the current connection is lost. Returns at once if it is. Cancel-safe.
    pub(super) async fn until_lost(&self) {
        let now = self.connection();
        self.state.until(|connection| connection == Connection::Down || connection != now).await;
    }

    /// What the server refused since the last call, in its own words.
    pub(super) fn take_refused(&self) -> Option<String> {
        self.state.take_refused()
    }

    /// How many messages a full subscription has lost since the last call.
    pub(super) fn take_lost(&self) -> u64 {
        self.state.take_lost()
    }

    /// Shows a problem until the next success.
    pub(super) fn problem(&self, text: String) {
        self.state.problem().set(text);
    }

    /// Records that the server accepted what it had refused.
    pub(super) fn clear_problem(&self) {
        if self.is_up() {
            self.state.clear_problem();
        }
    }
}
