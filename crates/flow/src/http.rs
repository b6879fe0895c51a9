//! A small HTTP/1.1 server that slow and hostile clients cannot block.
//!
//! The number of connections, the size of headers and bodies, and all times are bounded. It runs on
//! one thread, and uses no CPU time while there is no request.

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

pub(crate) type FullResponse = Response<Full<Bytes>>;

/// The limits of a server for its clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The maximum number of concurrent connections. Further ones wait in the listener's backlog.
    pub(crate) connections: usize,
    /// How long a client may take to send a request's headers, and may idle between two requests.
    pub(crate) header_timeout: Duration,
    /// How long a client may take to send a body.
    pub(crate) body_timeout: Duration,
    /// How long to wait for open connections when the server stops.
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

/// The maximum size of the request line and headers in bytes.
const MAX_HEADERS: usize = 16 << 10;
/// The delay after a failed accept, for example because no file descriptor is left.
const ACCEPT_DELAY: Duration = Duration::from_millis(200);

/// Stops a server, from any thread.
#[derive(Clone, Debug)]
pub(crate) struct Stopper(watch::Sender<bool>);

/// Signals the server's tasks to stop.
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

    /// Waits until the server is stopped.
    pub(crate) async fn wait(&mut self) {
        // An error means that no stopper is left, which also counts as stopped.
        let _ = self.0.wait_for(|is_stopped| *is_stopped).await;
    }
}

/// Opens a listener. Returns the listener and its address, in which port 0 is replaced by the port
/// that the system chose.
///
/// # Errors
///
/// If the address is in use, or not an address of this machine.
pub(crate) fn bind(listen: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let open = || -> io::Result<_> {
        let listener = TcpListener::bind(listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    open().with_context(|| format!("cannot listen at {listen}"))
}

/// Serves requests. Blocks until the server is stopped.
///
/// # Errors
///
/// If the system has no file descriptor left for the event loop.
pub(crate) fn serve<F, R>(listener: TcpListener, limits: Limits, stopped: Stopped, handler: F) -> Result<()>
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + 'static,
    R: Future<Output = FullResponse> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.context("cannot wait for connections")?;
    runtime.block_on(accept_all(listener, limits, stopped, handler))
}

async fn accept_all<F, R>(listener: TcpListener, limits: Limits, stopped: Stopped, handler: F) -> Result<()>
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + 'static,
    R: Future<Output = FullResponse> + Send + 'static,
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
                let connection = serve_connection(stream, limits, stopped.clone(), handler.clone());
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

/// Accepts the next connection, once fewer than the maximum are open.
async fn accept(
    listener: &tokio::net::TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, place))
}

async fn serve_connection<F, R>(stream: TcpStream, limits: Limits, mut stopped: Stopped, handler: F)
where
    F: Fn(Request<Incoming>) -> R,
    R: Future<Output = FullResponse>,
{
    // The system reports a client that reads no responses after this time.
    let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, limits.body_timeout.as_millis() as u32);
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let response = handler(request);
        async move { Ok::<_, Infallible>(response.await) }
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
/// The response to send if the body is too long, too slow or broken, or if the server stops.
pub(crate) async fn read_body(
    body: Incoming,
    most: usize,
    limits: Limits,
    mut stopped: Stopped,
) -> Result<Bytes, FullResponse> {
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

/// A response with a line of text.
pub(crate) fn text(status: StatusCode, text: &str) -> FullResponse {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(text.as_bytes())));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
    response
}

/// The response to a method that the path does not support.
pub(crate) fn wrong_method(allowed: &'static str) -> FullResponse {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, &format!("use {allowed}\n"));
    response.headers_mut().insert(hyper::header::ALLOW, HeaderValue::from_static(allowed));
    response
}

/// The response of a server that stops.
pub(crate) fn stopping() -> FullResponse {
    closing(StatusCode::SERVICE_UNAVAILABLE, "the pipeline is stopping\n")
}

/// A response after which the connection closes, since the rest of the body is not read.
fn closing(status: StatusCode, line: &str) -> FullResponse {
    let mut response = text(status, line);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
