//! A group's ring between processes, any of which may be killed at any time.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use estafette_ipc::WaitMode;
use estafette_ipc::group::{BellFile, ClaimError, Interrupt, Member, Publisher, Recovery, RingControl, RingFile};

use self::common::{PATIENCE, Process, role};

mod common;

/// The entry point of the child processes, by role: "publisher 0 1000", "member 2".
#[test]
fn process() {
    let Some((role, socket, fds)) = role() else { return };
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        ["publisher", first, count] => publish(fds, first.parse().unwrap(), count.parse().unwrap()),
        ["dropper", count] => publish_dropping_oldest(fds, count.parse().unwrap()),
        ["member", index] => claim(socket, member(fds, index)),
        ["copier", index] => claim(socket, member(fds, index).with_copies()),
        _ => unreachable!("{role}"),
    }
}

fn open(fds: Vec<OwnedFd>) -> (Vec<RingFile>, BellFile) {
    let mut fds = fds.into_iter();
    let bell = BellFile::from_fd(fds.next().unwrap()).unwrap();
    (fds.map(|fd| RingFile::from_fd(fd).unwrap()).collect(), bell)
}

/// Sends numbered messages, each filled with its number. Then closes the ring.
fn publish(fds: Vec<OwnedFd>, first: u32, count: u32) {
    let (rings, bell) = open(fds);
    let mut publisher = Publisher::open(&rings[0], &bell, WaitMode::Block, Interrupt::new()).unwrap();
    for number in first..count {
        publisher.send(&number.to_le_bytes().repeat(1 + number as usize % 50)).unwrap();
    }
    publisher.close();
}

/// As [`publish`], but drops the oldest messages if there is no space.
fn publish_dropping_oldest(fds: Vec<OwnedFd>, count: u32) {
    let (rings, bell) = open(fds);
    let mut publisher = Publisher::open(&rings[0], &bell, WaitMode::Block, Interrupt::new()).unwrap();
    for number in 0..count {
        publisher.send_dropping_oldest(&number.to_le_bytes().repeat(1 + number as usize % 50)).unwrap();
    }
    publisher.close();
}

fn member(fds: Vec<OwnedFd>, index: &str) -> Member {
    let (rings, bell) = open(fds);
    Member::open(rings, &bell, index.parse().unwrap(), WaitMode::Adaptive, Interrupt::new()).unwrap()
}

/// Checks each message, and reports its number on the socket.
fn claim(mut socket: UnixStream, mut member: Member) {
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

/// Reads the numbers that a member has reported, including those it wrote before it was killed.
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

/// Members are killed repeatedly while messages flow. Each message is reported at least once. Only
/// the message that a dead member was working on may be reported twice.
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
    let duplicates: u32 = seen.values().map(|times| times - 1).sum();
    assert!(duplicates <= kills, "{duplicates} duplicates after {kills} kills");
}

/// Members that copy are killed repeatedly while the publisher overtakes them. Each message is
/// reported at most once, none is torn, and messages that are not reported are counted.
#[test]
fn members_that_copy_are_killed_and_lost_messages_are_counted() {
    const KILLS: u64 = 60;
    let group = Group::new(2);
    let mut publisher = group.start("dropper 4000000000");
    let mut members = [0, 1].map(|index| group.start(&format!("copier {index}")));
    let mut seen = HashMap::new();
    for kill in 0..KILLS {
        let acked = group.control.counters().acked;
        let start = Instant::now();
        while group.control.counters().acked < acked + 100 {
            assert!(start.elapsed() < PATIENCE, "the members hang: {:?}", group.control);
            members.iter().for_each(|member| reports(member, &mut seen));
        }
        let index = kill as usize % members.len();
        members[index].kill();
        reports(&members[index], &mut seen);
        group.control.recover(index, Recovery::Discard);
        members[index] = group.start(&format!("copier {index}"));
    }
    publisher.kill();
    group.control.wake_all();
    group.start("dropper 1").join();
    let start = Instant::now();
    while !group.control.is_drained() {
        assert!(start.elapsed() < PATIENCE, "the group hangs: {:?}", group.control);
        members.iter().for_each(|member| reports(member, &mut seen));
    }
    members.iter().for_each(|member| reports(member, &mut seen));
    members.into_iter().for_each(Process::join);
    // The last publisher starts at number zero again.
    assert!(
        seen.iter().all(|(number, times)| *times == 1 || *number == 0 && *times == 2),
        "a message was delivered twice"
    );
    // A member that is killed between two of its stores may count its claim twice, or not at all.
    let counters = group.control.counters();
    let gone = counters.acked + counters.dropped + counters.discarded;
    assert!(counters.published.abs_diff(gone) <= 16 * KILLS + 1, "{counters:?}");
}

/// Publishers are killed repeatedly: the next one continues, and no message is torn.
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
    // The member continues only while its reports are read.
    while !(publisher.has_ended() && group.control.is_drained()) {
        assert!(start.elapsed() < PATIENCE, "the member hangs");
        reports(&member, &mut seen);
    }
    member.join();
    let counters = group.control.counters();
    // A publisher counts before it publishes, and may be killed in between.
    assert!((counters.acked..=counters.acked + 40).contains(&counters.published), "{counters:?}");
}
