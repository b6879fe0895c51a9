//! A host process, as the supervisor sees it: starts it, sends it requests, and ends it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags};

use crate::control::{Event, Request, Socket};
use crate::host;

/// How long a request may wait for space in a host's socket buffer.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);

/// The program that is started as a host.
pub(super) struct HostProgram {
    /// The path of the file when it was opened.
    name: PathBuf,
    /// None if it could not be opened. It is then started by its path.
    file: Option<OwnedFd>,
}

impl HostProgram {
    /// Opens a program. Later starts run the same program, even if its file is replaced or removed.
    pub(super) fn open(path: &Path) -> HostProgram {
        let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
        let name = file.as_ref().and_then(|file| fs::read_link(proc_path(file)).ok());
        // Without /proc, an open file cannot be started.
        let file = file.filter(|_| name.is_some());
        HostProgram { name: name.unwrap_or_else(|| path.to_owned()), file }
    }

    fn command(&self) -> Command {
        let Some(file) = &self.file else { return Command::new(&self.name) };
        let mut command = Command::new(proc_path(file));
        command.arg0(&self.name);
        command
    }
}

/// The path of an open file, valid in this process and in a child that it starts.
fn proc_path(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// A host process. Dropping it kills the process.
pub(super) struct Host {
    child: Child,
    socket: Socket,
}

impl Host {
    /// Starts the process. Returns it and its stderr.
    ///
    /// # Errors
    ///
    /// If the program cannot be started.
    pub(super) fn spawn(program: &HostProgram, instances: usize) -> Result<(Host, File)> {
        let (ours, theirs) = Socket::pair().context("cannot make a control socket")?;
        let mut child = program
            .command()
            .arg(OsStr::new(host::ARGUMENT))
            .arg(instances.to_string())
            .stdin(theirs.into_fd())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // In its own process group, so that a Ctrl-C in the terminal goes only to the
            // supervisor.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {} as the host of a function", program.name.display()))?;
        // A host that reads no requests must not block the supervisor.
        ours.set_send_timeout(SEND_TIMEOUT)?;
        let stderr = child.stderr.take().context("the host has no stderr")?;
        Ok((Host { child, socket: ours }, File::from(OwnedFd::from(stderr))))
    }

    /// Sends a request. The death of a host is detected when its events are read.
    pub(super) fn send(&self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.socket.send(request, descriptors)
    }

    /// Receives the next event. Does not block.
    pub(super) fn try_recv(&mut self) -> Received {
        match self.socket.try_recv() {
            Ok(Some((event, _))) => Received::Event(event),
            Ok(None) => Received::End(None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Received::Nothing,
            Err(error) => Received::End(Some(error)),
        }
    }

    /// Its process ID.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process, and waits for its end.
    pub(super) fn kill(&mut self) -> Option<ExitStatus> {
        let _ = self.child.kill();
        self.child.wait().ok()
    }
}

/// The result of receiving from a host.
pub(super) enum Received {
    Event(Event),
    Nothing,
    /// The host has ended, or sent an invalid event.
    End(Option<io::Error>),
}

impl Drop for Host {
    fn drop(&mut self) {
        self.kill();
    }
}

impl AsFd for Host {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
