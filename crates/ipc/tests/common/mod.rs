//! Child processes for tests: they run the test's own program with a role.

#![allow(dead_code, reason = "not every test uses all of it")]

pub(crate) mod group;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use estafette_ipc::fd_passing::{recv_fds, send_fds};

const ROLE: &str = "ESTAFETTE_IPC_TEST_ROLE";

/// The time after which a test counts as hung.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// A child process that runs the test `process` of this program with a role and descriptors. It is
/// killed on drop.
pub(crate) struct Process {
    child: Child,
    pub(crate) socket: UnixStream,
}

impl Process {
    pub(crate) fn start(role: &str, fds: &[BorrowedFd<'_>]) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["process", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        send_fds(&ours, fds).unwrap();
        Self { child, socket: ours }
    }

    /// Kills the process, and waits until it has ended.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Whether the process has ended. Panics if it failed.
    pub(crate) fn has_ended(&mut self) -> bool {
        let status = self.child.try_wait().unwrap();
        assert!(status.is_none_or(|status| status.success()), "{status:?}");
        status.is_some()
    }

    /// Waits until the process ends. Panics if it failed.
    pub(crate) fn join(mut self) {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if self.has_ended() {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("a process hangs");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The role of this process, the socket to its parent, and its descriptors. None in the process
/// that runs the tests.
pub(crate) fn role() -> Option<(String, UnixStream, Vec<OwnedFd>)> {
    let role = std::env::var(ROLE).ok()?;
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let fds = recv_fds(&socket).unwrap();
    Some((role, socket, fds))
}

/// Runs a test, and aborts if it takes longer than the timeout: a hang fails the test.
pub(crate) fn within_patience<T: Send>(test: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let handle = scope.spawn(test);
        let start = Instant::now();
        while !handle.is_finished() {
            if start.elapsed() > PATIENCE {
                eprintln!("a test hangs");
                std::process::abort();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
