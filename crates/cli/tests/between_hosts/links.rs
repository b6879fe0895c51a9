//! Long, lossy and slow links, which a thread with two TUN devices emulates.

use std::process::Command;

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::common::{Done, Ground, Running, is_disturbed, undisturbed, wait_for};
use crate::namespaces::{Cable, Hosts};
use crate::{Peer, bench_on, hosts, record, run};

/// A run over a long and lossy way, and its record.
fn run_over_a_lossy_way(hosts: &Hosts) -> (Done, Value) {
    let (peer, ground) = (Peer::start_on(hosts, &["--once"]), Ground::new());
    let arguments = ["network/tcp", "network/udp", "network/framed-estafette", "--pattern=ping-pong,stream"];
    let done = run(bench_on(hosts, &ground, &peer.url, &[&arguments[..], &["--size=64", "--timeout=60s"]].concat()));
    let record = if ground.path("out").exists() { record(&ground) } else { Value::Null };
    peer.end().exits(0);
    ground.assert_clean();
    (done, record)
}

#[test]
fn a_long_and_lossy_way_is_measured_in_long_windows_and_its_figures_are_explained() {
    let Some(hosts) = hosts(Cable { delay_ms: 20, loss_percent: 1.0, rate_mbit: 100 }) else { return };
    // Loss at random is outside of the interval of 95 % in one of twenty runs; far from it, never. Where the processor is
    // taken from a side for long, there is more.
    let has_loss = |record: &Value| {
        let loss = &record["peer"]["link"]["loss"];
        loss["lost"].as_f64() >= Some(1.0) && loss["low"].as_f64() < Some(0.02) && loss["high"].as_f64() > Some(0.005)
    };
    let most_messages = |record: &Value, name: &str| {
        let of_name = |(case, one): (&Value, &Value)| one["messages"].as_u64().filter(|_| case["mechanism"] == name);
        streams(record).into_iter().filter_map(of_name).max().unwrap_or(0)
    };
    let is_udp_faster = |record: &Value| most_messages(record, "network/udp") > most_messages(record, "network/tcp");
    let (done, record) = undisturbed(
        || run_over_a_lossy_way(&hosts),
        |(done, record)| {
            let is_good = if done.status.success() { is_udp_faster(record) } else { !is_disturbed(&done.stderr) };
            has_loss(record) && is_good
        },
    );
    let done = done.exits(0);
    assert!(done.stderr.contains("each window is lengthened to"), "{}", done.stderr);
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("no number: {value}"));
    assert!(number(&record["window"]["time"]["measure_ns"]) >= 800e6, "{}", record["window"]);
    let link = &record["peer"]["link"];
    assert!((40e6..100e6).contains(&number(&link["round_trip_fastest_ns"])) && has_loss(&record), "{link}");
    // 1448 bytes / 40 ms * 1.22 / sqrt(1 %) are 442 kB/s, and the link has 12.5 MB/s.
    let rate = |connections| number(&link[format!("rate_{connections}_bytes_per_s")]);
    assert!((1.0..2e6).contains(&rate(1)) && (1.0..6e6).contains(&rate(4)), "{link}");
    assert!(done.stdout.contains("Mathis et al. 1997"), "{}", done.stdout);
    let measured: Vec<_> =
        record["instances"].as_array().unwrap().iter().map(|one| &one["outcome"]["measured"]).collect();
    assert!(measured.len() >= 5 && measured.iter().all(|one| one.is_object()), "{}", record["instances"]);
    // The search is not misled by what the link loses: UDP is faster than TCP, which takes each loss for congestion.
    assert!(is_udp_faster(&record), "{}", record["instances"]);
    for figures in measured {
        assert!(figures["breach"].is_null() && figures["peer_load"].is_object(), "{figures}");
        let is_slow = figures["latency"].is_null() || number(&figures["latency"]["p50_ns"]) >= 40e6;
        assert!(is_slow, "{figures}");
    }
}

/// The measured streams of a record, with their cases.
fn streams(record: &Value) -> Vec<(&Value, &Value)> {
    let list = |name: &str| record[name].as_array().unwrap();
    let of_entrant = |one: &Value| &list("entrants")[one["entrant"].as_u64().unwrap() as usize]["case"];
    let streams = list("instances").iter().filter(|&one| of_entrant(one)["cell"]["pattern"] == "stream");
    streams.map(|one| (of_entrant(one), &one["outcome"]["measured"])).collect()
}

#[test]
fn the_highest_rate_of_lossy_mechanisms_is_found_over_a_slow_link() {
    let Some(hosts) = hosts(Cable { delay_ms: 2, rate_mbit: 50, ..Cable::default() }) else { return };
    let run = || {
        let (peer, ground) = (Peer::start_on(&hosts, &["--once"]), Ground::new());
        let arguments = ["network/udp", "network/udp-tuned", "--pattern=stream", "--size=1KiB", "--window=500ms"];
        let done = run(bench_on(&hosts, &ground, &peer.url, &arguments));
        let record = if ground.path("out").exists() { record(&ground) } else { Value::Null };
        peer.end().exits(0);
        ground.assert_clean();
        (done, record)
    };
    // The part of the rate that TCP reached, and the share of lost messages.
    let found = |record: &Value| -> Vec<(f64, f64)> {
        let number = |of: &Value, field: &str| of[field].as_f64().unwrap_or(0.0);
        let link_rate = number(&record["peer"]["link"], "rate_4_bytes_per_s");
        let of = |(_, one): (&Value, &Value)| {
            let (arrived, lost) = (number(one, "messages"), number(one, "lost_in_window"));
            (arrived * 1024e9 / number(one, "window_ns") / link_rate, lost / (arrived + lost).max(1.0))
        };
        streams(record).into_iter().map(of).collect()
    };
    // Two mechanisms and the control. A disturbed instance may have found less.
    let is_found = |record: &Value| {
        let found = found(record);
        let good = found.iter().filter(|(part, lost)| (0.6..1.1).contains(part) && *lost < 0.02).count();
        found.len() >= 3 && good >= 2
    };
    let (done, record) = undisturbed(run, |(done, record)| done.status.success() && is_found(record));
    done.exits(0);
    assert!(is_found(&record), "{:?} of {}", found(&record), record["peer"]["link"]);
    assert!(streams(&record).iter().all(|(_, one)| one["breach"].is_null()), "{}", record["instances"]);
}

#[test]
fn a_window_that_is_too_short_for_the_way_is_refused() {
    let Some(hosts) = hosts(Cable { delay_ms: 20, ..Cable::default() }) else { return };
    let (peer, ground) = (Peer::start_on(&hosts, &[]), Ground::new());
    let short = run(bench_on(&hosts, &ground, &peer.url, &["network/tcp", "--window=100ms"])).exits(2);
    assert!(short.stderr.contains("choose a longer --window, at least "), "{}", short.stderr);
    let counted = run(bench_on(&hosts, &ground, &peer.url, &["net", "--profile=full"])).exits(2);
    assert!(counted.stderr.contains("round trips of"), "{}", counted.stderr);
    ground.assert_clean();
    peer.interrupt().exits(130);
}

/// Starts a run on a long way, and waits until the peer answers the measurement of the link.
fn measuring_link(hosts: &Hosts, ground: &Ground, peer: &Peer) -> Running {
    let running = Running::of(ground, bench_on(hosts, ground, &peer.url, &["network/tcp", "--pattern=ping-pong"]));
    wait_for("the measurement of the link", || {
        let [ip, words @ ..] = hosts.words(1);
        let output = Command::new(ip).args(words).args(["cat", "/proc/net/udp"]).output().unwrap();
        // Under a heading, the sockets.
        (String::from_utf8_lossy(&output.stdout).lines().count() > 1).then_some(())
    });
    running
}

#[test]
fn an_interrupt_while_the_link_is_measured_ends_the_session_on_both_sides() {
    let Some(hosts) = hosts(Cable { delay_ms: 20, ..Cable::default() }) else { return };
    let (peer, ground) = (Peer::start_on(&hosts, &["--once"]), Ground::new());
    let running = measuring_link(&hosts, &ground, &peer);
    kill_process(running.pid(), Signal::INT).unwrap();
    let done = running.end().exits(130);
    assert!(done.stderr.contains("nothing is recorded"), "{}", done.stderr);
    peer.end().exits(0);
    ground.assert_clean();
}

#[test]
fn an_interrupt_of_the_peer_while_it_answers_for_the_link_ends_both_sides() {
    let Some(hosts) = hosts(Cable { delay_ms: 20, ..Cable::default() }) else { return };
    let (peer, ground) = (Peer::start_on(&hosts, &[]), Ground::new());
    let running = measuring_link(&hosts, &ground, &peer);
    kill_process(peer.running.pid(), Signal::INT).unwrap();
    peer.end().exits(130);
    let done = running.end().exits(2);
    assert!(done.stderr.contains("the session with"), "{}", done.stderr);
    ground.assert_clean();
}
