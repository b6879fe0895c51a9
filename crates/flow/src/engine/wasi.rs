//! The access of a function to the system, as its pipeline grants it. WASI refuses everything else.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use wasmtime_wasi::cli::OutputFile;
use wasmtime_wasi::{Deterministic, FsPerms, HostMonotonicClock, HostWallClock, WasiCtxBuilder};

/// The system resources that are granted to a function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grants {
    /// The arguments. The first has index 0, as in the reference: there is no program name before
    /// it.
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) directories: Vec<Directory>,
    /// Whether clocks advance. Otherwise both clocks stay at zero.
    pub(crate) clocks: bool,
    /// Whether random numbers are random. Otherwise each start gets the same ones.
    pub(crate) random: bool,
    /// The hosts to which it may connect by TCP and UDP, as `host:port`. Only for components: WASI
    /// preview 1 has no `connect`.
    pub(crate) network: Vec<String>,
}

/// A folder that a function may open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Directory {
    /// Its path on this machine.
    pub(crate) host: PathBuf,
    /// The path that the function sees.
    pub(crate) guest: String,
    /// Whether the function may change the folder's content.
    pub(crate) is_writable: bool,
}

/// Builds a WASI context with these grants, whose stdout and stderr are two files.
///
/// # Errors
///
/// If a folder cannot be opened, or a host name cannot be resolved.
pub(crate) fn context(grants: &Grants, stdout: File, stderr: File) -> Result<WasiCtxBuilder> {
    let mut wasi = WasiCtxBuilder::new();
    // The thread runs only this function, so it may block on files.
    wasi.allow_blocking_current_thread(true);
    wasi.args(&grants.args);
    for (key, value) in &grants.env {
        wasi.env(key, value);
    }
    wasi.stdout(OutputFile::new(stdout)).stderr(OutputFile::new(stderr));
    for directory in &grants.directories {
        let permissions = if directory.is_writable { FsPerms::ReadWrite } else { FsPerms::ReadOnly };
        let opened = wasi.preopened_dir(&directory.host, &directory.guest, permissions);
        opened.map_err(|error| anyhow::anyhow!("cannot open the folder {}: {error}", directory.host.display()))?;
    }
    if !grants.clocks {
        wasi.wall_clock(Stopped).monotonic_clock(Stopped);
    }
    if !grants.random {
        let fixed = || Deterministic::new(vec![0]);
        wasi.secure_random(fixed()).insecure_random(fixed()).insecure_random_seed(0);
    }
    allow_network(&mut wasi, &grants.network)?;
    Ok(wasi)
}

fn allow_network(wasi: &mut WasiCtxBuilder, hosts: &[String]) -> Result<()> {
    let mut allowed: Vec<SocketAddr> = Vec::new();
    for host in hosts {
        allowed.extend(host.to_socket_addrs().with_context(|| format!("cannot look up the host `{host}`"))?);
    }
    wasi.allow_tcp(!allowed.is_empty()).allow_udp(!allowed.is_empty()).allow_ip_name_lookup(!allowed.is_empty());
    wasi.socket_addr_check(move |address, _| {
        let is_allowed = allowed.contains(&address);
        Box::pin(async move { is_allowed })
    });
    Ok(())
}

/// The clocks of a function that is not granted any.
struct Stopped;

impl HostWallClock for Stopped {
    fn resolution(&self) -> Duration {
        Duration::from_secs(1)
    }
    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

impl HostMonotonicClock for Stopped {
    fn resolution(&self) -> u64 {
        1_000_000_000
    }
    fn now(&self) -> u64 {
        0
    }
}
