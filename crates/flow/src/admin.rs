//! Asks a running pipeline for something from another process: its status, or a reload.
//!
//! A pipeline listens on an abstract UNIX socket, whose name the kernel forgets with the process: nothing goes stale. Only
//! processes of the same user are answered. A request and its answer are a line of JSON each.

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

/// How long an answer may take, beside what a request itself allows.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest request and answer.
const MAX_LINE: u64 = 16 << 20;

/// What a pipeline may be asked.
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

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Status(Box<Status>),
    /// How many instances run the new code.
    Reloaded(usize),
    Error(String),
}

/// Answers requests for a pipeline, in a thread, until the process ends.
///
/// # Errors
///
/// If the socket cannot be made.
pub fn serve(pipeline: &str, remote: Remote) -> Result<()> {
    let name = format!("{}{}/{pipeline}", prefix(), std::process::id());
    let address = SocketAddr::from_abstract_name(name).context("the pipeline's name is too long for a socket")?;
    let listener = UnixListener::bind_addr(&address).context("cannot listen for requests")?;
    let serve = move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // No descriptor is left: trying again at once would only take the processor.
                thread::sleep(Duration::from_millis(100));
                continue;
            };
            let remote = remote.clone();
            // One that hangs keeps nobody else waiting.
            let _ = thread::Builder::new().name("admin".into()).spawn(move || {
                if let Err(error) = answer(&stream, &remote) {
                    tracing::debug!("a request was not answered: {error:#}");
                }
            });
        }
    };
    thread::Builder::new().name("admin".into()).spawn(serve).context("cannot start a thread")?;
    Ok(())
}

fn answer(stream: &UnixStream, remote: &Remote) -> Result<()> {
    check_peer(stream)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    let request: Request = read_line(stream)?;
    let answer = match request {
        Request::Status => match remote.status() {
            Some(status) => Answer::Status(Box::new(status)),
            None => Answer::Error("the pipeline has ended".into()),
        },
        Request::Reload { function, timeout } => {
            let (sender, receiver) = channel();
            remote.reload(&function, move |result| drop(sender.send(result)));
            let timeout = Duration::from_millis(timeout);
            match receiver.recv_timeout(timeout) {
                Ok(Ok(instances)) => Answer::Reloaded(instances),
                Ok(Err(error)) => Answer::Error(format!("{error:#}")),
                Err(RecvTimeoutError::Timeout) => Answer::Error(format!(
                    "after {timeout:?} not all instances of `{function}` run the new code: it is being compiled or started, or a \
                     call has not returned yet; the reload goes on, and the log of the pipeline says how it ends"
                )),
                Err(RecvTimeoutError::Disconnected) => Answer::Error("the pipeline has ended".into()),
            }
        }
    };
    write_line(stream, &answer)
}

/// A pipeline that runs, as another process reaches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// The pipeline's name: that of its file without the extension.
    pub name: String,
    /// The process number of its supervisor.
    pub pid: u32,
    socket: String,
}

impl Running {
    /// Every pipeline that this user runs on this machine.
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

    /// What it is doing.
    ///
    /// # Errors
    ///
    /// If it has ended, or does not answer.
    pub fn status(&self) -> Result<Status> {
        match self.ask(&Request::Status, TIMEOUT)? {
            Answer::Status(status) => Ok(*status),
            answer => bail!("{}", reason(answer)),
        }
    }

    /// Has it replace a function's code by what its module's file holds now. Each instance takes the new code between two
    /// batches. Returns how many instances run it, once all of them do.
    ///
    /// # Errors
    ///
    /// If there is no such function, the module cannot be used, the new code does not start in one of the instances (then
    /// all go back to the old code), or the pipeline has ended. If it takes longer than `timeout`: the reload goes on then.
    pub fn reload(&self, function: &str, timeout: Duration) -> Result<usize> {
        let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let request = Request::Reload { function: function.to_owned(), timeout: millis };
        match self.ask(&request, timeout.saturating_add(TIMEOUT))? {
            Answer::Reloaded(instances) => Ok(instances),
            answer => bail!("{}", reason(answer)),
        }
    }

    fn ask(&self, request: &Request, timeout: Duration) -> Result<Answer> {
        let ask = || -> Result<Answer> {
            let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(&self.socket)?)?;
            check_peer(&stream)?;
            stream.set_read_timeout(Some(timeout))?;
            write_line(&stream, request)?;
            read_line(&stream)
        };
        ask().with_context(|| format!("cannot reach the pipeline `{}` (process {})", self.name, self.pid))
    }
}

fn reason(answer: Answer) -> String {
    match answer {
        Answer::Error(reason) => reason,
        answer => format!("an answer to something else: {answer:?}"),
    }
}

/// How the names of all sockets of this user begin.
fn prefix() -> String {
    format!("estafette-flow/{}/", rustix::process::geteuid().as_raw())
}

/// An abstract name can be taken by anybody, so both ends look who the other is.
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
