//! Two network namespaces that are joined by a cable, for tests between two hosts.
//!
//! Each namespace is a host with its own interfaces, addresses and ports: 10.99.0.1 and 10.99.0.2 on
//! the cable (a veth pair), and a loopback of its own. A [`Cable`] can be made slow, long or lossy
//! with `tc`. The namespaces are removed when the value is dropped, even after a panic. Namespaces of
//! test processes that were killed are removed by the next test.
//!
//! This needs root (or `CAP_NET_ADMIN` and `CAP_SYS_ADMIN`) and iproute2. [`Hosts::new`] says why it
//! cannot be done where it cannot; a test then skips aloud.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// The beginning of all names: this, the process id, a number, and the letter of the host.
const PREFIX: &str = "estafette-t";
/// The interface of the cable, in both namespaces.
const INTERFACE: &str = "cable";

/// How the cable treats packets, on each way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cable {
    /// The delay in milliseconds on each way.
    pub(crate) delay_ms: u32,
    /// The share of lost packets in percent on each way.
    pub(crate) loss_percent: f64,
    /// The rate in Mbit/s on each way; 0 for as fast as the machine can.
    pub(crate) rate_mbit: u32,
}

impl Cable {
    /// The queueing disciplines of one end, for `tc qdisc add dev cable`.
    fn disciplines(self) -> Vec<String> {
        let mut disciplines = Vec::new();
        let mut parent = String::from("root");
        if self.rate_mbit > 0 {
            disciplines.push(format!("{parent} handle 1: tbf rate {}mbit burst 32kbit latency 50ms", self.rate_mbit));
            parent = String::from("parent 1:");
        }
        if self.delay_ms > 0 || self.loss_percent > 0.0 {
            let Cable { delay_ms, loss_percent, .. } = self;
            disciplines.push(format!("{parent} netem limit 100000 delay {delay_ms}ms loss {loss_percent}%"));
        }
        disciplines
    }
}

/// Two namespaces and the cable between them.
#[derive(Debug)]
pub(crate) struct Hosts {
    names: [String; 2],
}

impl Hosts {
    /// The addresses of the two hosts on the cable.
    pub(crate) const ADDRESSES: [IpAddr; 2] =
        [IpAddr::V4(Ipv4Addr::new(10, 99, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 99, 0, 2))];

    /// Makes two hosts.
    ///
    /// # Errors
    /// The reason why this machine cannot: missing rights, a missing program, or a kernel without `veth`, `netem` or
    /// `tbf`.
    pub(crate) fn new(cable: Cable) -> Result<Hosts, String> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        remove_stale();
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let names = ["a", "b"].map(|host| format!("{PREFIX}{}-{next}{host}", std::process::id()));
        // From here on, a failure removes what has been made.
        let hosts = Hosts { names };
        for name in &hosts.names {
            ip(&["netns", "add", name])?;
        }
        let [a, b] = &hosts.names;
        run("ip", ["-n", a, "link", "add", "name", INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns", b])?;
        for (name, address) in hosts.names.iter().zip(Hosts::ADDRESSES) {
            ip(&["-n", name, "address", "add", &format!("{address}/24"), "dev", INTERFACE])?;
            for interface in ["lo", INTERFACE] {
                ip(&["-n", name, "link", "set", interface, "up"])?;
            }
            for discipline in cable.disciplines() {
                let words = ["-n", name, "qdisc", "add", "dev", INTERFACE].into_iter().chain(discipline.split(' '));
                run("tc", words)?;
            }
        }
        Ok(hosts)
    }

    /// A command that runs a program on host 0 or 1.
    pub(crate) fn command(&self, host: usize, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[host]]).arg(program);
        command
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            remove(name);
        }
    }
}

/// Removes a namespace. Processes that still run in it keep it, but nobody else finds it.
fn remove(name: &str) {
    // It fails if the namespace was never made.
    let _ = ip(&["netns", "del", name]);
}

/// Removes the namespaces of test processes that have ended without doing it.
fn remove_stale() {
    let Ok(listed) = ip(&["netns", "list"]) else { return };
    for name in listed.lines().filter_map(|line| line.split_whitespace().next()) {
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            remove(name);
        }
    }
}

fn ip(arguments: &[&str]) -> Result<String, String> {
    run("ip", arguments)
}

/// Runs a program to its end. Returns what it printed.
fn run<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(arguments);
    let output = command.output().map_err(|error| format!("cannot run `{program}`: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
