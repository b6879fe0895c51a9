//! A small HTTP/1.1 server that slow and hostile clients cannot hold up: connections, headers,
//! bodies and times are bounded. It runs on one thread, and costs no processor time while nobody
//! asks.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::future::{Either, select};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};

pub(crate) type Answer = Response<Full<Bytes>>;

/// What a server takes from its clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The most connections at a time. Further ones wait in the listener's backlog.
    pub(crate) connections: usize,
    /// How long a client may take for a request's headers, and may be silent between two requests.
    pub(crate) header_timeout: Duration,
    /// How long a client may take for a body.
    pub(crate) body_timeout: Duration,
    /// How long the connections may take to end once the server is to stop.
    pub(crate) stop_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 256,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(2),
        }
    }
}

/// How many bytes a request's line and headers may have.
const MAX_HEADERS: usize = 16 << 10;
/// How long to wait if a connection could not be accepted, as when no descriptor is left.
const ACCEPT_DELAY: Duration = Duration::from_millis(200);

/// Stops a server, from any thread.
#[derive(Clone, Debug)]
pub(crate) struct Stopper(watch::Sender<bool>);

/// Notifies the server that it is to stop.
#[derive(Clone, Debug)]
pub(crate) struct Stopped(watch::Receiver<bool>);

impl Stopper {
    pub(crate) fn new() -> (Stopper, Stopped) {
        let (sender, receiver) = watch::channel(false);
        (Stopper(sender), Stopped(receiver))
    }

    pub(crate) fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Stopped {
    pub(crate) fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the server is to stop.
    pub(crate) async fn wait(&mut self) {
        // That nobody can stop it any more counts as being stopped.
        let _ = self.0.wait_for(|is_stopped| *is_stopped).await;
    }
}

/// Opens a listener. Returns it with its address, where port 0 has become the one that the system
/// chose.
///
/// # Errors
///
/// If the address is taken or not ours.
pub(crate) fn bind(listen: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let open = || -> io::Result<_> {
        let listener = TcpListener::bind(listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    open().with_context(|| format!("cannot listen at {listen}"))
}

/// Serves requests until it is stopped, and blocks meanwhile.
///
/// # Errors
///
/// If the system has no descriptor left to wait with.
pub(crate) fn serve<F, R>(listener: TcpListener, limits: Limits, stopped: Stopped, answer: F) -> Result<()>
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + 'static,
    R: Future<Output = Answer> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.context("cannot wait for connections")?;
    runtime.block_on(accept_all(listener, limits, stopped, answer))
}

async fn accept_all<F, R>(listener: TcpListener, limits: Limits, stopped: Stopped, answer: F) -> Result<()>
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + 'static,
    R: Future<Output = Answer> + Send + 'static,
{
    let listener = tokio::net::TcpListener::from_std(listener).context("cannot wait for connections")?;
    let places = Arc::new(Semaphore::new(limits.connections));
    let mut stop = stopped.clone();
    loop {
        let accepted = match select(pin!(accept(&listener, &places)), pin!(stop.wait())).await {
            Either::Left((accepted, _)) => accepted,
            Either::Right(_) => break,
        };
        match accepted {
            Ok((stream, place)) => {
                let connection = serve_connection(stream, limits, stopped.clone(), answer.clone());
                tokio::spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                sleep(ACCEPT_DELAY).await;
            }
        }
    }
    drop(listener);
    let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    let _ = timeout(limits.stop_timeout, places.acquire_many(all)).await;
    Ok(())
}

/// The next connection, once there is a place for it.
async fn accept(
    listener: &tokio::net::TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, place))
}

async fn serve_connection<F, R>(stream: TcpStream, limits: Limits, mut stopped: Stopped, answer: F)
where
    F: Fn(Request<Incoming>) -> R,
    R: Future<Output = Answer>,
{
    // Of a client that reads no answers the system says so after this time.
    let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, limits.body_timeout.as_millis() as u32);
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.header_timeout).max_buf_size(MAX_HEADERS);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = match select(connection.as_mut(), pin!(stopped.wait())).await {
        Either::Left((ended, _)) => ended,
        Either::Right(_) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!("an HTTP client was disconnected: {error}");
    }
}

/// Reads a body of at most `most` bytes.
///
/// # Errors
///
/// What to answer if it is too long, too slow, broken, or the server is to stop.
pub(crate) async fn read_body(
    body: Incoming,
    most: usize,
    limits: Limits,
    mut stopped: Stopped,
) -> Result<Bytes, Answer> {
    let too_long = || closing(StatusCode::PAYLOAD_TOO_LARGE, &format!("the body is longer than {most} bytes\n"));
    if body.size_hint().lower() > most as u64 {
        return Err(too_long());
    }
    let reading = timeout(limits.body_timeout, Limited::new(body, most).collect());
    match select(pin!(reading), pin!(stopped.wait())).await {
        Either::Left((Ok(Ok(body)), _)) => Ok(body.to_bytes()),
        Either::Left((Ok(Err(error)), _)) if error.is::<LengthLimitError>() => Err(too_long()),
        Either::Left((Ok(Err(_)), _)) => Err(closing(StatusCode::BAD_REQUEST, "the body is broken\n")),
        Either::Left((Err(_), _)) => Err(closing(StatusCode::REQUEST_TIMEOUT, "the body came too slowly\n")),
        Either::Right(_) => Err(stopping()),
    }
}

/// An answer with a line of text.
pub(crate) fn text(status: StatusCode, text: &str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::copy_from_slice(text.as_bytes())));
    *answer.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
    answer
}

/// An answer to a method that the path does not have.
pub(crate) fn wrong_method(allowed: &'static str) -> Answer {
    let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, &format!("use {allowed}\n"));
    answer.headers_mut().insert(hyper::header::ALLOW, HeaderValue::from_static(allowed));
    answer
}

/// The answer of a server that is to stop.
pub(crate) fn stopping() -> Answer {
    closing(StatusCode::SERVICE_UNAVAILABLE, "the pipeline is stopping\n")
}

/// An answer after which the connection ends, as what is left of the body is not read.
fn closing(status: StatusCode, line: &str) -> Answer {
    let mut answer = text(status, line);
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}
