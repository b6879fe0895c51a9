//! Makes a connection: the addresses, the user, and TLS.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions, ServerAddr};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::timeout;

use super::errors::reason;
use super::state::State;
use super::timing::{PING_INTERVAL, TIMEOUT, delay};
use crate::config::Nats;

/// How many messages a subscription of the client buffers. Further ones are lost; a pull never asks
/// for so many.
const BUFFERED: usize = 8192;

/// Connects to the server that answers first. If none does within the timeout, the connection is
/// made later.
///
/// # Errors
///
/// If a server refuses the connection and no other accepts it, or the credentials or certificates
/// cannot be read.
pub(super) async fn connect(nats: &Nats, name: &str, state: &Arc<State>) -> Result<Client> {
    let servers = servers(nats)?.into_iter().map(without_user).collect::<Result<Vec<_>>>()?;
    let failure = match first(nats, name, state, &servers).await? {
        First::Connected(client) => {
            if servers.len() > 1 {
                client.set_server_pool(servers.as_slice()).await.context("cannot use `nats.servers`")?;
            }
            state.connected();
            return Ok(client);
        }
        First::Failed(error) if is_tls(&error) => {
            bail!("no TLS with the NATS server: {}; check `nats.tls`", reason(&error))
        }
        First::Failed(error) => match error.kind() {
            ConnectErrorKind::Io | ConnectErrorKind::TimedOut | ConnectErrorKind::Dns => reason(&error),
            ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                bail!("the NATS server refuses the connection: {}; check `nats.credentials`", reason(&error))
            }
            _ => bail!("no connection to the NATS server: {}", reason(&error)),
        },
        First::TimedOut => format!("no answer within {TIMEOUT:?}"),
    };
    state.unreachable(&failure);
    let options = options(nats, name, state).await?.retry_on_initial_connect();
    options.connect(servers).await.map_err(|error| anyhow!("{}", reason(&error)))
}

/// The result of the first attempts.
enum First {
    Connected(Client),
    /// All have failed. A refusal, if there is one.
    Failed(ConnectError),
    TimedOut,
}

/// Connects to all servers at once, and keeps the first connection.
async fn first(nats: &Nats, name: &str, state: &Arc<State>, servers: &[ServerAddr]) -> Result<First> {
    let mut attempts = FuturesUnordered::new();
    for server in servers {
        let options = options(nats, name, state).await?;
        attempts.push(options.connect(server.clone()));
    }
    let mut failure: Option<ConnectError> = None;
    let race = async {
        while let Some(attempt) = attempts.next().await {
            match attempt {
                Ok(client) => return Some(client),
                Err(error) if is_refusal(&error) || failure.is_none() => failure = Some(error),
                Err(_) => {}
            }
        }
        None
    };
    let client = timeout(TIMEOUT, race).await.ok().flatten();
    Ok(match (client, failure) {
        (Some(client), _) => First::Connected(client),
        (None, Some(failure)) => First::Failed(failure),
        (None, None) => First::TimedOut,
    })
}

/// Whether a server was reached, and did not accept the connection.
fn is_refusal(error: &ConnectError) -> bool {
    is_tls(error) || !matches!(error.kind(), ConnectErrorKind::Io | ConnectErrorKind::TimedOut | ConnectErrorKind::Dns)
}

/// Whether a server was reached, and its certificate or the host's is not right. The client calls
/// most of these errors those of the connection.
fn is_tls(error: &ConnectError) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(cause) = next {
        if cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::InvalidData) {
            return true;
        }
        next = cause.source();
    }
    error.kind() == ConnectErrorKind::Tls
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
}
