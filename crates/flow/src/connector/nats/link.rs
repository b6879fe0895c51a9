//! A connection to a NATS server: it reconnects with back-off, and knows what the server refused
//! last.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use async_nats::jetstream::{self, context::ContextBuilder};
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, ServerAddr, ServerError};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};

use super::super::outlet::Stop;
use super::super::problem::Problem;
use super::setup::{self, SetupError};
use crate::config::{Nats, NatsTopic, Topic};

/// How long the server may take to answer, also to acknowledge a message.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The first and the longest delay between two attempts, of a connection or of what the server
/// refused.
const DELAYS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How many messages a subscription buffers. Further ones are lost; a pull never asks for so many.
const BUFFERED: usize = 8192;
/// How often the server must answer. One that does not answer two times is lost.
const PING_INTERVAL: Duration = Duration::from_secs(10);

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

/// The connection as of the last event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    Down,
    /// With the number of connections so far.
    Up(u64),
}

/// What the callbacks of a connection write.
struct State {
    connection: watch::Sender<Connection>,
    connections: AtomicU64,
    /// What the server refused last.
    refused: Mutex<Option<String>>,
    /// Messages that a full subscription lost.
    lost: AtomicU64,
    problem: Arc<Problem>,
}

impl State {
    fn refused(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connected(&self) {
        self.connection.send_if_modified(|connection| {
            let is_news = *connection == Connection::Down;
            if is_news {
                *connection = Connection::Up(self.connections.fetch_add(1, Ordering::Relaxed) + 1);
            }
            is_news
        });
        self.problem.clear();
    }

    fn on_event(&self, event: Event) {
        match event {
            Event::Connected => self.connected(),
            Event::Disconnected | Event::Closed => {
                self.connection.send_replace(Connection::Down);
                self.problem.set(String::from("the NATS server is lost; its messages wait until it is back"));
            }
            Event::SlowConsumer(_) => drop(self.lost.fetch_add(1, Ordering::Relaxed)),
            Event::ServerError(ServerError::Other(text)) => *self.refused() = Some(text),
            Event::ServerError(error) => *self.refused() = Some(error.to_string()),
            Event::ClientError(error) if *self.connection.borrow() == Connection::Down => {
                self.problem.set(format!("the NATS server cannot be reached: {}", plain(&error.to_string())));
            }
            Event::ClientError(_) | Event::LameDuckMode | Event::Draining => {}
        }
    }
}

/// A connection of one connector.
pub(super) struct Link {
    io: Arc<Io>,
    pub(super) client: Client,
    pub(super) jetstream: jetstream::Context,
    state: Arc<State>,
}

impl Link {
    /// Connects. A server that cannot be reached is no error: the connection is made later.
    ///
    /// # Errors
    ///
    /// If the server refuses the connection, or the credentials or certificates cannot be read.
    pub(super) fn open(nats: &Nats, name: &str, io: &Arc<Io>, problem: &Arc<Problem>) -> Result<Link> {
        let state = Arc::new(State {
            connection: watch::Sender::new(Connection::Down),
            connections: AtomicU64::new(0),
            refused: Mutex::default(),
            lost: AtomicU64::new(0),
            problem: Arc::clone(problem),
        });
        let client = io.handle.block_on(connect(nats, name, &state))?;
        // It starts a task.
        let _entered = io.handle.enter();
        let jetstream = ContextBuilder::new().timeout(TIMEOUT).ack_timeout(TIMEOUT).build(client.clone());
        Ok(Link { io: Arc::clone(io), client, jetstream, state })
    }

    /// Runs a future on this thread.
    pub(super) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.io.handle.block_on(future)
    }

    /// Creates the streams and consumers of a topic, if the server can be reached now.
    ///
    /// # Errors
    ///
    /// If the server refuses it.
    pub(super) fn first_setup(&self, nats: &Nats, topic: &NatsTopic) -> Result<()> {
        if !self.is_up() {
            return Ok(());
        }
        match self.block_on(setup::prepare(self, nats, topic)) {
            Ok(()) | Err(SetupError::Unreachable(_)) => Ok(()),
            Err(SetupError::Refused(reason)) => bail!("the topic `{}` cannot cross hosts: {reason}", topic.topic),
        }
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
        *self.state.connection.borrow()
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
        let _ = self.state.connection.subscribe().wait_for(|it| *it != Connection::Down).await;
    }

    /// Waits until the current connection is lost. Returns at once if it is. Cancel-safe.
    pub(super) async fn until_lost(&self) {
        let now = self.connection();
        let _ = self.state.connection.subscribe().wait_for(|it| *it == Connection::Down || *it != now).await;
    }

    /// What the server refused since the last call, in its own words.
    pub(super) fn take_refused(&self) -> Option<String> {
        self.state.refused().take()
    }

    /// How many messages a full subscription has lost since the last call.
    pub(super) fn take_lost(&self) -> u64 {
        self.state.lost.swap(0, Ordering::Relaxed)
    }

    /// Shows a problem until the next success.
    pub(super) fn problem(&self, text: String) {
        self.state.problem.set(text);
    }

    /// Records that the server accepted what it had refused.
    pub(super) fn clear_problem(&self) {
        if self.is_up() {
            self.state.problem.clear();
        }
    }
}

async fn connect(nats: &Nats, name: &str, state: &Arc<State>) -> Result<Client> {
    let servers = servers(nats)?.into_iter().map(without_user).collect::<Result<Vec<_>>>()?;
    match options(nats, name, state).await?.connect(servers.clone()).await {
        Ok(client) => {
            state.connected();
            Ok(client)
        }
        Err(error) => match error.kind() {
            ConnectErrorKind::Io | ConnectErrorKind::TimedOut | ConnectErrorKind::Dns => {
                state.problem.set(format!("the NATS server cannot be reached: {}", reason(&error)));
                let options = options(nats, name, state).await?.retry_on_initial_connect();
                options.connect(servers).await.map_err(|error| anyhow!("{}", reason(&error)))
            }
            ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                bail!("the NATS server refuses the connection: {}; check `nats.credentials`", reason(&error))
            }
            ConnectErrorKind::Tls => bail!("no TLS with the NATS server: {}; check `nats.tls`", reason(&error)),
            _ => bail!("no connection to the NATS server: {}", reason(&error)),
        },
    }
}

fn servers(nats: &Nats) -> Result<Vec<ServerAddr>> {
    ensure!(!nats.servers.is_empty(), "`nats.servers` is empty; write at least one: nats://HOST:4222");
    // Not quoted in the error, as it may contain a password.
    let parse = |(at, url): (usize, &String)| {
        url.parse().map_err(|error| anyhow!("entry {} of `nats.servers` is not the URL of a server: {error}", at + 1))
    };
    nats.servers.iter().enumerate().map(parse).collect()
}

/// The address alone, which may be shown. The user is in the options.
fn without_user(server: ServerAddr) -> Result<ServerAddr> {
    let mut url = server.into_inner();
    // Fails only if there is no host, and so no user.
    let _ = url.set_password(None);
    let _ = url.set_username("");
    ServerAddr::from_url(url).map_err(|error| anyhow!("an entry of `nats.servers` is not a server: {error}"))
}

async fn options(nats: &Nats, name: &str, state: &Arc<State>) -> Result<ConnectOptions> {
    let state = Arc::clone(state);
    let mut options = ConnectOptions::new()
        .name(format!("estafette {name}"))
        .connection_timeout(TIMEOUT)
        .ping_interval(PING_INTERVAL)
        .subscription_capacity(BUFFERED)
        .reconnect_delay_callback(|attempts| if attempts <= 1 { Duration::ZERO } else { delay(attempts - 2) })
        .event_callback(move |event| {
            state.on_event(event);
            std::future::ready(())
        });
    // As other clients do it: the user of the first server that has one.
    if let Some((user, password)) =
        servers(nats)?.iter().find_map(|server| Some((server.username()?, server.password())))
    {
        options = match password {
            Some(password) => options.user_and_password(decoded(user), decoded(password)),
            None => options.token(decoded(user)),
        };
    }
    if let Some(path) = &nats.credentials {
        let read = options.credentials_file(path).await;
        options = read.with_context(|| format!("cannot read the credentials {}", path.display()))?;
    }
    if let Some(tls) = &nats.tls {
        options = options.require_tls(true);
        if let Some(path) = &tls.ca {
            options = options.add_root_certificates(readable(path)?.to_owned());
        }
        if let Some((certificate, key)) = &tls.certificate {
            options = options.add_client_certificate(readable(certificate)?.to_owned(), readable(key)?.to_owned());
        }
    }
    Ok(options)
}

/// A part of a URL, without `%` and hexadecimal digits.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hexadecimal = after.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match hexadecimal.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn readable(path: &Path) -> Result<&Path> {
    std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(path)
}

/// The delay before another attempt. `attempts` have failed before the last one.
pub(super) fn delay(attempts: usize) -> Duration {
    let doublings = u32::try_from(attempts).unwrap_or(u32::MAX).min(16);
    DELAYS.0.saturating_mul(2u32.saturating_pow(doublings)).min(DELAYS.1)
}

/// An error and its causes, in one line.
pub(super) fn reason(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    plain(&text)
}

fn plain(text: &str) -> String {
    text.trim_start_matches("nats: ").replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_a_url_are_decoded() {
        assert_eq!(decoded("p%40ss%"), "p@ss%");
    }

    #[test]
    fn an_address_has_no_password() {
        let server = without_user("nats://flow:secret@127.0.0.1:4222".parse().unwrap()).unwrap();
        assert_eq!((server.as_url_str(), server.username()), ("nats://127.0.0.1:4222", None));
        let server = without_user("tls://token@a.example".parse().unwrap()).unwrap();
        assert_eq!((server.as_url_str(), server.port()), ("tls://a.example", 4222));
    }

    #[test]
    fn delays_double_up_to_the_maximum() {
        let delays: Vec<_> = [0, 1, 2, 6, 1_000_000].into_iter().map(|attempts| delay(attempts).as_millis()).collect();
        assert_eq!(delays, [100, 200, 400, 5000, 5000]);
    }
}
