//! The source that takes HTTP requests: the body of each POST is a message.
//!
//! A request is answered once every topic has accepted its message, so that clients wait while a
//! topic is full. A client that hangs up before has its message left out. One that gets no answer
//! does not know whether its message was accepted.

use std::net::{SocketAddr, TcpListener};
use std::thread;

use anyhow::{Context, Result, anyhow};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, StatusCode};
use tokio::sync::{mpsc, oneshot};

use super::outlet::{Next, Outlet};
use crate::http::{self, FullResponse, Limits, Stopped, Stopper};

/// How many requests may wait for the topics beside those that hold their connection's place.
const QUEUE: usize = 16;

/// The server, which listens already.
pub(super) struct Server {
    listener: TcpListener,
    path: String,
}

/// A message that waits for the topics.
struct Waiting {
    body: Bytes,
    /// Receives whether they have accepted it.
    answer: oneshot::Sender<bool>,
}

/// What each request needs.
#[derive(Clone)]
struct Intake {
    path: String,
    max_message: usize,
    limits: Limits,
    stopped: Stopped,
    queue: mpsc::Sender<Waiting>,
}

impl Server {
    /// Listens, and says where in the log.
    ///
    /// # Errors
    ///
    /// If the address cannot be had.
    pub(super) fn bind(name: &str, listen: SocketAddr, path: &str) -> Result<Server> {
        let (listener, address) = http::bind(listen)?;
        tracing::info!(connector = name, "listening at http://{address}{path}");
        Ok(Server { listener, path: path.to_owned() })
    }

    /// Serves until the outlet is to stop.
    ///
    /// # Errors
    ///
    /// If a topic is broken, or the system is short of descriptors or threads.
    pub(super) fn run(self, mut outlet: Outlet) -> Result<()> {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let (stopper, stopped) = Stopper::new();
        let hook = stopper.clone();
        outlet.stop.on_set(move || hook.stop());
        let (path, limits, max_message) = (self.path, Limits::default(), outlet.max_message());
        let intake = Intake { path, max_message, limits, stopped: stopped.clone(), queue };
        let serve = move || {
            // The only one that holds the queue: once it is dropped, all requests have been answered.
            let intake = intake;
            http::serve(self.listener, limits, stopped, move |request| intake.clone().answer(request))
        };
        let server = thread::Builder::new().name("http".into()).spawn(serve).context("cannot start a thread")?;
        let sent = send_all(waiting, &mut outlet);
        stopper.stop();
        let served = server.join().unwrap_or_else(|_| Err(anyhow!("it panicked; the log says where")));
        sent.and(served)
    }
}

/// Sends what waits, until nobody adds to it any more.
fn send_all(mut waiting: mpsc::Receiver<Waiting>, outlet: &mut Outlet) -> Result<()> {
    while let Some(Waiting { body, answer }) = waiting.blocking_recv() {
        if !answer.is_closed() {
            let is_accepted = outlet.offer(&body)? == Next::Continue;
            let _ = answer.send(is_accepted);
        }
    }
    Ok(())
}

impl Intake {
    async fn answer(self, request: Request<Incoming>) -> FullResponse {
        if request.uri().path() != self.path {
            return http::text(StatusCode::NOT_FOUND, &format!("messages go to {}\n", self.path));
        }
        if request.method() != Method::POST {
            return http::wrong_method("POST");
        }
        if self.stopped.is_stopped() {
            return http::stopping();
        }
        let body = http::read_body(request.into_body(), self.max_message, self.limits, self.stopped).await;
        let body = match body {
            Ok(body) => body,
            Err(answer) => return answer,
        };
        let (answer, accepted) = oneshot::channel();
        if self.queue.send(Waiting { body, answer }).await.is_err() {
            return http::stopping();
        }
        match accepted.await {
            Ok(true) => http::text(StatusCode::ACCEPTED, ""),
            Ok(false) | Err(_) => http::stopping(),
        }
    }
}
