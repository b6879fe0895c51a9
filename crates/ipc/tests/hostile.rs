//! Hostile peers: random garbage is written to every shared word while an honest end works. The end
//! may return errors, but never panics, hangs, or accesses memory outside of the ring.
//!
//! The garbage is written through the memory file's descriptor, so no mapping is needed. Each run
//! is short, since an end closes at the first impossible word.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use estafette_ipc::group::{BellFile, Interrupt, Member, Publisher, Recovery, RingControl, RingFile};
use estafette_ipc::{Options, ReceiverHandle, SenderHandle, WaitMode, channel};
use fastrand::Rng;
use rustix::fs::fstat;
use rustix::io::pwrite;

use self::common::within_patience;

mod common;

const TIME: Duration = Duration::from_secs(2);

/// The length of the file's header, which is validated only when an end opens the file.
const HEADER: u64 = 128;

/// A random word of a kind that is likely to do harm.
fn garbage(rng: &mut Rng) -> u64 {
    match rng.u8(0..8) {
        0 => 0,
        1 => rng.u64(0..64),
        2 => rng.u64(0..1024) * 8,
        3 => 1 << rng.u8(0..64),
        4 => u64::MAX - rng.u64(0..1024),
        5 => rng.u64(0..16) << 32 | rng.u64(0..8192),
        6 => rng.u64(0..1024) << 8 | rng.u64(0..8),
        _ => rng.u64(..),
    }
}

/// Writes garbage to a random word of the file, more often to its first words than to the data.
fn write_garbage(file: BorrowedFd<'_>, rng: &mut Rng) {
    let len = fstat(file).unwrap().st_size as u64;
    let end = if rng.bool() { len.min(2048) } else { len };
    let at = rng.u64(HEADER / 8..end / 8) * 8;
    pwrite(file, &garbage(rng).to_ne_bytes(), at).unwrap();
}

/// Writes garbage to the files from another thread while `work` runs.
fn while_writing_garbage<T>(files: &[BorrowedFd<'_>], seed: u64, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = Rng::with_seed(seed);
            while !done.load(Ordering::Relaxed) {
                write_garbage(files[rng.usize(0..files.len())], &mut rng);
            }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    })
}

/// Runs a test with one seed after the other until the time is over.
fn for_some_time(test: impl Fn(u64) + Sync) {
    within_patience(|| {
        let start = Instant::now();
        let mut seed = 0;
        while start.elapsed() < TIME || seed < 10 {
            test(seed);
            seed += 1;
        }
    });
}

const WAITS: [WaitMode; 3] = [WaitMode::Spin, WaitMode::Adaptive, WaitMode::Block];

fn options(seed: u64) -> Options {
    Options::new().capacity(4096).wait(WAITS[seed as usize % 3]).max_message(20_000)
}

#[test]
fn a_receiver_survives_garbage() {
    for_some_time(|seed| {
        let (sender, receiver) = channel(&options(seed)).unwrap();
        let [memory, socket] = sender.into_fds();
        let clone = memory.try_clone().unwrap();
        let mut sender = SenderHandle::from_fds([clone, socket]).unwrap().open().unwrap();
        let mut receiver = receiver.open().unwrap();
        while_writing_garbage(&[memory.as_fd()], seed, || {
            for round in 0..100 {
                let _ = sender.try_send(&[1; 100]);
                let _ = sender.try_send(&[1; 5000]);
                let result = match round % 3 {
                    0 => receiver.recv_timeout(Duration::from_micros(50)).map(|message| {
                        message.map(|message| {
                            (message.iter().map(|byte| u64::from(*byte)).sum::<u64>(), message.release())
                        });
                    }),
                    1 => receiver.try_recv().map(|message| message.map_or((), |message| message.release())),
                    _ => match receiver.recv_timeout(Duration::ZERO) {
                        Ok(Some(message)) => {
                            drop(message);
                            receiver.recv_many(10).map(|batch| {
                                std::hint::black_box(batch.iter().map(<[u8]>::len).sum::<usize>());
                                batch.release();
                            })
                        }
                        Ok(None) => Ok(()),
                        Err(error) => Err(error),
                    },
                };
                if result.is_err() {
                    break;
                }
            }
        });
    });
}

#[test]
fn a_sender_survives_garbage() {
    for_some_time(|seed| {
        let (sender, receiver) = channel(&options(seed)).unwrap();
        let [memory, socket] = receiver.into_fds();
        let clone = memory.try_clone().unwrap();
        let mut receiver = ReceiverHandle::from_fds([clone, socket]).unwrap().open().unwrap();
        let mut sender = sender.open().unwrap();
        while_writing_garbage(&[memory.as_fd()], seed, || {
            for round in 0..200 {
                let _ = receiver.try_recv().map(|message| message.map_or((), |message| message.release()));
                let result = match round % 4 {
                    3 => sender.try_send(&[2; 10_000]),
                    _ => sender.try_loan(round * 3).map(|mut loan| {
                        loan.fill(1);
                        loan.send();
                    }),
                };
                if !matches!(result, Ok(()) | Err(estafette_ipc::SendError::Full)) {
                    break;
                }
            }
        });
    });
}

#[test]
fn a_group_survives_garbage() {
    for_some_time(|seed| {
        let (ring, bell) = (RingFile::create(4096, 2).unwrap(), BellFile::create().unwrap());
        let wait = WAITS[seed as usize % 3];
        let open = |index| Member::open(vec![ring.try_clone().unwrap()], &bell, index, wait, Interrupt::new()).unwrap();
        let mut members = [open(0), open(1).with_copies()];
        let mut publisher = Publisher::open(&ring, &bell, wait, Interrupt::new()).unwrap();
        let control = RingControl::open(&ring, &bell).unwrap();
        while_writing_garbage(&[ring.as_fd(), bell.as_fd()], seed, || {
            for round in 0..100 {
                let _ = publisher.try_send(&[3; 100]);
                let _ = publisher.send_dropping_oldest(&[4; 500]);
                for member in &mut members {
                    if let Ok(Some(claim)) = member.try_claim(1000, round % 5) {
                        let bytes: u64 =
                            claim.messages().flat_map(|message| message.data).map(|byte| u64::from(*byte)).sum();
                        std::hint::black_box(bytes);
                        claim.progress(1);
                        if round % 4 > 0 {
                            claim.ack();
                        }
                    }
                }
                std::hint::black_box((control.depth(), control.counters(), control.is_drained()));
                if round % 10 == 9 {
                    control.recover(round / 10 % 2, if round % 20 == 9 { Recovery::Return } else { Recovery::Discard });
                }
            }
        });
        // An end that opens the ring now reads garbage.
        if let Ok(mut publisher) = Publisher::open(&ring, &bell, wait, Interrupt::new()) {
            let _ = publisher.try_send(&[1; 10]);
            let _ = publisher.send_dropping_oldest(&[1; 10]);
        }
        if let Ok(mut member) = Member::open(vec![ring.try_clone().unwrap()], &bell, 0, wait, Interrupt::new()) {
            let _ = member.try_claim(1000, 1000).map(|claim| claim.map_or((), |claim| claim.ack()));
        }
    });
}

/// Waiting ends can be interrupted, even while the words that they wait for are overwritten.
#[test]
fn waiting_ends_can_be_interrupted_during_garbage_writes() {
    for_some_time(|seed| {
        let (ring, bell) = (RingFile::create(4096, 1).unwrap(), BellFile::create().unwrap());
        let interrupt = Interrupt::new();
        let wait = WAITS[1 + seed as usize % 2];
        let mut publisher = Publisher::open(&ring, &bell, wait, interrupt.clone()).unwrap();
        let mut member = Member::open(vec![ring.try_clone().unwrap()], &bell, 0, wait, interrupt.clone()).unwrap();
        while_writing_garbage(&[ring.as_fd(), bell.as_fd()], seed, || {
            thread::scope(|scope| {
                scope.spawn(|| while publisher.send(&[0; 500]).is_ok() {});
                scope.spawn(|| while member.claim(1000, 10).map(|claim| claim.ack()).is_ok() {});
                thread::sleep(Duration::from_millis(2));
                interrupt.set();
            });
        });
    });
}

#[test]
fn a_corrupt_file_is_an_error_or_a_valid_channel() {
    let mut rng = Rng::with_seed(1);
    for _ in 0..2000 {
        let (sender, receiver) = channel(&options(0)).unwrap();
        let ([memory, socket], [_, other]) = (sender.into_fds(), receiver.into_fds());
        pwrite(&memory, &garbage(&mut rng).to_ne_bytes(), rng.u64(0..20) * 8).unwrap();
        if let Ok(Ok(mut receiver)) = ReceiverHandle::from_fds([memory, socket]).map(ReceiverHandle::open) {
            drop(other);
            let _ = receiver.try_recv().map(drop);
        }
    }
}
