//! Passes to the command which commit and compiler it was built from, for the records that it
//! writes.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The log of HEAD changes with each commit and checkout.
    let log = Path::new("../../.git/logs/HEAD");
    if log.exists() {
        println!("cargo:rerun-if-changed={}", log.display());
    }
    // Sources without git have no commit: one of a repository around them would be another project's.
    let is_repository = Path::new("../../.git").exists();
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| String::from("rustc"));
    let compiler = printed(Command::new(rustc).arg("--version")).unwrap_or_else(|| String::from("unknown"));
    println!("cargo:rustc-env=ESTAFETTE_COMPILER={compiler}");
    if is_repository && let Some(commit) = printed(Command::new("git").args(["rev-parse", "--short=12", "HEAD"])) {
        println!("cargo:rustc-env=ESTAFETTE_COMMIT={commit}");
    }
}

/// What a command prints, if it succeeds.
fn printed(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}
