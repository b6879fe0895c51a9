//! Builds the baselines in C, `c/peer.c` with each of the headers in `c/way`, to the executables that
//! `src/process/c_peer.rs` holds; with the feature `capnp` also the Rust of `schema/courier.capnp`, which
//! `src/process/capnp_rpc.rs` includes. Says which versions of libraries are built in.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The workspace's lock file.
const LOCK: &str = "../../Cargo.lock";
const SOURCES: [&str; 3] = ["c/peer.c", "c/assignment.c", "c/protocol.c"];
const WAYS: [&str; 5] = ["pipe", "unix_stream", "posix_mq", "shm_mutex", "eventfd"];

fn main() {
    locked();
    #[cfg(feature = "nanomsg")]
    nanomsg();
    println!("cargo::rerun-if-changed=c");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    match compile(&out) {
        Ok(compiler) => println!("cargo::rustc-env=C_PEER_COMPILER={compiler}"),
        Err(error) => error.lines().for_each(|line| println!("cargo::error={line}")),
    }
    #[cfg(feature = "capnp")]
    schema();
}

/// Says which version of each dependency is locked, as `LOCKED_NAME`: that is what a mechanism's description says. Of two
/// versions the name says which, up to the first number that is not zero: `LOCKED_BINCODE_1`, `LOCKED_IPC_CHANNEL_0_13`.
fn locked() {
    println!("cargo::rerun-if-changed={LOCK}");
    let lock = fs::read_to_string(LOCK).unwrap_or_else(|error| panic!("{LOCK}: {error}"));
    let packages: Vec<Package> = lock.split("[[package]]").skip(1).filter_map(Package::of).collect();
    let ours = packages.iter().find(|package| package.name == env!("CARGO_PKG_NAME")).expect("we are in our own lock");
    // `name`, or `name version` where others have another.
    let dependencies: Vec<_> =
        ours.dependencies.iter().map(|entry| entry.split_once(' ').unwrap_or((entry, ""))).collect();
    for &(name, which) in &dependencies {
        let alone = dependencies.iter().filter(|(other, _)| *other == name).count() == 1;
        let mut found = packages.iter().filter(|package| package.name == name);
        let version = found
            .find(|package| which.is_empty() || package.version == which)
            .expect("what is needed is locked")
            .version;
        let key = if alone { name.to_owned() } else { format!("{name}_{}", compatible(version)) };
        println!("cargo::rustc-env=LOCKED_{}={version}", key.to_uppercase().replace(['-', '.'], "_"));
    }
}

/// A package of the lock file.
struct Package<'a> {
    name: &'a str,
    version: &'a str,
    dependencies: Vec<&'a str>,
}

impl Package<'_> {
    /// Reads one as cargo writes it, a line a field and a line a dependency.
    fn of(text: &str) -> Option<Package<'_>> {
        let field = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \"")?.strip_suffix('"'))
        };
        let dependencies = text.lines().filter_map(|line| line.strip_prefix(" \"")?.strip_suffix("\",")).collect();
        Some(Package { name: field("name")?, version: field("version")?, dependencies })
    }
}

/// A version up to the first number that is not zero: those that begin so are compatible.
fn compatible(version: &str) -> &str {
    let end = version.find(|digit: char| digit.is_ascii_digit() && digit != '0').unwrap_or(version.len());
    version[end..].find('.').map_or(version, |dot| &version[..end + dot])
}

/// Says which version of the system's nanomsg this is linked with, as the library itself cannot be asked.
#[cfg(feature = "nanomsg")]
fn nanomsg() {
    let asked = Command::new("pkg-config").args(["--modversion", "nanomsg"]).output();
    let version = asked.ok().filter(|asked| asked.status.success()).map(|asked| asked.stdout).unwrap_or_default();
    let version = String::from_utf8_lossy(&version);
    println!("cargo::rustc-env=NANOMSG={}", if version.is_empty() { "1" } else { version.trim() });
}

/// Compiles the interface for Cap'n Proto RPC.
#[cfg(feature = "capnp")]
fn schema() {
    println!("cargo::rerun-if-changed=schema");
    let module = ["process", "capnp_rpc"].map(String::from).to_vec();
    let compiled = capnpc::CompilerCommand::new().file("schema/courier.capnp").default_parent_module(module).run();
    if let Err(error) = compiled {
        error.to_string().lines().for_each(|line| println!("cargo::error={line}"));
        println!("cargo::error=the feature `capnp` needs Cap'n Proto's compiler: apt install capnproto libcapnp-dev");
    }
}

/// Compiles a program for each way to pass a message, `c-peer-` and its name, into `out`. Returns what with.
fn compile(out: &Path) -> Result<String, String> {
    // As a C programmer ships a program whose loops matter, in a debug build too. Filling and checking 64 KiB takes
    // 5.8 us at gcc 12's -O2, which does not vectorise them, 3.4 us at -O3 and 2.7 us with loops unrolled, as rustc's
    // release profile has them.
    let compiler = cc::Build::new()
        .opt_level(3)
        .flag("-funroll-loops")
        .debug(false)
        .pic(false)
        .std("c11")
        .extra_warnings(true)
        .try_get_compiler()
        .map_err(|error| format!("{error}\n{REMEDY}"))?;
    for way in WAYS {
        let output = compiler
            .to_command()
            .arg(format!("-DWAY=\"way/{way}.h\""))
            .arg("-o")
            .arg(out.join(format!("c-peer-{way}")))
            .args(SOURCES)
            // Message queues and mutexes have libraries of their own before glibc 2.34.
            .args(["-pthread", "-lrt"])
            .output()
            .map_err(|error| format!("starting `{}`: {error}\n{REMEDY}", compiler.path().display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(format!("`{}` failed on c/peer.c with c/way/{way}.h:\n{said}", compiler.path().display()));
        }
        said.lines().for_each(|line| println!("cargo::warning={line}"));
    }
    let version =
        Command::new(compiler.path()).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    let version = String::from_utf8_lossy(&version);
    Ok(format!("{} -O3 -funroll-loops", version.lines().next().unwrap_or("an unknown compiler").trim()))
}

const REMEDY: &str = "the baselines in C need a C compiler: install one (Debian and Ubuntu: `apt install gcc`, and for \
                      another target its cross compiler, such as `gcc-aarch64-linux-gnu`) or name one in CC";
