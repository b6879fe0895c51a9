//! What a function may use of the system: only what its pipeline grants. Everything else is refused by WASI itself.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use wasmtime_wasi::cli::OutputFile;
use wasmtime_wasi::{Deterministic, FsPerms, HostMonotonicClock, HostWallClock, WasiCtxBuilder};

/// What a function is given of the system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grants {
    /// The arguments; the first is argument 0, as in the reference: there is no program name before it.
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) directories: Vec<Directory>,
    /// Whether clocks advance. Without them both clocks stand at zero.
    pub(crate) clocks: bool,
    /// Whether random numbers are random. Without, each start sees the same ones.
    pub(crate) random: bool,
    /// The hosts it may connect to by TCP and UDP, each `host:port`. Components only: WASI preview 1 has no `connect`.
    pub(crate) network: Vec<String>,
}

/// A folder that a function may open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Directory {
    /// Its path on this machine.
    pub(crate) host: PathBuf,
    /// Its path as the function sees it.
    pub(crate) guest: String,
    /// Whether the function may change what is in it.
    pub(crate) is_writable: bool,
}

/// The builder of a WASI context that grants this, with the function's output going to two files.
///
/// # Errors
///
/// If a folder cannot be opened, or the name of a host is unknown.
pub(crate) fn context(grants: &Grants, stdout: File, stderr: File) -> Result<WasiCtxBuilder> {
    let mut wasi = WasiCtxBuilder::new();
    // A function's thread has nothing else to do while the function waits for a file.
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

/// Both clocks of a function without clocks.
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
