//! A server program between the ends. The instance's broker starts, watches and stops it.
//!
//! All its files are in the instance's directory. The kernel kills it when the broker exits for any
//! reason.

use std::env;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use estafette_measure::Rendezvous;
use estafette_measure::case::{Case, Role};
use estafette_measure::usage::Usage;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Where Debian installs servers. It is not in every user's `PATH`.
const SYSTEM: &str = "/usr/sbin";
/// How long a server may take until it accepts connections. It is shorter than the time children
/// have to open their ends.
const START_TIMEOUT: Duration = Duration::from_secs(8);
/// The interval between two connection attempts.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// The name of the server's configuration file in the instance's directory.
pub const CONFIG: &str = "config";
/// The name of the server's socket in that directory, if it has one.
pub const SOCKET: &str = "socket";

/// A server program.
pub struct Server {
    /// The name of its executable.
    pub program: &'static str,
    /// The package that contains it in Debian and Ubuntu.
    pub package: &'static str,
    /// The command-line arguments to start it with.
    pub arguments: &'static [&'static str],
    /// The command-line flag that prints its version.
    pub asked: &'static str,
}

/// Returns the children of an instance with a server: the broker first, then the consumers, then
/// the senders.
pub fn roles(case: &Case) -> Vec<Role> {
    let parties = (0..case.consumers()).map(Role::Consumer).chain((0..case.senders()).map(Role::Producer));
    std::iter::once(Role::Broker).chain(parties).collect()
}

/// Returns [`SOCKET`] if a server listens on it in this directory. A `reach` function for
/// [`Server::serve`].
pub fn listens(dir: &Path) -> Option<String> {
    std::os::unix::net::UnixStream::connect(dir.join(SOCKET)).ok().map(|_| String::from(SOCKET))
}

/// Waits until the server listens. Returns the path of its socket.
///
/// # Errors
///
/// If the broker has exited.
pub fn socket(rendezvous: &mut Rendezvous) -> Result<PathBuf> {
    address(rendezvous)?;
    Ok(rendezvous.dir().join(SOCKET))
}

/// Waits until the server accepts connections. Returns the published address.
///
/// # Errors
///
/// If the broker has exited.
pub fn address(rendezvous: &mut Rendezvous) -> Result<String> {
    rendezvous.request("server")
}

impl Server {
    /// Checks that the server is installed.
    ///
    /// # Errors
    ///
    /// If it is not, with the package to install.
    pub fn check_available(&self) -> Result<(), String> {
        match self.find() {
            Some(_) => Ok(()),
            None => Err(format!("needs the program `{}`: apt install {}", self.program, self.package)),
        }
    }

    /// Returns its name and version if it is installed. Runs it to ask for the version.
    pub fn version(&self) -> Option<String> {
        let output = Command::new(self.find()?).arg(self.asked).stdin(Stdio::null()).output().ok()?;
        Some(format!("{} {}", self.program, version(&String::from_utf8_lossy(&output.stdout))?))
    }

    fn find(&self) -> Option<PathBuf> {
        let path = env::var_os("PATH").unwrap_or_default();
        let dirs = env::split_paths(&path).chain([PathBuf::from(SYSTEM)]);
        dirs.map(|dir| dir.join(self.program)).find(|path| is_executable(path))
    }

    /// Runs the broker's part: starts the server with this configuration, publishes the address
    /// that `reach` returns, and stops the server when every party has reported. `reach` returns
    /// `None` until the server accepts connections. Returns the resource usage since the barrier.
    ///
    /// # Errors
    ///
    /// If the server cannot be started or does not accept connections in time, or a party has
    /// exited.
    pub fn serve(
        &self,
        config: &str,
        rendezvous: &mut Rendezvous,
        reach: impl Fn(&Path) -> Option<String>,
    ) -> Result<Usage> {
        fs::write(rendezvous.dir().join(CONFIG), config).with_context(|| format!("configuring {}", self.program))?;
        let mut server = self.start(rendezvous.dir())?;
        let address = server.wait_for(|| reach(rendezvous.dir()))?;
        rendezvous.publish("server", &address)?;
        rendezvous.wait_at_barrier()?;
        let before = server.usage()?;
        rendezvous.wait_until_all_reported()?;
        Ok(server.usage()?.since(&before))
    }

    fn start(&self, dir: &Path) -> Result<ServerProcess> {
        let Some(path) = self.find() else {
            bail!("the program `{}` is no longer installed: apt install {}", self.program, self.package)
        };
        let mut command = Command::new(path);
        let stderr = io::stderr().as_fd().try_clone_to_owned()?;
        // The broker's stderr is a file in the instance's directory. The coordinator shows the end
        // of that file when something fails.
        command.args(self.arguments).current_dir(dir).stdin(Stdio::null()).stdout(stderr);
        kill_with_parent(&mut command);
        let process = command.spawn().with_context(|| format!("starting {}", self.program))?;
        Ok(ServerProcess { program: self.program, process })
    }
}

/// Returns the first word that is a version number, such as `1.14.10`, `v2.9.10` or `v=7.0.15`.
fn version(output: &str) -> Option<&str> {
    let mut words = output.split_whitespace().map(|word| word.trim_start_matches(['v', '=']));
    words.find(|word| word.contains('.') && word.starts_with(|first: char| first.is_ascii_digit()))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Makes the kernel kill the started process when this thread exits, which is a child's main
/// thread.
#[allow(unsafe_code)]
fn kill_with_parent(command: &mut Command) {
    let parent = getpid();
    let request = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have exited before the request.
        if getppid() == Some(parent) { Ok(()) } else { Err(ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: between fork and exec the closure makes two system calls. Neither allocates nor takes
    // a lock.
    unsafe { command.pre_exec(request) };
}

/// A running server process. Dropping it kills the process and waits for its end.
struct ServerProcess {
    program: &'static str,
    process: Child,
}

impl ServerProcess {
    /// Waits until `reach` returns an address.
    fn wait_for(&mut self, reach: impl Fn() -> Option<String>) -> Result<String> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Some(status) = self.process.try_wait()? {
                bail!("{} exited during startup: {status}", self.program);
            }
            if let Some(address) = reach() {
                return Ok(address);
            }
            if Instant::now() >= deadline {
                bail!("{} did not answer within {START_TIMEOUT:?}", self.program);
            }
            sleep(POLL_INTERVAL);
        }
    }

    fn usage(&self) -> Result<Usage> {
        Usage::of(self.process.id())
            .with_context(|| format!("reading the resource usage of {} from /proc", self.program))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // `kill` fails if the process has already ended; `wait` still reaps it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_version_in_servers_output() {
        assert_eq!(version("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64"), Some("7.0.15"));
        assert_eq!(version("nats-server: v2.9.10\n"), Some("2.9.10"));
        assert_eq!(
            version("mosquitto version 2.0.11\n\nmosquitto is an MQTT v5.0/v3.1.1/v3.1 broker."),
            Some("2.0.11")
        );
        assert_eq!(version("D-Bus Message Bus Daemon 1.14.10\nCopyright (C) 2002"), Some("1.14.10"));
        assert_eq!(version("unknown option"), None);
    }
}
