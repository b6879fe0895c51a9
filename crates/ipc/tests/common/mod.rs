//! Processes for tests: this test's program once more, with a role.

#![allow(dead_code, reason = "not every test uses all of it")]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use estafette_ipc::fd_passing::{recv_fds, send_fds};

const ROLE: &str = "ESTAFETTE_IPC_TEST_ROLE";

/// The longest that anything may take before it counts as hung.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Runs the test `process` of this program in a process of its own, which gets a role and
/// descriptors. It is killed when this is dropped.
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

    /// Kills it, and returns once it is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Whether it has ended by itself; verifies that it was content.
    pub(crate) fn has_ended(&mut self) -> bool {
        let status = self.child.try_wait().unwrap();
        assert!(status.is_none_or(|status| status.success()), "{status:?}");
        status.is_some()
    }

    /// Waits until it ends by itself, and verifies that it was content.
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

/// What this process is started as: its role, the socket to who started it, and descriptors. None in
/// the process that runs the tests.
pub(crate) fn role() -> Option<(String, UnixStream, Vec<OwnedFd>)> {
    let role = std::env::var(ROLE).ok()?;
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let fds = recv_fds(&socket).unwrap();
    Some((role, socket, fds))
}

/// Fails if a test takes longer than anything may: a hang is a failure, not a wait.
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
