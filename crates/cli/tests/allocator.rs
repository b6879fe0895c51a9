//! `bench --allocator`: with which allocator mechanisms run, and what is refused.

mod common;

use common::Ground;
#[cfg(feature = "mimalloc")]
use common::{Running, wait_for};

/// One case that allocates nothing that lasts.
const CASE: [&str; 5] = ["task/flume", "--pattern=ping-pong", "--payload=u64", "--runtime=tokio-current", "--rounds=1"];

#[cfg(feature = "mimalloc")]
#[test]
fn both_allocators_are_measured_beside_each_other() {
    let ground = Ground::new();
    let record = ground.bench(20, &[&CASE[..], &["--allocator=system,mimalloc", "--json"]].concat()).json();
    let mechanism =
        |at: &serde_json::Value| record["entrants"][at.as_u64().unwrap() as usize]["case"]["mechanism"].clone();
    let measured = record["instances"].as_array().unwrap().iter();
    let measured: Vec<_> = measured
        .filter(|instance| instance["outcome"]["measured"].is_object())
        .map(|i| mechanism(&i["entrant"]))
        .collect();
    assert!(
        measured.contains(&"task/flume".into()) && measured.contains(&"task/flume@mimalloc".into()),
        "{measured:?}"
    );
    assert_eq!(record["provenance"]["allocator"], "system");
    let capacities: Vec<_> =
        record["entrants"].as_array().unwrap().iter().map(|entrant| &entrant["effective_capacity"]).collect();
    assert!(capacities.windows(2).all(|pair| pair[0] == pair[1]), "{capacities:?}");
    ground.assert_clean();
}

#[cfg(feature = "mimalloc")]
#[test]
fn the_children_of_the_second_row_have_the_other_allocator_in_their_environment() {
    use std::collections::BTreeSet;

    use rustix::process::{Signal, kill_process};

    let ground = Ground::new();
    let run =
        Running::start(&ground, &[&["bench"], &CASE[..4], &["--rounds=1000", "--allocator=mimalloc,system"]].concat());
    let mut allocators = BTreeSet::new();
    wait_for("children with both allocators", || {
        let environments = ground.environments();
        allocators.extend(environments.iter().flatten().filter(|of| of.starts_with("ESTAFETTE_ALLOCATOR=")).cloned());
        (allocators.len() > 1).then_some(())
    });
    kill_process(run.pid(), Signal::INT).unwrap();
    run.end().exits(130);
    ground.assert_clean();
}

#[cfg(feature = "mimalloc")]
#[test]
fn a_row_for_a_second_allocator_must_exist() {
    let run = ["bench", "process/pipe-c", "--allocator=system,mimalloc"];
    let done = Ground::new().run(run).exits(2);
    assert!(done.stderr.contains("no row for a second allocator"), "{}", done.stderr);
}

#[test]
fn an_unknown_allocator_in_the_environment_is_an_error() {
    let ground = Ground::new();
    let output = ground.command(["bench", "process/pipe"]).env("ESTAFETTE_ALLOCATOR", "mimaloc").output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && stderr.contains("set it to system or mimalloc"), "{stderr}");
}

#[cfg(feature = "mimalloc")]
#[test]
fn a_single_allocator_is_that_of_all_rows() {
    let ground = Ground::new();
    let done = ground.bench(20, &[&CASE[..], &["--allocator=mimalloc"]].concat());
    assert!(done.stdout.contains("The allocator was mimalloc.") && !done.stdout.contains('@'), "{}", done.stdout);
    ground.assert_clean();
}

#[cfg(not(feature = "mimalloc"))]
#[test]
fn a_build_without_mimalloc_says_how_to_get_it() {
    let done = Ground::new().run([&["bench"][..], &CASE, &["--allocator=mimalloc"]].concat()).exits(2);
    assert!(done.stderr.contains("--features mimalloc"), "{}", done.stderr);
}

#[test]
fn another_host_another_build_and_a_name_twice_are_refused() {
    let refused = |arguments: &[&str]| Ground::new().run(arguments).exits(2).stderr;
    let between_hosts = refused(&["bench", "net", "--to=tcp://127.0.0.1:1", "--allocator=system"]);
    assert!(between_hosts.contains("leave it out with --to"), "{between_hosts}");
    let rerun = ["gate", "--rerun", env!("CARGO_BIN_EXE_estafette"), "process/pipe", "--", "--allocator=system"];
    assert!(refused(&rerun).contains("leave out --allocator"));
    assert!(refused(&["bench", "process/pipe", "--allocator=system,system"]).contains("twice"));
}
