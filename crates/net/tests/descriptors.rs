//! A node whose process runs out of file descriptors. The limit applies to a process, so the node
//! runs in a second one.

mod common;

use std::env;
use std::fs;
use std::io::{ErrorKind, Read, Write, stdin};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use common::PATIENCE;
use common::process::Process;
use estafette_net::conformance::Usage;
use estafette_net::{Event, Node, Outcome};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Set for the process that runs the node.
const NODE: &str = "ESTAFETTE_TEST_NODE";
const TEST: &str = "without_descriptors_a_node_serves_existing_connections_and_resumes_accepting_later";

/// Limits the descriptors of this process. Returns how many can still be opened.
fn limit_descriptors() -> usize {
    let open: Vec<usize> = fs::read_dir("/proc/self/fd")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    // The limit applies to descriptor numbers, and the lowest free one is used. One open descriptor
    // was for reading the folder.
    let limit = open.iter().max().unwrap() + 1 + 20;
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(limit as u64), maximum }).unwrap();
    limit - (open.len() - 1)
}

/// The second process: echoes messages, and replies to the test's requests.
fn be_the_node() {
    let mut node = Node::<String>::new().unwrap();
    let handle = node.handle();
    let listener = handle.listen("tcp://127.0.0.1:0").unwrap();
    let address = handle.local_address(listener).unwrap();
    let asks = handle.clone();
    thread::spawn(move || {
        stdin().lines().map_while(Result::ok).for_each(|line| asks.signal(line));
        asks.stop();
    });
    let fits = limit_descriptors();
    println!("ready {} {fits}", address.port().unwrap());
    let mut accepted = 0;
    node.run(|event| match event {
        Event::Accepted { .. } => accepted += 1,
        Event::Message(from, message) => assert_eq!(handle.send(from, &message), Outcome::Sent),
        Event::Signal(ask) if ask == "accepted" => println!("accepted {accepted}"),
        Event::Signal(ask) if ask == "connect" => println!("connect {:?}", handle.connect(&address)),
        Event::Signal(_) => {
            let Usage { cpu, sleeps, .. } = Usage::of_this_thread().unwrap();
            println!("usage {} {sleeps}", cpu.as_micros());
        }
        _ => {}
    })
    .unwrap();
}

fn two(text: &str) -> (u64, usize) {
    let (one, other) = text.split_once(' ').unwrap();
    (one.parse().unwrap(), other.parse().unwrap())
}

fn ask(process: &mut Process, what: &str) -> String {
    process.say(what);
    process.line(what)
}

fn until_accepted(process: &mut Process, count: usize) {
    let begun = Instant::now();
    loop {
        let accepted: usize = ask(process, "accepted").parse().unwrap();
        assert!(accepted <= count, "{accepted} accepted, where {count} have room");
        if accepted == count {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{accepted} accepted, and {count} never");
        thread::sleep(Duration::from_millis(1));
    }
}

fn answers(peer: &mut TcpStream) -> Result<(), ErrorKind> {
    let mut answer = [0; 4];
    peer.read_exact(&mut answer).map_err(|error| error.kind())?;
    assert_eq!(&answer, b"ping");
    Ok(())
}

#[test]
fn without_descriptors_a_node_serves_existing_connections_and_resumes_accepting_later() {
    if env::var_os(NODE).is_some() {
        return be_the_node();
    }
    let mut command = Command::new(env::current_exe().unwrap());
    let mut process = Process::start(command.args(["--exact", TEST, "--nocapture", "--quiet"]).env(NODE, "1"));
    let (port, fits) = two(&process.line("ready"));
    let mut peers: Vec<_> = (0..fits + 20).map(|_| TcpStream::connect(("127.0.0.1", port as u16)).unwrap()).collect();
    peers.iter_mut().for_each(|peer| peer.write_all(b"ping").unwrap());
    peers.iter_mut().for_each(|peer| peer.set_read_timeout(Some(PATIENCE)).unwrap());

    until_accepted(&mut process, fits);
    peers[..fits].iter_mut().for_each(|peer| answers(peer).unwrap());
    peers[fits].set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert_eq!(answers(&mut peers[fits]), Err(ErrorKind::WouldBlock));
    peers[fits].set_read_timeout(Some(PATIENCE)).unwrap();
    let refused = ask(&mut process, "connect");
    assert!(refused.starts_with("Err") && refused.contains("code: 24"), "{refused}");

    // It retries, and sleeps in between.
    let (cpu, sleeps) = two(&ask(&mut process, "usage"));
    thread::sleep(Duration::from_secs(2));
    let (cpu_then, sleeps_then) = two(&ask(&mut process, "usage"));
    let (cpu, sleeps) = (Duration::from_micros(cpu_then - cpu), sleeps_then - sleeps);
    assert!(cpu < Duration::from_millis(200) && (1..200).contains(&sleeps), "{cpu:?}, asleep {sleeps} times");

    // No event reports that descriptors are free again.
    peers.drain(..10);
    until_accepted(&mut process, fits + 10);
    peers.drain(..10);
    until_accepted(&mut process, fits + 20);
    let (before, after) = peers.split_at_mut(fits - 20);
    after.iter_mut().for_each(|peer| answers(peer).unwrap());
    before.iter_mut().for_each(|peer| peer.write_all(b"ping").unwrap());
    before.iter_mut().for_each(|peer| answers(peer).unwrap());
}
