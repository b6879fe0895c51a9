//! Rings of a group between processes, of which any is killed at any moment.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use estafette_ipc::WaitMode;
use estafette_ipc::group::{BellFile, ClaimError, Interrupt, Member, Publisher, Recovery, RingControl, RingFile};

use self::common::{PATIENCE, Process, role};

mod common;

/// What a process of these tests does, by its role: "publisher 0 1000", "member 2".
#[test]
fn process() {
    let Some((role, socket, fds)) = role() else { return };
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        ["publisher", first, count] => publish(fds, first.parse().unwrap(), count.parse().unwrap()),
        ["member", index] => claim(socket, fds, index.parse().unwrap()),
        _ => unreachable!("{role}"),
    }
}

fn open(fds: Vec<OwnedFd>) -> (Vec<RingFile>, BellFile) {
    let mut fds = fds.into_iter();
    let bell = BellFile::from_fd(fds.next().unwrap()).unwrap();
    (fds.map(|fd| RingFile::from_fd(fd).unwrap()).collect(), bell)
}

/// Sends numbered messages, each filled with its number.
fn publish(fds: Vec<OwnedFd>, first: u32, count: u32) {
    let (rings, bell) = open(fds);
    let mut publisher = Publisher::open(&rings[0], &bell, WaitMode::Block, Interrupt::new()).unwrap();
    for number in first..count {
        publisher.send(&number.to_le_bytes().repeat(1 + number as usize % 50)).unwrap();
    }
    publisher.close();
}

/// Verifies each message and reports its number.
fn claim(mut socket: UnixStream, fds: Vec<OwnedFd>, index: usize) {
    let (rings, bell) = open(fds);
    let mut member = Member::open(rings, &bell, index, WaitMode::Adaptive, Interrupt::new()).unwrap();
    loop {
        let claim = match member.claim(4096, 16) {
            Ok(claim) => claim,
            Err(ClaimError::Closed) => return,
            Err(error) => panic!("{error}"),
        };
        for done in 0..claim.count() {
            let message = claim.messages().nth(done).unwrap();
            let number = u32::from_le_bytes(message[..4].try_into().unwrap());
            assert_eq!(message.data, number.to_le_bytes().repeat(1 + number as usize % 50), "torn");
            socket.write_all(&number.to_le_bytes()).unwrap();
            claim.progress(done + 1);
        }
        claim.ack();
    }
}

struct Group {
    ring: RingFile,
    bell: BellFile,
    control: RingControl,
}

impl Group {
    fn new(members: usize) -> Self {
        let (ring, bell) = (RingFile::create(4096, members).unwrap(), BellFile::create().unwrap());
        let control = RingControl::open(&ring, &bell).unwrap();
        Self { ring, bell, control }
    }

    fn start(&self, role: &str) -> Process {
        Process::start(role, &[self.bell.as_fd(), self.ring.as_fd()])
    }
}

/// Takes what a member has reported, and forgets nothing that it reported before it was killed.
fn reports(process: &Process, seen: &mut HashMap<u32, u32>) {
    process.socket.set_nonblocking(true).unwrap();
    let mut bytes = Vec::new();
    let _ = (&process.socket).read_to_end(&mut bytes);
    for number in bytes.as_chunks().0 {
        *seen.entry(u32::from_le_bytes(*number)).or_default() += 1;
    }
}

#[test]
fn each_message_goes_to_one_process() {
    const COUNT: u32 = 20_000;
    let group = Group::new(2);
    let publisher = group.start(&format!("publisher 0 {COUNT}"));
    let members = [0, 1].map(|index| group.start(&format!("member {index}")));
    let mut seen = HashMap::new();
    let start = Instant::now();
    while !(group.control.is_closed() && group.control.is_drained()) {
        assert!(start.elapsed() < PATIENCE, "the group hangs: {:?}", group.control);
        members.iter().for_each(|member| reports(member, &mut seen));
        std::thread::sleep(Duration::from_millis(1));
    }
    members.iter().for_each(|member| reports(member, &mut seen));
    publisher.join();
    members.into_iter().for_each(Process::join);
    assert_eq!(seen.len() as u32, COUNT);
    assert!(seen.values().all(|times| *times == 1));
}

/// Members are killed again and again while messages flow: each message is reported at least once,
/// and at most the one that a dead member was at is reported twice.
#[test]
fn members_are_killed_and_nothing_is_lost() {
    const COUNT: u32 = 200_000;
    let group = Group::new(3);
    let publisher = group.start(&format!("publisher 0 {COUNT}"));
    let mut members = [0, 1, 2].map(|index| group.start(&format!("member {index}")));
    let (mut seen, mut kills) = (HashMap::new(), 0);
    let start = Instant::now();
    let mut turn = 0;
    while !(group.control.is_closed() && group.control.is_drained()) {
        assert!(
            start.elapsed() < 2 * PATIENCE,
            "the group hangs: {:?} {:?}",
            group.control.depth(),
            group.control.counters()
        );
        members.iter().for_each(|member| reports(member, &mut seen));
        if kills < 60 {
            std::thread::sleep(Duration::from_micros(fastrand::u64(0..8000)));
            let index = turn % members.len();
            members[index].kill();
            reports(&members[index], &mut seen);
            group.control.recover(index, Recovery::Return);
            members[index] = group.start(&format!("member {index}"));
            (kills, turn) = (kills + 1, turn + 1);
        }
    }
    members.iter().for_each(|member| reports(member, &mut seen));
    publisher.join();
    members.into_iter().for_each(Process::join);
    assert_eq!(seen.len() as u32, COUNT);
    let doubles: u32 = seen.values().map(|times| times - 1).sum();
    assert!(doubles <= kills, "{doubles} doubles after {kills} kills");
}

/// Publishers are killed again and again: each that follows goes on, and nothing is torn.
#[test]
fn publishers_are_killed_and_nothing_is_torn() {
    let group = Group::new(1);
    let member = group.start("member 0");
    let mut seen = HashMap::new();
    for _ in 0..40 {
        let before = group.control.counters().published;
        let mut publisher = group.start("publisher 0 4000000000");
        let start = Instant::now();
        while group.control.counters().published == before {
            assert!(start.elapsed() < PATIENCE, "the publisher hangs");
            reports(&member, &mut seen);
        }
        std::thread::sleep(Duration::from_micros(fastrand::u64(0..2000)));
        publisher.kill();
        group.control.wake_all();
    }
    let mut publisher = group.start("publisher 0 100");
    let start = Instant::now();
    // The member goes on only while its reports are read.
    while !(publisher.has_ended() && group.control.is_drained()) {
        assert!(start.elapsed() < PATIENCE, "the member hangs");
        reports(&member, &mut seen);
    }
    member.join();
    let counters = group.control.counters();
    // A publisher counts first, and may be killed before it publishes.
    assert!((counters.acked..=counters.acked + 40).contains(&counters.published), "{counters:?}");
}
