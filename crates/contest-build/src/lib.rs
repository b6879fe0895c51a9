//! What the build scripts of the mechanisms share: it says which versions of libraries are built in.
#![forbid(unsafe_code)]

use std::env;
use std::fs;

/// The workspace's lock file, from the folder of any crate of it, where cargo runs build scripts.
const LOCK: &str = "../../Cargo.lock";

/// Says which version of each dependency of the crate that is built is locked, as the variable `LOCKED_NAME`: that is what
/// a mechanism's description says. Of two versions the name says which, up to the first number that is not zero:
/// `LOCKED_BINCODE_1`, `LOCKED_IPC_CHANNEL_0_13`.
///
/// # Panics
///
/// If the lock file cannot be read, or does not have that crate and all its dependencies.
pub fn locked() {
    println!("cargo::rerun-if-changed={LOCK}");
    let lock = fs::read_to_string(LOCK).unwrap_or_else(|error| panic!("{LOCK}: {error}"));
    let ours = env::var("CARGO_PKG_NAME").expect("cargo sets CARGO_PKG_NAME");
    for (name, version) in versions(&lock, &ours) {
        println!("cargo::rustc-env={name}={version}");
    }
}

/// The variables of a package's dependencies in this text of a lock file, and their values.
fn versions<'a>(lock: &'a str, package: &str) -> Vec<(String, &'a str)> {
    let packages: Vec<Package> = lock.split("[[package]]").skip(1).filter_map(Package::of).collect();
    let ours = packages.iter().find(|found| found.name == package).expect("we are in our own lock");
    // `name`, or `name version` where others have another.
    let dependencies: Vec<_> =
        ours.dependencies.iter().map(|entry| entry.split_once(' ').unwrap_or((entry, ""))).collect();
    let variable = |&(name, which): &(&str, &str)| {
        let alone = dependencies.iter().filter(|(other, _)| *other == name).count() == 1;
        let mut found = packages.iter().filter(|package| package.name == name);
        let version = found
            .find(|package| which.is_empty() || package.version == which)
            .expect("what is needed is locked")
            .version;
        let key = if alone { name.to_owned() } else { format!("{name}_{}", compatible(version)) };
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
    fn of_two_versions_the_name_says_which() {
        let versions = versions(LOCKED, "of-both");
        let said: Vec<_> = versions.iter().map(|(name, version)| format!("{name}={version}")).collect();
        assert_eq!(
            said,
            [
                "LOCKED_BINCODE_1=1.3.3",
                "LOCKED_BINCODE_2=2.0.1",
                "LOCKED_IPC_CHANNEL_0_13=0.13.0",
                "LOCKED_IPC_CHANNEL_0_23=0.23.1",
            ]
        );
    }

    #[test]
    fn a_crate_with_one_of_them_has_it_by_its_name() {
        let versions = versions(LOCKED, "of-one");
        assert_eq!(versions, [("LOCKED_BINCODE".to_owned(), "2.0.1"), ("LOCKED_OF_BOTH".to_owned(), "0.1.0")]);
    }
}
