//! Open loops: one-way times between two clocks.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

use crate::common::{Ground, PROGRAM};
use crate::namespaces::Cable;
use crate::{Peer, TOKEN, bench, bench_on, hosts, record, run};

/// A peer whose clock is ahead of this one's by more than an hour. `None` where there are no time
/// namespaces, which is said aloud.
fn peer_with_another_clock() -> Option<Peer> {
    let unshare = ["unshare", "--time", "--monotonic", "5000"];
    let tried = Command::new(unshare[0]).args(&unshare[1..]).args(["readlink", "/proc/self/ns/time"]).output();
    // Some kernels move only the children of what `unshare` starts.
    let ours = fs::read_link("/proc/self/ns/time").map(|link| link.display().to_string()).unwrap_or_default();
    let is_moved = |output: &Output| {
        let theirs = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success() && !theirs.is_empty() && theirs != ours
    };
    if !tried.as_ref().is_ok_and(is_moved) {
        eprintln!("skipped: no time namespace: {tried:?}");
        return None;
    }
    Some(Peer::of(Ground::new(), &[&unshare[..], &[PROGRAM, "peer", "--listen=127.0.0.1:0"]].concat()))
}

#[test]
fn an_open_loop_is_timed_between_two_clocks() {
    let Some(peer) = peer_with_another_clock() else { return };
    let ground = Ground::new();
    // Of a mechanism that may lose messages.
    let arguments = ["network/udp", "--pattern=stream", "--load=100/s", "--window=1s"];
    let record = open_loop(&ground, bench(&ground, &peer.url, TOKEN, &arguments));
    let figures = of_open_loop(&record);
    assert!(!figures.is_empty(), "{}", record["instances"]);
    for figures in figures {
        let number =
            |of: &str, name: &str| figures[of][name].as_i64().unwrap_or_else(|| panic!("no {name}: {figures}"));
        assert_eq!(figures["latency"]["open_loop"], true, "{figures}");
        // With a wrong offset all times were 0, or more than an hour.
        assert!((1_000..10_000_000_000).contains(&number("latency", "p50_ns")), "{figures}");
        assert!((1..10_000_000_000).contains(&number("clock_error", "max_ns")), "{figures}");
        // The namespaces of one host have the same clock, but for the offset.
        let drift = number("clock_error", "drift_ns").abs();
        assert!(drift <= 2 * (number("clock_error", "max_ns") - drift / 2), "{figures}");
    }
    assert!(record["entrants"].as_array().unwrap().iter().any(|entrant| entrant["case"]["mechanism"] == "network/udp"));
    peer.interrupt().exits(130);
    ground.assert_clean();
}

/// Runs an open loop, and returns its record. On a busy machine the sender may be late: then no
/// instance counts, and they are recorded as discarded.
fn open_loop(ground: &Ground, command: Command) -> Value {
    let done = run(command);
    assert!(matches!(done.status.code(), Some(0 | 2)), "{}", done.stderr);
    record(ground)
}

/// The figures of the instances with times. A busy machine may leave some without.
fn of_open_loop(record: &Value) -> Vec<&Value> {
    let instances = record["instances"].as_array().unwrap().iter();
    instances.map(|one| &one["outcome"]["measured"]).filter(|figures| figures["latency"].is_object()).collect()
}

#[test]
fn an_open_loop_over_a_long_way_takes_half_of_its_round_trip() {
    let Some(hosts) = hosts(Cable { delay_ms: 20, ..Cable::default() }) else { return };
    let (peer, ground) = (Peer::start_on(&hosts, &["--once"]), Ground::new());
    let arguments = ["network/tcp", "--pattern=stream", "--size=64", "--load=100/s", "--timeout=60s"];
    let record = open_loop(&ground, bench_on(&hosts, &ground, &peer.url, &arguments));
    let half = record["peer"]["link"]["round_trip_fastest_ns"].as_f64().unwrap() / 2.0;
    let figures = of_open_loop(&record);
    let latency = &figures.first().unwrap_or_else(|| panic!("{}", record["instances"]))["latency"];
    let shortest = latency["min_ns"].as_f64().unwrap();
    assert!((0.9 * half..1.5 * half).contains(&shortest), "half of {half}: {latency}");
    peer.end().exits(0);
    ground.assert_clean();
}
