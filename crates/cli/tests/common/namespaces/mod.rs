//! Two network namespaces that are joined by an emulated link, for tests between two hosts.
//!
//! Each namespace is a host with its own interfaces, addresses and ports: 10.99.0.1 and 10.99.0.2
//! on the link, and a loopback of its own. A [`Cable`] can be slow, long or lossy: a thread of the
//! test passes the packets on, between a TUN device in each namespace. The namespaces are removed
//! when the value is dropped, even after a panic. Namespaces of test processes that were killed are
//! removed by the next test.
//!
//! This needs root (or `CAP_NET_ADMIN` and `CAP_SYS_ADMIN`), iproute2 and `/dev/net/tun`.
//! [`Hosts::new`] says why it cannot be done where it cannot; a test then skips aloud.

mod cable;
mod tun;

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use self::cable::Cable;
use self::cable::{MTU, Relay};

/// The beginning of all names: this, the process id, a number, and the letter of the host.
const PREFIX: &str = "estafette-t";
/// The interface of the link, in both namespaces.
const INTERFACE: &str = "cable";
/// The number of packets that may wait for the thread of the link. A busy machine lets it wait.
const QUEUE_PACKETS: usize = 10_000;
/// Where `ip` keeps the namespaces.
const FOLDER: &str = "/run/netns";

/// Two namespaces and the link between them.
#[derive(Debug)]
pub(crate) struct Hosts {
    names: [String; 2],
    /// Dropped before the namespaces.
    relay: Option<Relay>,
}

impl Hosts {
    /// The addresses of the two hosts on the link.
    pub(crate) const ADDRESSES: [IpAddr; 2] =
        [IpAddr::V4(Ipv4Addr::new(10, 99, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 99, 0, 2))];

    /// Makes two hosts.
    ///
    /// # Errors
    /// The reason why this machine cannot: missing rights, a missing program, or a kernel without
    /// TUN.
    pub(crate) fn new(cable: Cable) -> Result<Hosts, String> {
        let mut hosts = Hosts::unconnected()?;
        let [a, b] = hosts.names.each_ref().map(|name| tun::create(&Path::new(FOLDER).join(name), INTERFACE));
        let devices = [a?, b?];
        hosts.configure()?;
        hosts.relay = Some(Relay::start(cable, devices).map_err(|error| format!("starting the link: {error}"))?);
        Ok(hosts)
    }

    /// Makes two hosts that the kernel joins by a veth pair: as fast as it can, without a thread in
    /// between.
    ///
    /// # Errors
    /// As [`Hosts::new`], or when the kernel has no veth.
    #[allow(dead_code, reason = "not every test that includes this file measures over it")]
    pub(crate) fn joined_by_veth() -> Result<Hosts, String> {
        let hosts = Hosts::unconnected()?;
        let [a, b] = &hosts.names;
        let [near, far] = [["netns", a], ["netns", b]];
        let words = [&["link", "add", INTERFACE][..], &near, &["type", "veth", "peer", "name", INTERFACE], &far];
        ip(&words.concat())?;
        hosts.configure()?;
        Ok(hosts)
    }

    /// Makes two namespaces. A failure after that removes them.
    fn unconnected() -> Result<Hosts, String> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        remove_stale();
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let names = ["a", "b"].map(|host| format!("{PREFIX}{}-{next}{host}", std::process::id()));
        let hosts = Hosts { names, relay: None };
        hosts.names.iter().try_for_each(|name| ip(&["netns", "add", name]).map(drop))?;
        Ok(hosts)
    }

    /// Gives each host its address on the link.
    fn configure(&self) -> Result<(), String> {
        for (name, address) in self.names.iter().zip(Hosts::ADDRESSES) {
            let (mtu, packets) = (MTU.to_string(), QUEUE_PACKETS.to_string());
            ip(&["-n", name, "link", "set", INTERFACE, "mtu", &mtu, "txqueuelen", &packets])?;
            ip(&["-n", name, "address", "add", &format!("{address}/24"), "dev", INTERFACE])?;
            for interface in ["lo", INTERFACE] {
                ip(&["-n", name, "link", "set", interface, "up"])?;
            }
            // Every kernel has it, and it slows down after a loss as the estimate for a lossy link says.
            ip(&["netns", "exec", name, "sh", "-c", "echo reno > /proc/sys/net/ipv4/tcp_congestion_control"])?;
        }
        Ok(())
    }

    /// The words that run a program on host 0 or 1: they come before it.
    pub(crate) fn words(&self, host: usize) -> [&str; 4] {
        ["ip", "netns", "exec", &self.names[host]]
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        drop(self.relay.take());
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
