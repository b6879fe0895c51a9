//! Requests to a running pipeline from another process: its status, or a reload.
//!
//! A pipeline listens on an abstract UNIX socket. The kernel removes the socket's name when the
//! process ends, so no stale name remains. Only processes of the same user may send requests. A
//! request and its response are one line of JSON each.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::status::Status;
use crate::supervisor::Remote;

/// The time in which a response must arrive, in addition to the timeout of the request itself.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The length of the longest request or response in bytes.
const MAX_LINE: u64 = 16 << 20;

/// A request to a pipeline.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Request {
    Status,
    Reload {
        function: String,
        /// How long to wait until all instances run the new code, in milliseconds.
        timeout: u64,
    },
}

/// The response to a request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Response {
    Status(Box<Status>),
    /// The number of instances that run the new code.
    Reloaded(usize),
    Error(String),
}

/// Serves requests for a pipeline in a background thread, until the process ends.
///
/// # Errors
///
/// If the socket cannot be created.
pub fn serve(pipeline: &str, remote: Remote) -> Result<()> {
    let name = format!("{}{}/{pipeline}", prefix(), std::process::id());
    let address = SocketAddr::from_abstract_name(name).context("the pipeline's name is too long for a socket")?;
    let listener = UnixListener::bind_addr(&address).context("cannot listen for requests")?;
    let serve = move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // No file descriptor is left. An immediate retry would only use CPU time.
                thread::sleep(Duration::from_millis(100));
                continue;
            };
            let remote = remote.clone();
            // One thread per request, so that a slow client does not block the others.
            let _ = thread::Builder::new().name("admin".into()).spawn(move || {
                if let Err(error) = respond(&stream, &remote) {
                    tracing::debug!("a request failed: {error:#}");
                }
            });
        }
    };
    thread::Builder::new().name("admin".into()).spawn(serve).context("cannot start a thread")?;
    Ok(())
}

fn respond(stream: &UnixStream, remote: &Remote) -> Result<()> {
    check_peer(stream)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    let request: Request = read_line(stream)?;
    let response = match request {
        Request::Status => match remote.status() {
            Some(status) => Response::Status(Box::new(status)),
            None => Response::Error("the pipeline has ended".into()),
        },
        Request::Reload { function, timeout } => {
            let (sender, receiver) = channel();
            remote.reload(&function, move |result| drop(sender.send(result)));
            let timeout = Duration::from_millis(timeout);
            match receiver.recv_timeout(timeout) {
                Ok(Ok(instances)) => Response::Reloaded(instances),
                Ok(Err(error)) => Response::Error(format!("{error:#}")),
                Err(RecvTimeoutError::Timeout) => Response::Error(format!(
                    "after {timeout:?} not all instances of `{function}` run the new code: it is being compiled or started, or a \
                     call has not returned yet; the reload goes on, and the log of the pipeline says how it ends"
                )),
                Err(RecvTimeoutError::Disconnected) => Response::Error("the pipeline has ended".into()),
            }
        }
    };
    write_line(stream, &response)
}

/// A running pipeline, as seen from another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// The pipeline's name: the name of its file without the extension.
    pub name: String,
    /// The process ID of its supervisor.
    pub pid: u32,
    socket: String,
}

impl Running {
    /// All pipelines that this user runs on this machine.
    ///
    /// # Errors
    ///
    /// If the kernel's list of sockets cannot be read.
    pub fn all() -> Result<Vec<Running>> {
        let sockets = fs::read_to_string("/proc/net/unix").context("cannot read /proc/net/unix")?;
        let prefix = prefix();
        let running = |line: &str| {
            let socket = line.split_once(" @")?.1;
            let (pid, name) = socket.strip_prefix(&prefix)?.split_once('/')?;
            Some(Running { name: name.to_owned(), pid: pid.parse().ok()?, socket: socket.to_owned() })
        };
        let mut all: Vec<_> = sockets.lines().filter_map(running).collect();
        all.sort_by_key(|running| running.pid);
        all.dedup();
        Ok(all)
    }

    /// Requests the pipeline's status.
    ///
    /// # Errors
    ///
    /// If the pipeline has ended, or does not respond.
    pub fn status(&self) -> Result<Status> {
        match self.send_request(&Request::Status, TIMEOUT)? {
            Response::Status(status) => Ok(*status),
            response => bail!("{}", reason(response)),
        }
    }

    /// Reloads a function's code from its module's file. Each instance switches to the new code
    /// between two batches. Returns the number of instances, once all of them run the new code.
    ///
    /// # Errors
    ///
    /// If there is no such function, the module is invalid, or the pipeline has ended. If the new
    /// code does not start in one of the instances; then all return to the old code. If it takes
    /// longer than `timeout`; the reload continues then.
    pub fn reload(&self, function: &str, timeout: Duration) -> Result<usize> {
        let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let request = Request::Reload { function: function.to_owned(), timeout: millis };
        match self.send_request(&request, timeout.saturating_add(TIMEOUT))? {
            Response::Reloaded(instances) => Ok(instances),
            response => bail!("{}", reason(response)),
        }
    }

    fn send_request(&self, request: &Request, timeout: Duration) -> Result<Response> {
        let exchange = || -> Result<Response> {
            let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(&self.socket)?)?;
            check_peer(&stream)?;
            stream.set_read_timeout(Some(timeout))?;
            write_line(&stream, request)?;
            read_line(&stream)
        };
        exchange().with_context(|| format!("cannot reach the pipeline `{}` (process {})", self.name, self.pid))
    }
}

fn reason(response: Response) -> String {
    match response {
        Response::Error(reason) => reason,
        response => format!("an unexpected response: {response:?}"),
    }
}

/// The prefix of the names of all sockets of this user.
fn prefix() -> String {
    format!("estafette-flow/{}/", rustix::process::geteuid().as_raw())
}

/// Checks that the other end belongs to this user. Any user can bind any abstract name, so both
/// ends check.
fn check_peer(stream: &UnixStream) -> Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?;
    ensure!(peer.uid == rustix::process::geteuid(), "the process at the other end is of another user");
    Ok(())
}

fn write_line(mut stream: &UnixStream, value: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(stream.write_all(&line)?)
}

fn read_line<T: for<'de> Deserialize<'de>>(stream: &UnixStream) -> Result<T> {
    let mut line = Vec::new();
    BufReader::new(stream.take(MAX_LINE)).read_until(b'\n', &mut line)?;
    ensure!(line.ends_with(b"\n"), "the process at the other end has ended");
    Ok(serde_json::from_slice(&line)?)
}
