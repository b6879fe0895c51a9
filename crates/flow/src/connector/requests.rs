//! The source that receives HTTP requests: the body of each POST is a message.
//!
//! A response is sent once every topic has accepted the message, so clients wait while a topic is
//! full. If a client disconnects before, its message is dropped. A client that gets no response
//! does not know whether its message was accepted.

use std::net::{SocketAddr, TcpListener};
use std::thread;

use anyhow::{Context, Result, anyhow};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, StatusCode};
use tokio::sync::{mpsc, oneshot};

use super::outlet::{Next, Outlet};
use crate::http::{self, FullResponse, Limits, Stopped, Stopper};

/// How many requests may wait in the queue to the topics. Further ones wait in their connections.
const QUEUE: usize = 16;

/// The server, whose socket is already listening.
pub(super) struct Server {
    listener: TcpListener,
    path: String,
}

/// A message that waits for the topics.
struct Waiting {
    body: Bytes,
    /// Sends whether the topics have accepted the message.
    accepted: oneshot::Sender<bool>,
}

/// The state that each request needs.
#[derive(Clone)]
struct Intake {
    path: String,
    max_message: usize,
    limits: Limits,
    stopped: Stopped,
    queue: mpsc::Sender<Waiting>,
}

impl Server {
    /// Starts to listen, and logs the address.
    ///
    /// # Errors
    ///
    /// If the address cannot be used.
    pub(super) fn bind(name: &str, listen: SocketAddr, path: &str) -> Result<Server> {
        let (listener, address) = http::bind(listen)?;
        tracing::info!(connector = name, "listening at http://{address}{path}");
        Ok(Server { listener, path: path.to_owned() })
    }

    /// Serves requests until the outlet must stop.
    ///
    /// # Errors
    ///
    /// If a topic's ring is broken, or the system has no file descriptor or thread left.
    pub(super) fn run(self, mut outlet: Outlet) -> Result<()> {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let (stopper, stopped) = Stopper::new();
        let hook = stopper.clone();
        outlet.stop.on_set(move || hook.stop());
        let (path, limits, max_message) = (self.path, Limits::default(), outlet.max_message());
        let intake = Intake { path, max_message, limits, stopped: stopped.clone(), queue };
        let serve = move || {
            // The only owner of the queue's sender: once it is dropped, all requests have their
            // responses.
            let intake = intake;
            http::serve(self.listener, limits, stopped, move |request| intake.clone().respond(request))
        };
        let server = thread::Builder::new().name("http".into()).spawn(serve).context("cannot start a thread")?;
        let sent = send_all(waiting, &mut outlet);
        stopper.stop();
        let served = server.join().unwrap_or_else(|_| Err(anyhow!("it panicked; the log says where")));
        sent.and(served)
    }
}

/// Sends all waiting messages, until the last sender of the queue is dropped.
fn send_all(mut waiting: mpsc::Receiver<Waiting>, outlet: &mut Outlet) -> Result<()> {
    while let Some(Waiting { body, accepted }) = waiting.blocking_recv() {
        if !accepted.is_closed() {
            let is_accepted = outlet.offer(&body)? == Next::Continue;
            let _ = accepted.send(is_accepted);
        }
    }
    Ok(())
}

impl Intake {
    async fn respond(self, request: Request<Incoming>) -> FullResponse {
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
            Err(response) => return response,
        };
        let (sender, accepted) = oneshot::channel();
        if self.queue.send(Waiting { body, accepted: sender }).await.is_err() {
            return http::stopping();
        }
        match accepted.await {
            Ok(true) => http::text(StatusCode::ACCEPTED, ""),
            Ok(false) | Err(_) => http::stopping(),
        }
    }
}
