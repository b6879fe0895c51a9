//! Sessions over ssh: starts a peer on the other host by the user's `ssh`, and uses its standard
//! input and output.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use estafette_measure::hosts::{OtherHost, SessionLink, remote};

use super::greeting::hello;
use super::target::{SshTarget, Target};
use crate::args::ToHost;

/// How long ssh may take to exit after the session.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);
/// The command that starts the program on the other host, unless another is given.
const PEER_COMMAND: &str = "estafette";
/// The variable that sshd sets to the two addresses of its connection.
pub(crate) const CONNECTION: &str = "SSH_CONNECTION";

/// Opens a session. ssh may ask the user for a password, so this has no time-out.
///
/// # Errors
/// If ssh or the peer fails, with what to do.
pub(super) fn connect(target: &SshTarget, args: &ToHost) -> Result<OtherHost> {
    let name = Target::Ssh(target.clone()).to_string();
    let mut command = command(target, args);
    let mut ssh = command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            anyhow!("there is no program `ssh` here: install it, or use tcp:// (see `estafette peer --help`)")
        }
        _ => anyhow!(error).context("starting ssh"),
    })?;
    let (stdin, stdout) = ssh.stdin.take().zip(ssh.stdout.take()).context("ssh has no pipes")?;
    let ssh = Arc::new(Mutex::new(ssh));
    let of_link = Arc::clone(&ssh);
    let close = Box::new(move || {
        exit(&of_link);
    });
    let link = SessionLink { reader: Box::new(stdout), writer: Box::new(stdin), close };
    let greeted = remote::greet(link, &hello()).map_err(|error| explain(error, exit(&ssh)).context(name.clone()))?;
    let ours = args.address.or(greeted.peer().address_of_other);
    let Some(ours) = ours else {
        bail!("{name}: the peer does not know the address of this host: give it with --address");
    };
    greeted.start(ours, name)
}

fn command(target: &SshTarget, args: &ToHost) -> Command {
    let mut command = Command::new("ssh");
    // Without a terminal there; a host that has vanished is noticed; no process of ssh stays behind.
    command.args(["-T", "-o", "ServerAliveInterval=15", "-o", "ControlMaster=no"]);
    if let Some(port) = target.port {
        command.args(["-p", &port.to_string()]);
    }
    let program = args.peer_command.as_deref().unwrap_or(PEER_COMMAND);
    let address = args.peer_address.map_or_else(String::new, |address| format!(" --address {address}"));
    command.args(["--", &target.destination(), &format!("{program} peer --stdio{address}")]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// Waits for ssh to exit. Kills it if it does not.
fn exit(ssh: &Mutex<Child>) -> Option<ExitStatus> {
    let mut ssh = ssh.lock().unwrap_or_else(PoisonError::into_inner);
    let deadline = Instant::now() + EXIT_TIMEOUT;
    while Instant::now() < deadline {
        match ssh.try_wait() {
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            Ok(status) => return status,
            Err(_) => return None,
        }
    }
    let _ = ssh.kill();
    let _ = ssh.wait();
    None
}

/// Adds what the exit status of ssh says about a session that did not begin.
fn explain(error: anyhow::Error, status: Option<ExitStatus>) -> anyhow::Error {
    match status.and_then(|status| status.code()) {
        Some(255) => anyhow!("ssh failed: see its message above, and try `ssh` to that host by itself"),
        Some(126 | 127) => anyhow!(
            "the command was not found on the other host: install the same version of Estafette there, or name it with --peer-command"
        ),
        Some(code) if code != 0 => error.context(format!("the command on the other host exited with status {code}")),
        _ => error,
    }
}

/// The addresses of the two ends of an ssh connection: of the client, and of this host.
pub(crate) fn addresses(connection: Option<&str>) -> Option<(IpAddr, IpAddr)> {
    // `client-address client-port server-address server-port`
    let words: Vec<&str> = connection?.split(' ').collect();
    let [client, _, server, _] = words[..] else { return None };
    Some((client.parse().ok()?, server.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_an_ssh_connection_are_read() {
        let found = addresses(Some("10.0.0.1 50000 10.0.0.2 22"));
        assert_eq!(found, Some(("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap())));
        for wrong in [None, Some(""), Some("10.0.0.1 1 10.0.0.2"), Some("a 1 b 2")] {
            assert_eq!(addresses(wrong), None);
        }
    }
}
