//! Networks that fail under load: two hosts in network namespaces, with a cable that is unplugged.
//!
//! This needs root and iproute2. Where it cannot be done, the tests are skipped and say so.

use std::ffi::OsStr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, thread};

use tempfile::TempDir;

use crate::ground::{Ground, numbers};
use crate::kills::{THERE_AND_BACK, until_count};
use crate::namespaces::{Cable, Hosts};
use crate::runner::tests;
use crate::server::find;

tests![a_network_fails_5_times; ignored: a_network_fails_20_times_for_5_seconds];

/// How long the cable is unplugged: shorter and longer than `ack_wait`.
const PARTITIONS: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(4)];
const LONG_PARTITIONS: [Duration; 1] = [Duration::from_secs(5)];

/// A server on the first host.
struct Server {
    child: Child,
    _folder: TempDir,
}

impl Server {
    fn start(hosts: &Hosts) -> Option<Server> {
        let program = find()?;
        let folder = tempfile::tempdir().unwrap();
        let child = command(hosts, 0, program)
            .args(["-js", "-sd", "store", "-a", &Hosts::ADDRESSES[0].to_string(), "-p", "4222"])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Some(Server { child, _folder: folder })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Unplugs the cable again and again, for these times in turn, while messages cross it in both
/// directions.
fn partitions(count: usize, times: &[Duration]) {
    let name = thread::current().name().unwrap_or("a test").to_owned();
    let hosts = match Hosts::new(Cable::default()) {
        Ok(hosts) => hosts,
        Err(why) => return eprintln!("{name}: skipped: {why}"),
    };
    let Some(_server) = Server::start(&hosts) else { return };
    let ground = Ground::at(THERE_AND_BACK, &format!("nats://{}:4222", Hosts::ADDRESSES[0]));
    let messages = 2000 * (count + 2);
    ground.write("in.txt", numbers(messages));
    let program = env::current_exe().unwrap();
    let _edge = ground.spawn_by(command(&hosts, 0, &program), "edge");
    let _center = ground.spawn_by(command(&hosts, 1, &program), "center");
    for partition in 1..=count {
        until_count(&ground, "out.txt", 2000 * partition);
        plug(&hosts, "down");
        thread::sleep(times[partition % times.len()]);
        plug(&hosts, "up");
    }
    ground.until_all("out.txt", numbers(messages));
}

/// A program on host 0 or 1.
fn command(hosts: &Hosts, host: usize, program: impl AsRef<OsStr>) -> Command {
    let [first, rest @ ..] = hosts.words(host);
    let mut command = Command::new(first);
    command.args(rest).arg(program);
    command
}

/// Sets the cable of the second host `up` or `down`.
fn plug(hosts: &Hosts, state: &str) {
    let status = command(hosts, 1, "ip").args(["link", "set", "cable", state]).status().unwrap();
    assert!(status.success(), "{status}");
}

fn a_network_fails_5_times() {
    partitions(5, &PARTITIONS);
}

fn a_network_fails_20_times_for_5_seconds() {
    partitions(20, &LONG_PARTITIONS);
}
