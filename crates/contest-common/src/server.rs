//! A server between the ends: a program of its own that the instance's broker starts, watches and ends.
//!
//! All it has lies in the instance's directory, and it is killed with the broker, however that ends.

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

/// Where Debian puts servers, which is not on every user's path.
const SYSTEM: &str = "/usr/sbin";
/// How long a server may take until it answers; children may take longer to open their ends.
const START_TIMEOUT: Duration = Duration::from_secs(8);
/// Between two looks whether it does.
const NAP: Duration = Duration::from_millis(2);
/// The name of its configuration in the instance's directory.
pub const CONFIG: &str = "config";
/// The name of its socket there, where it has one.
pub const SOCKET: &str = "socket";

/// A server program.
pub struct Server {
    /// What it is called.
    pub program: &'static str,
    /// The package that has it in Debian and Ubuntu.
    pub package: &'static str,
    /// What it is started with.
    pub arguments: &'static [&'static str],
    /// What has it say its version.
    pub asked: &'static str,
}

/// The children of an instance with a server: it comes first, and the consumers wait.
pub fn roles(case: &Case) -> Vec<Role> {
    let parties = (0..case.consumers()).map(Role::Consumer).chain((0..case.senders()).map(Role::Producer));
    std::iter::once(Role::Broker).chain(parties).collect()
}

/// Whether a server listens on [`SOCKET`] in this directory: something for [`Server::serve`] to offer.
pub fn listens(dir: &Path) -> Option<String> {
    std::os::unix::net::UnixStream::connect(dir.join(SOCKET)).ok().map(|_| String::from(SOCKET))
}

/// Waits until the server listens. Returns its socket's path.
///
/// # Errors
///
/// If the broker has gone.
pub fn socket(rendezvous: &mut Rendezvous) -> Result<PathBuf> {
    address(rendezvous)?;
    Ok(rendezvous.dir().join(SOCKET))
}

/// Waits until the server answers. Returns what was offered.
///
/// # Errors
///
/// If the broker has gone.
pub fn address(rendezvous: &mut Rendezvous) -> Result<String> {
    rendezvous.request("server")
}

impl Server {
    /// Whether it is installed.
    ///
    /// # Errors
    ///
    /// What to install, where it is not.
    pub fn check_available(&self) -> Result<(), String> {
        match self.find() {
            Some(_) => Ok(()),
            None => Err(format!("needs the program `{}`: apt install {}", self.program, self.package)),
        }
    }

    /// Its name and version, where it is installed: it is asked.
    pub fn version(&self) -> Option<String> {
        let said = Command::new(self.find()?).arg(self.asked).stdin(Stdio::null()).output().ok()?;
        Some(format!("{} {}", self.program, version(&String::from_utf8_lossy(&said.stdout))?))
    }

    fn find(&self) -> Option<PathBuf> {
        let path = env::var_os("PATH").unwrap_or_default();
        let dirs = env::split_paths(&path).chain([PathBuf::from(SYSTEM)]);
        dirs.map(|dir| dir.join(self.program)).find(|path| is_executable(path))
    }

    /// Plays the broker with it: starts it with this configuration, offers the address that `reach` finds once it
    /// answers, and ends it when every party has reported. Returns what it spent from the barrier on.
    ///
    /// # Errors
    ///
    /// If it cannot be started, does not answer in time, or a party has gone.
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
        rendezvous.ready()?;
        let before = server.usage()?;
        rendezvous.over()?;
        Ok(server.usage()?.since(&before))
    }

    fn start(&self, dir: &Path) -> Result<Running> {
        let Some(path) = self.find() else {
            bail!("the program `{}` has gone: apt install {}", self.program, self.package)
        };
        let mut command = Command::new(path);
        let stderr = io::stderr().as_fd().try_clone_to_owned()?;
        // A broker's stderr is a file in the instance's directory; the coordinator shows its end where something fails.
        command.args(self.arguments).current_dir(dir).stdin(Stdio::null()).stdout(stderr);
        ends_with_us(&mut command);
        let process = command.spawn().with_context(|| format!("starting {}", self.program))?;
        Ok(Running { program: self.program, process })
    }
}

/// The first word that is a version, such as `1.14.10`, `v2.9.10` and `v=7.0.15`.
fn version(said: &str) -> Option<&str> {
    let mut words = said.split_whitespace().map(|word| word.trim_start_matches(['v', '=']));
    words.find(|word| word.contains('.') && word.starts_with(|first: char| first.is_ascii_digit()))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Has the kernel kill what this command starts as soon as this thread, a child's main thread, has gone.
#[allow(unsafe_code)]
fn ends_with_us(command: &mut Command) {
    let us = getpid();
    let ask = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // We may have gone before it was asked.
        if getppid() == Some(us) { Ok(()) } else { Err(ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: between fork and exec this makes two system calls, and neither allocates nor takes a lock.
    unsafe { command.pre_exec(ask) };
}

/// A server that runs; it has ended when this is dropped.
struct Running {
    program: &'static str,
    process: Child,
}

impl Running {
    /// Waits until it answers.
    fn wait_for(&mut self, reach: impl Fn() -> Option<String>) -> Result<String> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Some(status) = self.process.try_wait()? {
                bail!("{} ended as it started: {status}", self.program);
            }
            if let Some(address) = reach() {
                return Ok(address);
            }
            if Instant::now() >= deadline {
                bail!("{} did not answer within {START_TIMEOUT:?}", self.program);
            }
            sleep(NAP);
        }
    }

    fn usage(&self) -> Result<Usage> {
        Usage::of(self.process.id()).with_context(|| format!("reading from /proc what {} has spent", self.program))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended by itself cannot be killed; its status is taken all the same.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_in_what_servers_say() {
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
