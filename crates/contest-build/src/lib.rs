//! Shared code of the mechanisms' build scripts: passes the versions of the linked libraries to the
//! crates.
#![forbid(unsafe_code)]

// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The workspace's lock file, relative to any crate's folder, where cargo runs build scripts.
const WORKSPACE_LOCK: &str = "../../Cargo.lock";
/// The lock file of a package, in the crate's folder.
const PACKAGE_LOCK: &str = "Cargo.lock";

/// Passes the locked version of each dependency of the built crate as the variable `LOCKED_NAME`,
/// for the mechanisms' descriptions. If a dependency has two versions, the name includes the
/// version up to the first number that is not zero: `LOCKED_BINCODE_1`, `LOCKED_IPC_CHANNEL_0_13`.
///
/// The lock file is the workspace's. A crate from a registry has none: there it is the lock file
/// of the build, which is searched for above its target folder. If the target folder is elsewhere,
/// as in `cargo install`, the versions are those that the package was made with, and say so.
///
/// # Panics
///
/// If there is no lock file, or it does not contain all dependencies of that crate.
pub fn locked() {
    let package = env::var("CARGO_PKG_NAME").expect("cargo sets CARGO_PKG_NAME");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let above_target = out.ancestors().map(|folder| folder.join("Cargo.lock"));
    let of_build = std::iter::once(PathBuf::from(WORKSPACE_LOCK)).chain(above_target);
    let mut candidates = of_build.map(|path| (path, "")).chain([(PathBuf::from(PACKAGE_LOCK), "packaged with ")]);
    let (lock, path, prefix) = candidates
        .find_map(|(path, prefix)| Some((read(&path, &package)?, path, prefix)))
        .unwrap_or_else(|| panic!("no lock file with the package {package}"));
    println!("cargo::rerun-if-changed={}", path.display());
    for (name, version) in versions(&lock, &package) {
        println!("cargo::rustc-env={name}={prefix}{version}");
    }
}

/// Reads a lock file that contains a package.
fn read(path: &Path, package: &str) -> Option<String> {
    let lock = fs::read_to_string(path).ok()?;
    lock.contains(&format!("\nname = \"{package}\"\n")).then_some(lock)
}

/// Returns the variables and values for a package's dependencies in the text of a lock file.
fn versions<'a>(lock: &'a str, package: &str) -> Vec<(String, &'a str)> {
    let packages: Vec<Package> = lock.split("[[package]]").skip(1).filter_map(Package::of).collect();
    let package_entry = packages.iter().find(|found| found.name == package).expect("we are in our own lock");
    // `name`, or `name version` if another package has another version of it.
    let dependencies: Vec<_> =
        package_entry.dependencies.iter().map(|entry| entry.split_once(' ').unwrap_or((entry, ""))).collect();
    let variable = |&(name, which): &(&str, &str)| {
        let is_only_version = dependencies.iter().filter(|(other, _)| *other == name).count() == 1;
        let mut found = packages.iter().filter(|package| package.name == name);
        let version = found
            .find(|package| which.is_empty() || package.version == which)
            .expect("what is needed is locked")
            .version;
        let key = if is_only_version { name.to_owned() } else { format!("{name}_{}", compatible(version)) };
        (format!("LOCKED_{}", key.to_uppercase().replace(['-', '.'], "_")), version)
    };
    dependencies.iter().map(variable).collect()
}

/// A package of the lock file.
struct Package<'a> {
    name: &'a str,
    version: &'a str,
    dependencies: Vec<&'a str>,
}

impl Package<'_> {
    /// Parses a package as cargo writes it: one field or dependency per line.
    fn of(text: &str) -> Option<Package<'_>> {
        let field = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \"")?.strip_suffix('"'))
        };
        let dependencies = text.lines().filter_map(|line| line.strip_prefix(" \"")?.strip_suffix("\",")).collect();
        Some(Package { name: field("name")?, version: field("version")?, dependencies })
    }
}

/// Returns a version up to the first number that is not zero. Versions with the same such prefix
/// are compatible.
fn compatible(version: &str) -> &str {
    let end = version.find(|digit: char| digit.is_ascii_digit() && digit != '0').unwrap_or(version.len());
    version[end..].find('.').map_or(version, |dot| &version[..end + dot])
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKED: &str = r#"
version = 4

[[package]]
name = "bincode"
version = "1.3.3"

[[package]]
name = "bincode"
version = "2.0.1"

[[package]]
name = "ipc-channel"
version = "0.13.0"
dependencies = [
 "bincode 1.3.3",
]

[[package]]
name = "ipc-channel"
version = "0.23.1"

[[package]]
name = "of-both"
version = "0.1.0"
dependencies = [
 "bincode 1.3.3",
 "bincode 2.0.1",
 "ipc-channel 0.13.0",
 "ipc-channel 0.23.1",
]

[[package]]
name = "of-one"
version = "0.1.0"
dependencies = [
 "bincode 2.0.1",
 "of-both",
]
"#;

    #[test]
    fn the_name_of_one_of_two_versions_contains_the_version() {
        let versions = versions(LOCKED, "of-both");
        let variables: Vec<_> = versions.iter().map(|(name, version)| format!("{name}={version}")).collect();
        assert_eq!(
            variables,
            [
                "LOCKED_BINCODE_1=1.3.3",
                "LOCKED_BINCODE_2=2.0.1",
                "LOCKED_IPC_CHANNEL_0_13=0.13.0",
                "LOCKED_IPC_CHANNEL_0_23=0.23.1",
            ]
        );
    }

    #[test]
    fn the_name_of_a_single_version_is_the_crate_name() {
        let versions = versions(LOCKED, "of-one");
        assert_eq!(versions, [("LOCKED_BINCODE".to_owned(), "2.0.1"), ("LOCKED_OF_BOTH".to_owned(), "0.1.0")]);
    }
}
