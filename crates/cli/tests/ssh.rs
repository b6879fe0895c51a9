//! `bench --to ssh://` over the real ssh and sshd, both on this host.

mod common;

use std::fs::{self, DirBuilder, Permissions};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use common::{Done, Ground, PROGRAM, Running, is_disturbed, wait_for};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

const SSHD: &str = "/usr/sbin/sshd";

/// A server with keys of its own, and a program `ssh` that has the user's key for it.
struct Sshd {
    ground: Ground,
    server: Running,
    port: u16,
    user: String,
}

impl Sshd {
    /// `None` where the server is not installed, which is said aloud.
    fn start() -> Option<Sshd> {
        if !Path::new(SSHD).exists() {
            assert!(std::env::var("ESTAFETTE_PEERS").is_err(), "{SSHD} is missing: install openssh-server");
            eprintln!("skipped: {SSHD} is missing: install openssh-server");
            return None;
        }
        // What the server's package leaves to the system's start.
        match DirBuilder::new().mode(0o755).create("/run/sshd") {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => eprintln!("/run/sshd: {error}"),
            _ => {}
        }
        let ground = Ground::new();
        let path = |name: &str| ground.path(name).display().to_string();
        for key in ["host", "user"] {
            let made = ground.program("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", &path(key)]).output();
            Done::from(made.expect("ssh-keygen starts")).exits(0);
        }
        // Sessions have the marker of this ground, so what is left of them is found.
        let (marker, value) = ground.marker();
        let server = format!(
            "ListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nSetEnv {marker}={value}\n",
            path("host"),
            path("user.pub")
        );
        fs::write(ground.path("sshd_config"), server).unwrap();
        let client = format!(
            "IdentityFile {}\nIdentitiesOnly yes\nUserKnownHostsFile {}\nGlobalKnownHostsFile none\n\
             StrictHostKeyChecking accept-new\n",
            path("user"),
            path("known_hosts")
        );
        fs::write(ground.path("ssh_config"), client).unwrap();
        fs::create_dir(ground.path("bin")).unwrap();
        let ssh = ground.path("bin/ssh");
        fs::write(&ssh, format!("#!/bin/sh\nexec /usr/bin/ssh -F {} \"$@\"\n", path("ssh_config"))).unwrap();
        fs::set_permissions(&ssh, Permissions::from_mode(0o755)).unwrap();
        let user = Command::new("id").arg("-un").output().expect("`id` starts");
        let user = String::from_utf8(user.stdout).unwrap().trim().to_owned();
        let (server, port) = listening(&ground);
        Some(Sshd { ground, server, port, user })
    }

    /// `bench` to this server.
    fn bench(&self, ground: &Ground, arguments: &[&str]) -> Command {
        let to = format!("ssh://{}@127.0.0.1:{}", self.user, self.port);
        let what = ["bench", "network/tcp", "--pattern=ping-pong", "--size=64", "--timeout=60s", "--out=out"];
        let mut command = ground.command(what.iter().chain(&["--to", &to, "--peer-command", PROGRAM]).chain(arguments));
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.ground.path("bin").display()));
        command
    }

    /// The processes of its sessions, without those of the server itself.
    fn session(&self) -> Vec<String> {
        self.ground.processes().into_iter().filter(|process| !process.ends_with(" sshd")).collect()
    }

    /// Waits until every session has ended, and ends the server.
    fn end(self) {
        wait_for("the end of the sessions", || self.session().is_empty().then_some(()));
        kill_process(self.server.pid(), Signal::TERM).expect("the server is there");
        self.server.end();
        self.ground.assert_clean();
    }
}

/// Starts the server at a free port. Another program may take the port before the server does: then
/// at another.
fn listening(ground: &Ground) -> (Running, u16) {
    for _ in 0..5 {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let config = ground.path("sshd_config").display().to_string();
        let server = ground.program(SSHD, ["-D", "-e", "-f", &config, "-p", &port.to_string()]);
        let mut server = Running::of(ground, server);
        let is_listening = wait_for("the server to listen", || {
            let listens = server.stderr().contains("Server listening on");
            (listens || server.has_ended()).then_some(listens)
        });
        if is_listening {
            return (server, port);
        }
        let stderr = server.stderr();
        assert!(stderr.contains("Address already in use"), "{SSHD} does not start: {stderr}");
    }
    panic!("no port stays free");
}

#[test]
fn a_session_is_measured() {
    let Some(sshd) = Sshd::start() else { return };
    let ground = Ground::new();
    let run = || {
        ground.remove_records();
        Done::from(sshd.bench(&ground, &["--rounds=1"]).output().expect("the command starts"))
    };
    let done = common::undisturbed(run, |done| done.status.success() || !is_disturbed(&done.stderr)).exits(0);
    assert!(done.stdout.contains("Between two hosts: "), "{}", done.stdout);
    let record: Value = serde_json::from_slice(&fs::read(ground.record()).unwrap()).unwrap();
    assert_eq!(record["peer"]["address"], format!("ssh://127.0.0.1:{}", sshd.port));
    assert!(record["instances"].as_array().is_some_and(|instances| !instances.is_empty()), "{record}");
    ground.assert_clean();
    sshd.end();
}

#[test]
fn an_interrupt_ends_the_session_there() {
    let Some(sshd) = Sshd::start() else { return };
    let ground = Ground::new();
    let mut run = Running::of(&ground, sshd.bench(&ground, &["--rounds=1000", "--window=200ms"]));
    // The peer, and a child of it.
    let programs = || sshd.session().into_iter().filter(|process| process.ends_with(" estafette")).count();
    wait_for("the session to measure", || {
        assert!(!run.has_ended(), "{}", run.stderr());
        (programs() > 1).then_some(())
    });
    kill_process(run.pid(), Signal::INT).unwrap();
    run.end().exits(130);
    ground.assert_clean();
    sshd.end();
}
