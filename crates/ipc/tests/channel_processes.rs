//! Channels between processes, where one end is killed at a random time: nothing hangs, and no
//! message is torn.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use estafette_ipc::{Options, Receiver, ReceiverHandle, RecvError, SendError, Sender, SenderHandle, WaitMode, channel};
use fastrand::Rng;

use self::common::{Process, role, within_patience};

mod common;

const WAITS: [WaitMode; 3] = [WaitMode::Spin, WaitMode::Adaptive, WaitMode::Block];

/// The number of kills in each of the two tests.
const KILLS: u64 = 250;

/// The entry point of the child processes, by role: "send 100", "receive".
#[test]
fn process() {
    let Some((role, socket, fds)) = role() else { return };
    let fds: [OwnedFd; 2] = fds.try_into().unwrap();
    match role.split_once(' ') {
        Some(("send", count)) => {
            let mut sender = SenderHandle::from_fds(fds).unwrap().open().unwrap();
            let _ = send(&mut sender, count.parse().unwrap());
            // The sender idles until it is killed, except in the test where it closes by itself.
            if count == "1000" { drop(sender) } else { wait_for_end(&socket) }
        }
        _ => {
            let mut receiver = ReceiverHandle::from_fds(fds).unwrap().open().unwrap();
            let (_, error) = receive(&mut receiver);
            assert_eq!(error, RecvError::Closed);
        }
    }
}

fn wait_for_end(socket: &std::os::unix::net::UnixStream) {
    let _ = std::io::Read::read(&mut &*socket, &mut [0]);
}

/// The length of a message in bytes. Some messages are longer than the ring.
fn len(number: u32) -> usize {
    match number % 64 {
        63 => 6000,
        rest => 4 + rest as usize * 7,
    }
}

fn message(number: u32) -> impl Iterator<Item = u8> {
    number.to_le_bytes().into_iter().cycle().take(len(number))
}

fn send(sender: &mut Sender, count: u32) -> Result<(), SendError> {
    for number in 0..count {
        let mut loan = sender.loan(len(number))?;
        loan.iter_mut().zip(message(number)).for_each(|(place, byte)| *place = byte);
        loan.send();
    }
    Ok(())
}

/// Receives until the channel ends, and checks every byte. Returns the number of messages.
fn receive(receiver: &mut Receiver) -> (u32, RecvError) {
    let mut number = 0;
    loop {
        match receiver.recv() {
            Ok(found) => {
                assert!(found.iter().copied().eq(message(number)), "message {number} is torn");
                found.release();
                number += 1;
            }
            Err(error) => return (number, error),
        }
    }
}

fn options(wait: WaitMode) -> Options {
    Options::new().capacity(4096).wait(wait)
}

fn start(role: &str, [memory, socket]: [OwnedFd; 2]) -> Process {
    Process::start(role, &[memory.as_fd(), socket.as_fd()])
}

#[test]
fn messages_arrive_from_another_process() {
    for wait in WAITS {
        within_patience(|| {
            let (sender, receiver) = channel(&options(wait)).unwrap();
            let process = start("send 1000", sender.into_fds());
            assert_eq!(receive(&mut receiver.open().unwrap()), (1000, RecvError::Closed));
            process.join();
        });
    }
}

#[test]
fn messages_arrive_in_another_process() {
    for wait in WAITS {
        within_patience(|| {
            let (sender, receiver) = channel(&options(wait)).unwrap();
            let process = start("receive", receiver.into_fds());
            let mut sender = sender.open().unwrap();
            send(&mut sender, 1000).unwrap();
            drop(sender);
            process.join();
        });
    }
}

/// Kills the process a random time after `work` reports that it has begun.
fn kill_while<T>(mut process: Process, rng: &mut Rng, work: impl FnOnce(mpsc::Sender<()>) -> T) -> T {
    let delay = Duration::from_nanos(rng.u64(0..1_500_000));
    thread::scope(|scope| {
        let (at_work, begun) = mpsc::channel();
        scope.spawn(move || {
            let _ = begun.recv();
            thread::sleep(delay);
            process.kill();
        });
        work(at_work)
    })
}

#[test]
fn a_sender_is_killed() {
    let mut rng = Rng::with_seed(1);
    for kill in 0..KILLS {
        let (sender, receiver) = channel(&options(WAITS[kill as usize % 3])).unwrap();
        // Some senders are asleep when they are killed, and the receiver sleeps at an empty ring.
        let count = if kill % 5 == 0 { "50" } else { "4000000000" };
        let process = start(&format!("send {count}"), sender.into_fds());
        within_patience(|| {
            kill_while(process, &mut rng, |at_work| {
                let mut receiver = receiver.open().unwrap();
                let first = receiver.recv().unwrap();
                drop(first);
                at_work.send(()).unwrap();
                let (_, error) = receive(&mut receiver);
                assert_eq!(error, RecvError::PeerDied);
                assert_eq!(receiver.recv().unwrap_err(), RecvError::PeerDied);
            });
        });
    }
}

#[test]
fn a_receiver_is_killed() {
    let mut rng = Rng::with_seed(2);
    for kill in 0..KILLS {
        let (sender, receiver) = channel(&options(WAITS[kill as usize % 3])).unwrap();
        let process = start("receive", receiver.into_fds());
        within_patience(|| {
            kill_while(process, &mut rng, |at_work| {
                let mut sender = sender.open().unwrap();
                // More than the capacity, so that the receiver must be receiving.
                send_some(&mut sender, 0..100).unwrap();
                at_work.send(()).unwrap();
                let error = send_some(&mut sender, 100..u32::MAX).unwrap_err();
                assert!(matches!(error, SendError::PeerDied), "{error}");
                assert!(matches!(sender.send(b"x"), Err(SendError::PeerDied)));
            });
        });
    }
}

fn send_some(sender: &mut Sender, numbers: std::ops::Range<u32>) -> Result<(), SendError> {
    for number in numbers {
        sender.send(&message(number).collect::<Vec<u8>>())?;
    }
    Ok(())
}
