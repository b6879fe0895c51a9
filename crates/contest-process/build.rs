//! Compiles the C baselines, `c/peer.c` with each of the headers in `c/way`, to the executables
//! that `src/c_peer.rs` contains. With the feature `capnp` it also generates the Rust code of
//! `schema/courier.capnp`, which `src/capnp_rpc.rs` includes. Passes the versions of the libraries
//! to the crate.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCES: [&str; 3] = ["c/peer.c", "c/assignment.c", "c/protocol.c"];
const WAYS: [&str; 5] = ["pipe", "unix_stream", "posix_mq", "shm_mutex", "eventfd"];

fn main() {
    estafette_contest_build::locked();
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

/// Passes the version of the system's nanomsg. The library has no function that returns it.
#[cfg(feature = "nanomsg")]
fn nanomsg() {
    let output = Command::new("pkg-config").args(["--modversion", "nanomsg"]).output();
    let version = output.ok().filter(|output| output.status.success()).map(|output| output.stdout).unwrap_or_default();
    let version = String::from_utf8_lossy(&version);
    println!("cargo::rustc-env=NANOMSG={}", if version.is_empty() { "1" } else { version.trim() });
}

/// Generates the code of the Cap'n Proto interface.
#[cfg(feature = "capnp")]
fn schema() {
    println!("cargo::rerun-if-changed=schema");
    let module = vec![String::from("capnp_rpc")];
    let compiled = capnpc::CompilerCommand::new().file("schema/courier.capnp").default_parent_module(module).run();
    if let Err(error) = compiled {
        error.to_string().lines().for_each(|line| println!("cargo::error={line}"));
        println!("cargo::error=the feature `capnp` needs Cap'n Proto's compiler: apt install capnproto libcapnp-dev");
    }
}

/// Compiles a program for each way to pass messages into `out`, named `c-peer-` and the way.
/// Returns the compiler and its options.
fn compile(out: &Path) -> Result<String, String> {
    // The options are those of a release build, also in a debug build. Filling and verifying 64 KiB
    // takes 5.8 us at gcc 12's -O2, which does not vectorise the loops, 3.4 us at -O3, and 2.7 us
    // with unrolled loops, as in rustc's release profile.
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
            // Before glibc 2.34, message queues and mutexes are in separate libraries.
            .args(["-pthread", "-lrt"])
            .output()
            .map_err(|error| format!("starting `{}`: {error}\n{REMEDY}", compiler.path().display()))?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(format!("`{}` failed on c/peer.c with c/way/{way}.h:\n{stderr}", compiler.path().display()));
        }
        stderr.lines().for_each(|line| println!("cargo::warning={line}"));
    }
    let version =
        Command::new(compiler.path()).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    let version = String::from_utf8_lossy(&version);
    Ok(format!("{} -O3 -funroll-loops", version.lines().next().unwrap_or("an unknown compiler").trim()))
}

const REMEDY: &str = "the baselines in C need a C compiler: install one (Debian and Ubuntu: `apt install gcc`, and for \
                      another target its cross compiler, such as `gcc-aarch64-linux-gnu`) or name one in CC";
