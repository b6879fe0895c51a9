//! `bench --to` and `peer`, on this host and between two network namespaces.

#[path = "../common/mod.rs"]
mod common;
mod links;
#[path = "../common/namespaces/mod.rs"]
mod namespaces;
mod open_loop;
mod records;
mod sessions;

use std::fs;
use std::process::Command;

use common::{Done, Ground, PROGRAM, Running, is_disturbed, wait_for};
use namespaces::{Cable, Hosts};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const BENCH: [&str; 6] = ["bench", "network/tcp", "--size=64", "--timeout=60s", "--out=out", "--rounds=1"];

/// A peer on a ground of its own, and where it listens.
struct Peer {
    ground: Ground,
    running: Running,
    url: String,
}

impl Peer {
    fn start(arguments: &[&str]) -> Peer {
        let ground = Ground::new();
        Peer::of(ground, &[&[PROGRAM, "peer", "--listen=127.0.0.1:0"], arguments].concat())
    }

    /// A peer on the second host.
    fn start_on(hosts: &Hosts, arguments: &[&str]) -> Peer {
        Peer::start_program_on(hosts, PROGRAM, arguments)
    }

    fn start_program_on(hosts: &Hosts, program: &str, arguments: &[&str]) -> Peer {
        let listen = format!("--listen={}:0", Hosts::ADDRESSES[1]);
        Peer::of(Ground::new(), &[&hosts.words(1)[..], &[program, "peer", &listen], arguments].concat())
    }

    fn of(ground: Ground, words: &[&str]) -> Peer {
        fs::write(ground.path("token"), TOKEN).unwrap();
        let mut command = ground.program(words[0], &words[1..]);
        command.arg("--token-file=token");
        let running = Running::of(&ground, command);
        let printed = ground.path("stdout");
        let url = wait_for("the peer to listen", || {
            let text = fs::read_to_string(&printed).ok()?;
            let (_, url) = text.strip_suffix('\n')?.rsplit_once(" --to ")?;
            Some(url.to_owned())
        });
        Peer { ground, running, url }
    }

    fn interrupt(self) -> Done {
        kill_process(self.running.pid(), Signal::INT).expect("the peer is there");
        self.end()
    }

    fn end(self) -> Done {
        let Peer { ground, running, .. } = self;
        let done = running.end();
        ground.assert_clean();
        done
    }
}

/// `bench` to this place, with a token.
fn bench(ground: &Ground, to: &str, token: &str, more: &[&str]) -> Command {
    let mut command = ground.command(BENCH.iter().chain(&["--to", to]).chain(more));
    command.env("ESTAFETTE_TOKEN", token);
    command
}

fn run(mut command: Command) -> Done {
    Done::from(command.output().expect("the command starts"))
}

/// Measures. On a machine so busy that a window saw no message, again with a longer one.
#[track_caller]
fn measured(ground: &Ground, command: impl Fn(&str) -> Command) -> Done {
    for window_ms in [20, 200, 2_000] {
        let done = run(command(&format!("--window={window_ms}ms")));
        if !is_disturbed(&done.stderr) {
            return done.exits(0);
        }
        ground.remove_records();
    }
    panic!("no message arrives here within 2 s");
}

fn record(ground: &Ground) -> Value {
    serde_json::from_slice(&fs::read(ground.record()).unwrap()).unwrap()
}

/// Two hosts. `None` where they cannot be made, which is said aloud.
fn hosts(cable: Cable) -> Option<Hosts> {
    let made = Hosts::new(cable);
    if let Err(why) = &made {
        eprintln!("skipped: no two network namespaces with {cable:?}: {why}");
    }
    made.ok()
}

/// `bench` on the first host.
fn bench_on(hosts: &Hosts, ground: &Ground, to: &str, arguments: &[&str]) -> Command {
    let words = [&hosts.words(0)[1..], &[PROGRAM, "bench", "--to", to, "--out=out", "--rounds=1"], arguments].concat();
    let mut command = ground.program(hosts.words(0)[0], words);
    command.env("ESTAFETTE_TOKEN", TOKEN);
    command
}
