//! Every way between processes that this build has, servers and libraries included: each is
//! verified, and whatever of it is killed, nothing is left.
//!
//! The full count takes some minutes and is run by hand:
//!
//!     cargo test -p estafette-cli --no-default-features --features all-peers --test peers -- --ignored --nocapture

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use common::{Ground, Running, is_disturbed, names, wait_for};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use serde_json::Value;

/// One at a time: a run shares the machine with no other one.
static MACHINE: Mutex<()> = Mutex::new(());

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

#[test]
fn every_way_between_processes_is_verified_or_says_how_to_get_it() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let ground = Ground::new();
    let run = ["ipc", "--profile=standard"];
    let ipc = ground.bench_many(20, &run);
    // Which the profile has of a few ways only.
    let together = ground.bench_many(20, &[&run[..], &["--pattern=fan-in,duplex", "--size=4KiB"]].concat());
    let mut measured = BTreeSet::new();
    for (mechanism, instance) in ipc.into_iter().chain(together) {
        let figures = &instance["outcome"]["measured"];
        assert!(figures.is_object() && figures["breach"].is_null(), "{instance}");
        if figures["messages"].as_u64() == Some(0) {
            // Other programs may leave it no time.
            assert!(!figures["discarded"].is_null(), "{instance}");
            continue;
        }
        measured.insert(mechanism);
    }
    println!("{} mechanisms measured", measured.len());
    for listed in list(&ground.run(["list", "process/*", "--json"]).json()) {
        let name = listed["name"].as_str().unwrap();
        let expected = listed["standing"] != "baseline" && !name.contains('.');
        match &listed["unavailable"] {
            Value::Null => assert!(!expected || measured.contains(name), "{name} was not measured"),
            how => assert!(how.as_str().is_some_and(|how| how.len() > 20), "{name}: {how}"),
        }
    }
    ground.assert_clean();
}

#[test]
fn an_interrupted_run_leaves_no_shared_memory_that_a_library_named() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let ground = Ground::new();
    let listed = ground.run(["list", "process/*", "--json"]).json();
    // Some make it without being asked to.
    for name in ["process/zenoh-unix", "process/zenoh-shm", "process/iceoryx2-event"] {
        if !list(&listed).iter().any(|one| one["name"] == name) {
            println!("{name} is not in this build");
            continue;
        }
        let before = names("/dev/shm");
        let run = ["bench", name, "--pattern=stream", "--size=64", "--wait=block", "--rounds=1000", "--out=out"];
        let run = Running::start(&ground, &run);
        wait_for("a round", || run.stderr().contains("round 1 of").then_some(()));
        wait_for("shared memory", || (names("/dev/shm") != before).then_some(()));
        kill_process(run.pid(), Signal::INT).unwrap();
        run.end().exits(130);
        ground.assert_clean();
    }
}

#[test]
fn a_killed_process_costs_one_instance() {
    kill_processes(8);
}

#[test]
#[ignore = "takes some minutes: see the head of this file"]
fn two_hundred_killed_processes_cost_an_instance_each() {
    kill_processes(200);
}

#[test]
fn a_pipeline_whose_server_is_killed_fails_and_leaves_nothing() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let ground = Ground::new();
    let listed = ground.run(["list", "--json"]).json();
    if !list(&listed).iter().any(|one| one["name"] == "sandbox/flow-nats" && one["unavailable"].is_null()) {
        println!("sandbox/flow-nats is not in this build, or its server is not here");
        return;
    }
    // Messages for minutes: without the kill it would go on.
    let run = ["bench", "sandbox/flow-nats", "--pattern=send-compete", "--size=1000", "--rounds=1", "--window=60s"];
    let mut run = Running::start(&ground, &[&run[..], &["--out=out", "--json"]].concat());
    let mut killed = 0;
    while !run.has_ended() {
        let busy = ground.processes().into_iter().find_map(|process| {
            let number = process.strip_suffix(" nats-server")?.parse().ok()?;
            (cpu_ticks(number)? > 40).then_some(number)
        });
        if let Some(server) = busy.and_then(Pid::from_raw) {
            killed += usize::from(kill_process(server, Signal::KILL).is_ok());
        }
        sleep(Duration::from_millis(20));
    }
    let done = run.end();
    ground.assert_clean();
    let record = done.json();
    let instances = list(&record["instances"]);
    assert!(killed > 0 && !instances.is_empty(), "{killed} killed: {record}");
    for instance in instances {
        assert!(instance["outcome"]["failed"]["why"].is_string(), "{instance}");
    }
    done.exits(2);
}

/// The processor time that a process has spent, in ticks of about 10 ms: a server that has messages
/// to pass on spends more than it takes to start.
fn cpu_ticks(process: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in brackets, is the second of them.
    let (_, after_name) = stat.rsplit_once(") ")?;
    let user_and_system = after_name.split(' ').skip(11).take(2);
    user_and_system.map(|ticks| ticks.parse::<u64>().ok()).sum()
}

/// Kills random processes of runs at random moments, so many in all: children, servers, what counts
/// system calls.
fn kill_processes(count: usize) {
    const RUN: [&str; 10] = [
        "bench",
        "process/*",
        "--pattern=ping-pong,stream",
        "--size=64",
        "--wait=block",
        "--place=other-core",
        "--window=20ms",
        "--timeout=60s",
        "--out=out",
        "--json",
    ];
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let seed = fastrand::u64(..);
    println!("random seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut killed, mut costly) = (0, 0);
    while killed < count {
        let ground = Ground::new();
        let mut run = Running::start(&ground, &[&RUN[..], &["--profile=standard", "--rounds=1"]].concat());
        let mut here = 0;
        while killed + here < count && !run.has_ended() {
            sleep(Duration::from_millis(random.u64(..400)));
            here += usize::from(kill_one(&ground, &run, &mut random));
        }
        let done = run.end();
        ground.assert_clean();
        let record = done.json();
        let whys =
            list(&record["instances"]).iter().filter_map(|instance| instance["outcome"]["failed"]["why"].as_str());
        // What a disturbed machine does.
        let failed: Vec<&str> = whys.filter(|why| !is_disturbed(why)).collect();
        println!("killed {here} processes of one run, which cost {} instances", failed.len());
        assert!(failed.len() <= here, "{here} killed: {failed:#?}");
        done.exits(if list(&record["instances"]).iter().any(|one| !one["outcome"]["failed"].is_null()) {
            2
        } else {
            0
        });
        killed += here;
        costly += failed.len();
    }
    assert!(costly > 0 || count < 20, "{killed} killed, and nothing failed");
}

/// Kills a random process of the run but its coordinator; false where there was none.
fn kill_one(ground: &Ground, run: &Running, random: &mut fastrand::Rng) -> bool {
    let numbers = ground.processes().into_iter().filter_map(|process| {
        let number = process.split_ascii_whitespace().next()?.parse().ok()?;
        Pid::from_raw(number).filter(|pid| *pid != run.pid())
    });
    let numbers: Vec<Pid> = numbers.collect();
    let Some(&number) = random.choice(&numbers) else { return false };
    // It may be gone by now; a descriptor never means another process of the same number, and it is looked for once more.
    let Ok(process) = pidfd_open(number, PidfdFlags::empty()) else { return false };
    let still = ground.processes().iter().any(|one| one.starts_with(&format!("{} ", number.as_raw_nonzero())));
    still && pidfd_send_signal(&process, Signal::KILL).is_ok()
}
