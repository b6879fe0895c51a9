//! Metrics and health of a running pipeline, by HTTP on a loopback address.
//!
//! | path | response |
//! |---|---|
//! | `/metrics` | the text format of Prometheus, version 0.0.4 |
//! | `/health` | 200 `ok`, or 503 with the permanent failures and the problems of sources and sinks, one line each |
//!
//! | file | content |
//! |---|---|
//! | `families.rs` | the metrics: names, types and values |
//! | `text.rs` | the text format |

mod families;
mod text;

use std::fmt::{self, Debug, Formatter};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, StatusCode};

use crate::http::{self, FullResponse, Limits, Stopped, Stopper};
use crate::status::Status;

/// How long a status is cached, so that many requests do not load the supervisor.
const FRESH: Duration = Duration::from_millis(250);

/// A server of metrics and health. It stops when it is dropped.
///
/// ```no_run
/// # fn main() -> anyhow::Result<()> {
/// # let (pipeline, options): (estafette_flow::config::Pipeline, estafette_flow::Options) = todo!();
/// use estafette_flow::{MetricsServer, Supervisor};
///
/// let supervisor = Supervisor::new(pipeline, options)?;
/// let remote = supervisor.remote();
/// let metrics = MetricsServer::start(([127, 0, 0, 1], 9464).into(), move || remote.status())?;
/// println!("http://{}/metrics", metrics.address());
/// supervisor.run()?;
/// # Ok(())
/// # }
/// ```
pub struct MetricsServer {
    address: SocketAddr,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Debug for MetricsServer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl MetricsServer {
    /// Starts a server on a loopback address. Port 0 means any free port. `status` must return the
    /// pipeline's status, or none if the pipeline has ended. The server's thread calls it at most
    /// four times per second. It may block.
    ///
    /// # Errors
    ///
    /// If the address is not a loopback address or is in use, or the system has no file descriptor
    /// or thread left.
    pub fn start(
        listen: SocketAddr,
        status: impl Fn() -> Option<Status> + Send + Sync + 'static,
    ) -> Result<MetricsServer> {
        ensure!(
            listen.ip().is_loopback(),
            "metrics are not served at {listen}, where other machines might read them; use 127.0.0.1:{port} or [::1]:{port}",
            port = listen.port()
        );
        let (listener, address) = http::bind(listen)?;
        let (stopper, stopped) = Stopper::new();
        let cache = Arc::new(Cache { get_status: Box::new(status), last: Mutex::new(None) });
        let limits = Limits { connections: 32, stop_timeout: Duration::from_millis(100), ..Limits::default() };
        let serve = move || {
            let served = serve(listener, limits, stopped, &cache);
            if let Err(error) = served {
                tracing::error!("metrics are no longer served: {error:#}");
            }
        };
        let thread = thread::Builder::new().name("metrics".into()).spawn(serve).context("cannot start a thread")?;
        tracing::info!("metrics at http://{address}/metrics, health at http://{address}/health");
        Ok(MetricsServer { address, stopper, thread: Some(thread) })
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: std::net::TcpListener, limits: Limits, stopped: Stopped, cache: &Arc<Cache>) -> Result<()> {
    let cache = Arc::clone(cache);
    http::serve(listener, limits, stopped, move |request| {
        let response = respond(&request, &cache);
        async move { response }
    })
}

/// The last status, cached for a short time.
struct Cache {
    get_status: Box<dyn Fn() -> Option<Status> + Send + Sync>,
    last: Mutex<Option<(Instant, Option<Arc<Status>>)>>,
}

impl Cache {
    fn status(&self) -> Option<Arc<Status>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, status)) = &*last
            && at.elapsed() < FRESH
        {
            return status.clone();
        }
        let status = (self.get_status)().map(Arc::new);
        *last = Some((Instant::now(), status.clone()));
        status
    }
}

fn respond(request: &Request<Incoming>, cache: &Cache) -> FullResponse {
    let render = match request.uri().path() {
        "/metrics" => metrics,
        "/health" => health,
        _ => return http::text(StatusCode::NOT_FOUND, "there are /metrics and /health\n"),
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return http::wrong_method("GET, HEAD");
    }
    let mut response = render(cache.status().as_deref());
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn metrics(status: Option<&Status>) -> FullResponse {
    let Some(status) = status else { return http::text(StatusCode::SERVICE_UNAVAILABLE, ENDED) };
    let mut response = http::text(StatusCode::OK, &families::render(status));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// The response if there is no status.
const ENDED: &str = "the pipeline has ended, or does not respond\n";

fn health(status: Option<&Status>) -> FullResponse {
    match status {
        None => http::text(StatusCode::SERVICE_UNAVAILABLE, ENDED),
        Some(status) => match problems(status) {
            problems if problems.is_empty() => http::text(StatusCode::OK, "ok\n"),
            problems => http::text(StatusCode::SERVICE_UNAVAILABLE, &problems),
        },
    }
}

/// What is wrong with a pipeline, one line each.
fn problems(status: &Status) -> String {
    let failures = status.failures.iter().map(|failure| format!("{failure}\n"));
    let connectors = status.connectors.iter();
    let problems = connectors.filter_map(|it| Some(format!("`{}`: {}\n", it.name, it.problem.as_ref()?)));
    failures.chain(problems).collect()
}
