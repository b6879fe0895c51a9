//! Whatever is killed, and whenever: the run ends as it should, and nothing of it is left.
//!
//! The full counts take two minutes and are run by hand:
//!
//!     cargo test -p estafette-cli --test kills -- --ignored --nocapture

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{Done, Ground, Running, is_disturbed, names, wait_for};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use serde_json::Value;

/// Every scope but the one that spins, in two patterns.
const BENCH: [&str; 19] = [
    "bench",
    "task/flume",
    "process/pipe",
    "process/unix-stream",
    "process/fifo",
    "process/posix-mq",
    "process/shm-mutex",
    "process/interprocess",
    "process/ipc-channel",
    "network/tcp",
    "sandbox/wat-echo",
    "--pattern=ping-pong,stream",
    "--size=64",
    "--wait=block",
    "--window=20ms",
    "--timeout=60s",
    "--out=out",
    "--json",
    "--seed=1",
];

/// How often an instance may be measured again.
const REPEATS: usize = 2;

/// One at a time: a run shares the machine with no other one.
static MACHINE: Mutex<()> = Mutex::new(());

#[test]
fn a_killed_child_costs_one_instance() {
    kill_children(5);
}

#[test]
#[ignore = "takes a minute: see the head of this file"]
fn a_hundred_killed_children_cost_an_instance_each() {
    kill_children(100);
}

#[test]
fn an_interrupt_ends_the_run_at_any_moment() {
    interrupt(&[Signal::INT, Signal::TERM, Signal::INT]);
}

#[test]
#[ignore = "takes a minute: see the head of this file"]
fn twenty_interrupts_end_the_run_at_any_moment() {
    interrupt(&[Signal::INT; 20]);
}

/// Kills random children of runs at random moments, so many in all.
fn kill_children(count: usize) {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut random = random();
    let (mut killed, mut costly) = (0, 0);
    // Not every kill costs an instance: the first child of a run probes the capacity.
    while killed < count || (costly == 0 && killed < 10 * count) {
        let ground = Ground::new();
        let kills = count.saturating_sub(killed).max(1);
        // About an instance for each half of a kill; where the run was faster than that, there is another one.
        let rounds = format!("--rounds={}", kills.div_ceil(8));
        let mut run = Running::start(&ground, &[&BENCH[..], &[&rounds]].concat());
        let mut here = 0;
        while here < kills && kill_a_child(&mut run, &mut random) {
            here += 1;
            sleep(Duration::from_millis(random.u64(..150)));
        }
        println!("killed {here} children of one run");
        killed += here;
        let done = run.end();
        ground.assert_clean();
        let mut failed = failures(&done.json());
        done.exits(if failed.is_empty() { 0 } else { 2 });
        // What a disturbed machine does.
        failed.retain(|why| !is_disturbed(why));
        assert!(failed.len() <= here, "{here} killed: {failed:#?}");
        costly += failed.len();
        for why in failed {
            assert!(why.contains("was killed by signal 9"), "{why}");
        }
    }
    assert!(costly > 0, "{killed} killed, and nothing failed");
}

/// Kills a random child of a run, one that is certainly alive: it is stopped first. False where the
/// run has ended.
fn kill_a_child(run: &mut Running, random: &mut fastrand::Rng) -> bool {
    loop {
        if run.has_ended() {
            return false;
        }
        // What counts system calls costs no instance.
        let timed = |child: &Pid| {
            let line = fs::read(format!("/proc/{}/cmdline", child.as_raw_nonzero())).unwrap_or_default();
            line.split(|&byte| byte == 0).nth(1) == Some(b"__child")
        };
        let children: Vec<_> = children(run.pid()).into_iter().filter(timed).collect();
        if let Some(&child) = random.choice(&children) {
            // It may be gone by now, or be going; a descriptor never means another process of the same number.
            let Ok(process) = pidfd_open(child, PidfdFlags::empty()) else { continue };
            let is_ours = || stat(child).filter(|(state, parent)| *parent == run.pid() && *state != 'Z');
            let stopped = is_ours().is_some()
                && pidfd_send_signal(&process, Signal::STOP).is_ok()
                && wait_for("a child to stop or to end", || match is_ours() {
                    Some((state, _)) if state != 'T' => None,
                    stopped => Some(stopped.is_some()),
                });
            if stopped {
                pidfd_send_signal(&process, Signal::KILL).expect("a stopped child is there");
                // Until the coordinator has seen it, so that it is not found again.
                wait_for("the child's end", || stat(child).is_none_or(|(_, parent)| parent != run.pid()).then_some(()));
                return true;
            }
        }
        sleep(Duration::from_millis(1));
    }
}

/// Why instances failed. All others are there, every case in every round, and whole.
fn failures(record: &Value) -> Vec<String> {
    let list = |name: &str| record[name].as_array().expect("a list").clone();
    let mut instances: BTreeMap<(u64, u64), usize> = BTreeMap::new();
    let mut failed = Vec::new();
    for instance in list("instances") {
        let number = |name: &str| instance[name].as_u64().expect("a number");
        *instances.entry((number("round"), number("entrant"))).or_default() += 1;
        let outcome = &instance["outcome"];
        match &outcome["failed"]["why"] {
            Value::String(why) => failed.push(why.clone()),
            _ => {
                let figures = &outcome["measured"];
                // Beside other busy programs an instance may receive nothing. It is then discarded.
                let is_counted = figures["messages"].as_u64() > Some(0) || !figures["discarded"].is_null();
                assert!(is_counted && figures["breach"].is_null(), "{outcome}");
            }
        }
    }
    let entrants = list("entrants");
    // Ten mechanisms at four scopes, each scope with its control, in two patterns.
    assert_eq!(entrants.len(), (10 + 4) * 2);
    for round in 0..record["rounds_planned"].as_u64().expect("a number") {
        for entrant in 0..entrants.len() as u64 {
            let times = instances.get(&(round, entrant)).copied().unwrap_or(0);
            // More than once where time was stolen.
            assert!((1..=1 + REPEATS).contains(&times), "round {round}: {times} of {}", entrants[entrant as usize]);
        }
    }
    failed
}

/// Sends each of the signals to a run of its own, at a random moment.
fn interrupt(signals: &[Signal]) {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut random = random();
    for &signal in signals {
        let ground = Ground::new();
        let run = Running::start(&ground, &[&BENCH[..], &["--rounds=1000"]].concat());
        // Before it listens it ends as any program does, and has nothing to clean up.
        wait_for("the run to listen", || catches(run.pid(), signal).then_some(()));
        // The limits are measured for half a second; a round takes some.
        sleep(Duration::from_millis(random.u64(..3_000)));
        kill_process(run.pid(), signal).expect("the run is there");
        let began = Instant::now();
        let done = run.end().exits(130);
        println!(
            "{signal:?}: over after {:?}; {}",
            began.elapsed(),
            done.stderr.lines().last().unwrap_or("nothing said")
        );
        // A thousand rounds take far longer.
        assert!(began.elapsed() < Duration::from_secs(60), "it took {:?}", began.elapsed());
        assert!(done.stderr.contains("interrupted"), "{}", done.stderr);
        ground.assert_clean();
        // What was complete is recorded, and printed.
        if done.stdout.is_empty() {
            assert!(done.stderr.contains("nothing is recorded"), "{}", done.stderr);
        } else {
            assert!(done.json()["rounds"].as_u64() > Some(0), "{}", done.stdout);
        }
    }
}

#[test]
fn a_killed_coordinator_takes_its_children_along_and_the_next_run_sweeps_up() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut random = random();
    for _ in 0..2 {
        let ground = Ground::new();
        let run = Running::start(&ground, &[&BENCH[..], &["--rounds=1000"]].concat());
        wait_for("children", || (!children(run.pid()).is_empty()).then_some(()));
        sleep(Duration::from_millis(random.u64(..300)));
        kill_process(run.pid(), Signal::KILL).expect("the run is there");
        let Done { status, .. } = run.end();
        assert_eq!(status.code(), None);
        wait_for("its children's end", || ground.processes().is_empty().then_some(()));
        let left = names(ground.tmp());
        assert!(left.len() == 1 && left.iter().all(|name| name.starts_with("estafette-")), "{left:?}");
        ground.run(["ping", "process/pipe", "-c", "100"]).exits(0);
        ground.assert_clean();
    }
}

fn random() -> fastrand::Rng {
    let seed = fastrand::u64(..);
    println!("random seed {seed}");
    fastrand::Rng::with_seed(seed)
}

/// The children of a process.
fn children(parent: Pid) -> Vec<Pid> {
    let processes = names("/proc").into_iter().filter_map(|name| Pid::from_raw(name.parse().ok()?));
    processes.filter(|&pid| stat(pid).is_some_and(|(state, of)| of == parent && state != 'Z')).collect()
}

/// A process's state and parent.
fn stat(pid: Pid) -> Option<(char, Pid)> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // `pid (name) state parent ...`: the name may hold anything, a parenthesis included.
    let mut words = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    Some((words.next()?.chars().next()?, Pid::from_raw(words.next()?.parse().ok()?)?))
}

/// Whether a process has a handler for a signal.
fn catches(pid: Pid, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    caught >> (signal.as_raw() - 1) & 1 == 1
}
