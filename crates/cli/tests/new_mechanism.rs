//! `new-mechanism`: what it writes works, and what it refuses is left as it was.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Done, Ground};

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

#[test]
fn the_crate_measures_its_channel_beside_the_built_in_ones() {
    let ground = Ground::new();
    let root = checkout();
    let done = ground.run(["new-mechanism", "my-channel", "--path", root.to_str().unwrap()]).exits(0);
    assert!(done.stdout.contains("cargo bench"), "{}", done.stdout);
    // As dependencies are built in the tests of the workspace, so that those are used. A pattern that the channel runs.
    let arguments = ["bench", "--offline", "--profile", "dev", "--", "--pattern", "stream", "--rounds", "1"];
    let target = Path::new(common::PROGRAM).ancestors().nth(2).unwrap();
    let cargo = |arguments: &[&str]| {
        let mut command = ground.program(&cargo(), arguments);
        command.current_dir(ground.path("my-channel")).env("CARGO_TARGET_DIR", target);
        command.env("CARGO_PROFILE_DEV_LTO", "off").env("CARGO_PROFILE_DEV_DEBUG", "false");
        Done::from(command.output().expect("cargo starts"))
    };
    // Both have a row with a rate. A run that the machine disturbed is repeated, with a longer window.
    let has_rate = |done: &Done, name| {
        let is_row = |line: &str| line.split_whitespace().any(|word| word == name) && line.contains("/s ");
        done.stdout.lines().any(is_row)
    };
    let mut windows = ["100ms", "400ms", "1600ms", "3200ms"].into_iter();
    let done = loop {
        let window = windows.next().expect("a window that is long enough for a machine as disturbed as this");
        let done = cargo(&[&arguments[..], &["--window", window, "--timeout", "60s"]].concat());
        let is_measured = done.status.success() && ["my-channel", "flume"].iter().all(|name| has_rate(&done, *name));
        if is_measured || !common::is_disturbed(&done.stderr) {
            assert!(is_measured, "no rate of my-channel or flume: {}\n{}", done.stdout, done.stderr);
            break done;
        }
    };
    assert!(!done.stdout.contains("task"), "another scope is measured: {}", done.stdout);
    assert!(!common::names(ground.path("my-channel/estafette-results")).is_empty());

    let done = cargo(&["bench", "--offline", "--profile", "dev", "--", "list", "thread/my-channel"]).exits(0);
    assert!(done.stdout.contains("thread/my-channel"), "{}", done.stdout);
    let done = cargo(&["run", "--offline", "--quiet", "--", "verify", "thread/my-channel"]).exits(0);
    assert!(done.stdout.contains("my-channel"), "{}", done.stdout);
}

/// The cargo that runs this test.
fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| String::from("cargo"))
}

#[test]
fn without_a_checkout_it_depends_on_versions_and_says_so() {
    let ground = Ground::new();
    // An empty folder is used.
    fs::create_dir(ground.path("my_channel-2")).unwrap();
    let done = ground.run(["new-mechanism", "my_channel-2"]).exits(0);
    assert!(done.stdout.contains("--path"), "{}", done.stdout);
    let manifest = fs::read_to_string(ground.path("my_channel-2/Cargo.toml")).unwrap();
    let version = format!("estafette-cli = {{ version = \"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(manifest.contains(&version) && manifest.contains("name = \"my_channel-2\""), "{manifest}");
    assert!(!manifest.contains("path = \"/"), "{manifest}");
    let main = fs::read_to_string(ground.path("my_channel-2/src/main.rs")).unwrap();
    assert!(main.contains("my_channel_2::registry()"), "{main}");
    assert_eq!(common::names(ground.path("")).len(), 2, "nothing else is written");
}

#[test]
fn bad_names_are_refused_with_a_remedy() {
    let ground = Ground::new();
    let long = "a".repeat(65);
    let bad = ["", "../up", "a/b", ".", "Upper", "1st", "-x", "ä", "a b", "self", "test", "deps", "estafette-x", &long];
    for name in bad.into_iter().chain(["std-mpsc"]) {
        let done = ground.run(["new-mechanism", "--", name]).exits(2);
        assert!(done.stderr.contains("choose a name"), "{name}: {}", done.stderr);
    }
    assert_eq!(common::names(ground.path("")).len(), 1, "nothing is written");
}

#[test]
fn what_exists_is_left_as_it_was() {
    let ground = Ground::new();
    fs::create_dir(ground.path("full")).unwrap();
    fs::write(ground.path("full/notes"), "mine").unwrap();
    fs::write(ground.path("file"), "mine").unwrap();
    std::os::unix::fs::symlink("nowhere", ground.path("link")).unwrap();
    for name in ["full", "file", "link"] {
        let done = ground.run(["new-mechanism", name]).exits(2);
        assert!(done.stderr.contains("choose another name"), "{name}: {}", done.stderr);
    }
    assert_eq!(fs::read_to_string(ground.path("full/notes")).unwrap(), "mine");
    assert_eq!(common::names(ground.path("full")).len(), 1);
    assert_eq!(fs::read_to_string(ground.path("file")).unwrap(), "mine");
    assert_eq!(common::names(ground.path("")).len(), 4, "nothing is left behind");
}

#[test]
fn a_path_that_is_no_checkout_is_refused() {
    let ground = Ground::new();
    for path in ["nowhere", "tmp"] {
        let done = ground.run(["new-mechanism", "my-channel", "--path", path]).exits(2);
        assert!(done.stderr.contains("name the folder of a checkout"), "{path}: {}", done.stderr);
    }
    assert_eq!(common::names(ground.path("")).len(), 1, "nothing is written");
}

#[test]
fn where_nothing_can_be_written_it_says_so() {
    let ground = Ground::new();
    // Not even the superuser creates a folder there.
    let done = Done::from(
        ground.command(["new-mechanism", "my-channel"]).current_dir("/proc").output().expect("the command starts"),
    )
    .exits(2);
    assert!(done.stderr.contains("work in another folder"), "{}", done.stderr);
}
