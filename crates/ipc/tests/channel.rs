//! The guarantees of a channel, in each wait mode.

use std::thread;
use std::time::{Duration, Instant};

use estafette_ipc::{
    OpenError, Options, Receiver, ReceiverHandle, RecvError, SendError, Sender, SenderHandle, WaitMode, channel,
};

use self::common::within_patience;

mod common;

const WAITS: [WaitMode; 3] = [WaitMode::Spin, WaitMode::Adaptive, WaitMode::Block];

fn open(options: &Options) -> (Sender, Receiver) {
    let (sender, receiver) = channel(options).unwrap();
    (sender.open().unwrap(), receiver.open().unwrap())
}

/// Runs a test with a channel of one page, in each wait mode.
fn each_mode(test: impl Fn(Sender, Receiver) + Sync) {
    for wait in WAITS {
        let (sender, receiver) = open(&Options::new().capacity(4096).wait(wait));
        within_patience(|| test(sender, receiver));
    }
}

fn recv(receiver: &mut Receiver) -> Vec<u8> {
    let message = receiver.recv().unwrap();
    let bytes = message.to_vec();
    message.release();
    bytes
}

fn try_recv(receiver: &mut Receiver) -> Option<Vec<u8>> {
    let message = receiver.try_recv().unwrap()?;
    let bytes = message.to_vec();
    message.release();
    Some(bytes)
}

#[test]
fn messages_arrive_in_order() {
    each_mode(|mut sender, mut receiver| {
        for round in 0..50u8 {
            assert_eq!(try_recv(&mut receiver), None);
            for len in [0, 1, 7, 8, 9, 1000] {
                sender.try_send(&vec![round; len]).unwrap();
            }
            for len in [0, 1, 7, 8, 9, 1000] {
                assert_eq!(recv(&mut receiver), vec![round; len]);
            }
        }
    });
}

#[test]
fn a_full_channel_returns_full() {
    each_mode(|mut sender, mut receiver| {
        let mut sent = 0;
        while sender.try_send(&[1; 64]).is_ok() {
            sent += 1;
        }
        assert_eq!(sent, 64, "a cache line each");
        assert!(matches!(sender.try_send(b""), Err(SendError::Full)));
        assert!(matches!(sender.try_loan(64), Err(SendError::Full)));
        for _ in 0..sent {
            assert_eq!(recv(&mut receiver), [1; 64]);
        }
        while try_recv(&mut receiver).is_some() {}
        assert!(sender.try_send(&[2; 4000]).is_ok(), "an empty channel has space for all that fits");
    });
}

#[test]
fn a_loan_that_is_dropped_is_not_sent() {
    each_mode(|mut sender, mut receiver| {
        sender.loan(8).unwrap().fill(1);
        assert_eq!(try_recv(&mut receiver), None);
        let mut loan = sender.loan(3).unwrap();
        loan.fill(2);
        loan.send();
        assert_eq!(recv(&mut receiver), [2; 3]);
    });
}

#[test]
fn a_message_that_is_dropped_is_received_again() {
    each_mode(|mut sender, mut receiver| {
        sender.send_many([&b"a"[..], b"b"]).unwrap();
        assert_eq!(&receiver.recv().unwrap()[..], b"a");
        assert_eq!(receiver.recv_many(9).unwrap().len(), 2);
        assert_eq!(recv(&mut receiver), b"a");
        assert_eq!(recv(&mut receiver), b"b");
    });
}

#[test]
fn a_batch_contains_the_available_messages() {
    each_mode(|mut sender, mut receiver| {
        let messages: Vec<Vec<u8>> = (0..30u8).map(|len| vec![len; len.into()]).collect();
        for _ in 0..20 {
            sender.send_many(messages.iter().map(Vec::as_slice)).unwrap();
            for range in [0..10, 10..30] {
                let batch = receiver.recv_many(range.len()).unwrap();
                assert!(batch.iter().eq(&messages[range]));
                batch.release();
            }
        }
        let none: [&[u8]; 0] = [];
        sender.send_many(none).unwrap();
        assert_eq!(try_recv(&mut receiver), None);
    });
}

#[test]
fn more_than_the_capacity_is_sent_while_the_other_end_receives() {
    each_mode(|mut sender, mut receiver| {
        thread::scope(|scope| {
            scope.spawn(move || {
                let message = [7; 300];
                sender.send_many((0..1000).map(|_| &message[..])).unwrap();
            });
            let mut count = 0;
            while let Ok(batch) = receiver.recv_many(5) {
                assert!(batch.iter().all(|message| message == [7; 300]));
                count += batch.len();
                batch.release();
            }
            assert_eq!(count, 1000);
        });
    });
}

#[test]
fn a_timeout_is_kept() {
    each_mode(|mut sender, mut receiver| {
        let start = Instant::now();
        assert!(receiver.recv_timeout(Duration::from_millis(20)).unwrap().is_none());
        assert!(start.elapsed() >= Duration::from_millis(20));
        sender.send(b"a").unwrap();
        assert!(receiver.recv_timeout(Duration::ZERO).unwrap().is_some());
        assert_eq!(recv(&mut receiver), b"a");
    });
}

#[test]
fn messages_are_received_after_the_sender_closed() {
    each_mode(|mut sender, mut receiver| {
        sender.send(b"a").unwrap();
        assert!(!receiver.is_closed());
        drop(sender);
        assert!(receiver.is_closed());
        assert_eq!(recv(&mut receiver), b"a");
        for _ in 0..2 {
            assert_eq!(receiver.recv().unwrap_err(), RecvError::Closed);
            assert_eq!(receiver.try_recv().unwrap_err(), RecvError::Closed);
            assert_eq!(receiver.recv_many(2).unwrap_err(), RecvError::Closed);
            assert_eq!(receiver.recv_timeout(Duration::MAX / 4).unwrap_err(), RecvError::Closed);
        }
    });
}

#[test]
fn closing_wakes_the_receiver() {
    each_mode(|sender, mut receiver| {
        thread::scope(|scope| {
            let waiting = scope.spawn(move || receiver.recv().map(drop));
            thread::sleep(Duration::from_millis(5));
            drop(sender);
            assert_eq!(waiting.join().unwrap(), Err(RecvError::Closed));
        });
    });
}

#[test]
fn closing_wakes_the_sender() {
    each_mode(|mut sender, receiver| {
        thread::scope(|scope| {
            let waiting = scope.spawn(move || {
                loop {
                    if let Err(error) = sender.send(&[0; 1000]) {
                        return error;
                    }
                }
            });
            thread::sleep(Duration::from_millis(5));
            drop(receiver);
            assert!(matches!(waiting.join().unwrap(), SendError::Closed));
        });
    });
}

#[test]
fn a_dropped_handle_counts_as_a_dead_peer() {
    for wait in WAITS {
        within_patience(|| {
            let (sender, receiver) = channel(&Options::new().wait(wait)).unwrap();
            let mut sender = sender.open().unwrap();
            drop(receiver);
            while sender.send(&[0; 1000]).is_ok() {}
            assert!(matches!(sender.send(b""), Err(SendError::PeerDied)));
            let (sender, receiver) = channel(&Options::new().wait(wait)).unwrap();
            drop(sender);
            assert_eq!(receiver.open().unwrap().recv().unwrap_err(), RecvError::PeerDied);
        });
    }
}

#[test]
fn each_end_is_opened_once() {
    let (sender, receiver) = channel(&Options::new()).unwrap();
    let fds = sender.into_fds();
    let clone = fds.each_ref().map(|fd| fd.try_clone().unwrap());
    let _sender = SenderHandle::from_fds(fds).unwrap().open().unwrap();
    assert!(matches!(SenderHandle::from_fds(clone).unwrap().open(), Err(OpenError::Taken { end: "sender" })));
    let [memory, socket] = receiver.into_fds();
    assert!(ReceiverHandle::from_fds([socket, memory]).unwrap_err().to_string().contains("not a channel"));
}

#[test]
fn messages_longer_than_the_ring_arrive() {
    each_mode(|mut sender, mut receiver| {
        thread::scope(|scope| {
            scope.spawn(move || {
                for round in 0..60usize {
                    let len = [5000, 10, 200_000, 4090, 70_000][round % 5];
                    sender.send(&vec![round as u8; len]).unwrap();
                    drop(sender.loan(300_000 + round * 1000).unwrap());
                }
            });
            for round in 0..60usize {
                let len = [5000, 10, 200_000, 4090, 70_000][round % 5];
                if round % 3 == 0 {
                    let batch = receiver.recv_many(1).unwrap();
                    assert_eq!(batch.iter().next().unwrap(), vec![round as u8; len]);
                    batch.release();
                } else {
                    assert_eq!(recv(&mut receiver), vec![round as u8; len]);
                }
            }
            assert_eq!(receiver.recv().unwrap_err(), RecvError::Closed);
        });
    });
}

#[test]
fn eight_large_messages_can_be_in_flight() {
    let (mut sender, mut receiver) = open(&Options::new().capacity(4096).max_message(10_000));
    for round in 0..3 {
        for number in 0..8 {
            sender.try_send(&[round * 8 + number; 10_000]).unwrap();
        }
        assert!(matches!(sender.try_send(&[0; 10_000]), Err(SendError::Full)));
        assert!(matches!(sender.try_send(&[0; 10_001]), Err(SendError::TooLong { len: 10_001, max: 10_000 })));
        for number in 0..8 {
            assert_eq!(recv(&mut receiver), [round * 8 + number; 10_000]);
        }
    }
}

#[test]
fn ends_can_be_sent_to_threads() {
    fn is_send<T: Send>() {}
    is_send::<Sender>();
    is_send::<Receiver>();
    is_send::<SenderHandle>();
    is_send::<ReceiverHandle>();
}

/// Checks every byte of every message, through a ring that is often full and often empty.
#[test]
fn order_and_content_under_stress() {
    each_mode(|mut sender, mut receiver| {
        thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..30_000u32 {
                    let mut loan = sender.loan(number as usize % 700).unwrap();
                    loan.fill(number as u8);
                    loan.send();
                }
            });
            for number in 0..30_000u32 {
                let message = receiver.recv().unwrap();
                assert_eq!(message.len(), number as usize % 700);
                assert!(message.iter().all(|byte| *byte == number as u8), "message {number}");
                message.release();
            }
            assert_eq!(receiver.recv().unwrap_err(), RecvError::Closed);
        });
    });
}
