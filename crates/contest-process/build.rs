//! Builds the baselines in C, `c/peer.c` with each of the headers in `c/way`, to the executables that
//! `src/c_peer.rs` holds; with the feature `capnp` also the Rust of `schema/courier.capnp`, which
//! `src/capnp_rpc.rs` includes. Says which versions of libraries are built in.

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
    let module = vec![String::from("capnp_rpc")];
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
