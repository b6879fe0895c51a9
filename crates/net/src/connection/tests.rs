//! Queues of connections whose peers do not read, and threads that send at the same time.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicUsize;
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

/// A link to a peer that does not read. Its descriptor is never used, so any will do.
struct Stuck(std::fs::File);

impl Link for Stuck {
    fn source(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn read(&self, _: &mut [u8]) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }

    fn write(&self, _: &[IoSlice<'_>]) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }

    fn finish(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn replies_to_pings_stay_within_the_queue_limits() {
    let limits = Limits { queue: 1_000, total_queued_bytes: 3_000, ..Limits::default() };
    let totals = Arc::<BufferTotals>::default();
    let connections: Vec<_> = (0..10)
        .map(|_| {
            let link = Box::new(Stuck(std::fs::File::open("/dev/null").unwrap()));
            let framing = Framing::WebSocket(Side::Server);
            let connection = Connection::new(link, framing, false, &limits, totals.clone());
            connection.open().unwrap();
            connection
        })
        .collect();
    // A frame of 50 bytes has a header of 2 bytes.
    let frame = 2 + 50;
    for connection in &connections {
        for _ in 0..100 {
            connection.pong(&[7; 50]).unwrap();
        }
        let waits = connection.lock().queue.len();
        assert!((frame..=limits.queue + frame).contains(&waits), "{waits} bytes wait at one");
    }
    // A reply may be queued while the queue is empty, beyond the total limit.
    let max_queued = limits.total_queued_bytes + frame * (connections.len() + 1);
    let all = totals.queued.load(Ordering::Relaxed);
    assert!((limits.total_queued_bytes..=max_queued).contains(&all), "{all} bytes wait at all");
}

/// A link that accepts so many bytes.
struct Partial {
    file: std::fs::File,
    space: Arc<AtomicUsize>,
}

impl Link for Partial {
    fn source(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn read(&self, _: &mut [u8]) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let len = parts.iter().map(|part| part.len()).sum();
        let space = self.space.load(Ordering::Relaxed);
        self.space.fetch_sub(space.min(len), Ordering::Relaxed);
        if space == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(space.min(len)) }
    }

    fn finish(&self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug, Clone)]
enum Step {
    Send(usize),
    SendFrames(usize),
    Pong,
    /// The peer reads so many bytes.
    Accept(usize),
    Open,
    MoveToSuccessor,
    Abort,
}

fn step() -> impl Strategy<Value = Step> {
    let len = || prop_oneof![3 => 0..100_usize, 1 => 0..100_000_usize];
    prop_oneof![
        6 => len().prop_map(Step::Send),
        2 => len().prop_map(Step::SendFrames),
        1 => Just(Step::Pong),
        4 => len().prop_map(Step::Accept),
        1 => Just(Step::Open),
        1 => Just(Step::MoveToSuccessor),
        1 => Just(Step::Abort),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_total_counts_up_to_an_eighth_more_than_is_queued(steps in prop::collection::vec(step(), 1..60)) {
        let (totals, space) = (Arc::<BufferTotals>::default(), Arc::<AtomicUsize>::default());
        let connection = || {
            let link = Partial { file: std::fs::File::open("/dev/null").unwrap(), space: space.clone() };
            let connection =
                Connection::new(Box::new(link), Framing::WebSocket(Side::Server), false, &Limits::default(), totals.clone());
            connection.set_will_reconnect(true);
            connection
        };
        let mut current = connection();
        for step in steps {
            match step {
                Step::Send(len) => drop(current.send(Kind::Binary, &vec![7; len])),
                Step::SendFrames(len) => drop(current.send_frames(&vec![7; len + 1], 1)),
                Step::Pong => drop(current.pong(b"ping")),
                Step::Accept(len) => {
                    space.fetch_add(len, Ordering::Relaxed);
                    current.flush().unwrap();
                }
                Step::Open => drop(current.open()),
                Step::MoveToSuccessor => {
                    let next = connection();
                    current.move_to_successor(&next);
                    current = next;
                }
                Step::Abort => current.abort(),
            }
            let (queued, all) = (current.lock().queued(), totals.queued.load(Ordering::Relaxed));
            prop_assert!((queued..=queued + queued / 8).contains(&all), "{} of {}", all, queued);
        }
        current.close();
        prop_assert_eq!(totals.queued.load(Ordering::Relaxed), 0);
    }
}

/// A link that accepts whole writes, or fails.
struct Calls {
    file: std::fs::File,
    writes: Arc<Mutex<Vec<Vec<u8>>>>,
    fails: bool,
}

impl Link for Calls {
    fn source(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn read(&self, _: &mut [u8]) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }

    fn write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.fails {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let written: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        let len = written.len();
        self.writes.lock().unwrap().push(written);
        Ok(len)
    }

    fn finish(&self) -> io::Result<()> {
        Ok(())
    }
}

/// What happened when threads sent at the same time.
struct SendResults {
    outcomes: [io::Result<Option<Outcome>>; 3],
    writes: Vec<Vec<u8>>,
    /// How many accepted bytes were not written.
    unwritten: usize,
}

/// Three threads send one byte each. All of them are in line before the first one gets the lock.
fn three_at_once(framing: Framing, fails: bool) -> SendResults {
    let writes = Arc::<Mutex<Vec<Vec<u8>>>>::default();
    let link = Calls { file: std::fs::File::open("/dev/null").unwrap(), writes: writes.clone(), fails };
    let connection = Connection::new(Box::new(link), framing, false, &Limits::default(), Arc::default());
    connection.open().unwrap();
    let out = connection.lock();
    let outcomes = thread::scope(|scope| {
        let senders = [7, 8, 9].map(|byte| {
            scope.spawn({
                let connection = &connection;
                move || connection.send(Kind::Binary, &[byte])
            })
        });
        let deadline = Instant::now() + Duration::from_secs(60);
        while connection.line.len() < 3 {
            assert!(Instant::now() < deadline, "three threads come to the lock");
            thread::yield_now();
        }
        drop(out);
        senders.map(|sender| sender.join().unwrap())
    });
    let unwritten = connection.close();
    let writes = writes.lock().unwrap().clone();
    SendResults { outcomes, writes, unwritten }
}

#[test]
fn messages_of_concurrent_threads_leave_in_one_write() {
    let SendResults { outcomes, writes, unwritten } = three_at_once(Framing::Length, false);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(Some(Outcome::Sent)))), "{outcomes:?}");
    let [write] = writes.as_slice() else { panic!("{writes:?}") };
    let (frames, rest) = write.as_chunks::<5>();
    let bytes: BTreeSet<u8> = frames.iter().map(|frame| frame[4]).collect();
    assert_eq!((bytes, rest, unwritten), (BTreeSet::from([7, 8, 9]), &[][..], 0));
}

#[test]
fn a_client_masks_messages_of_concurrent_threads() {
    let SendResults { writes, .. } = three_at_once(Framing::WebSocket(Side::Client), false);
    let [write] = writes.as_slice() else { panic!("{writes:?}") };
    let (frames, rest) = write.as_chunks::<7>();
    let bytes: BTreeSet<u8> = frames.iter().map(|frame| frame[6] ^ frame[2]).collect();
    assert_eq!((bytes, rest), (BTreeSet::from([7, 8, 9]), &[][..]));
}

#[test]
fn only_the_writing_thread_gets_the_error_and_frames_of_others_count_as_unwritten() {
    let SendResults { outcomes, writes, unwritten } = three_at_once(Framing::Length, true);
    assert_eq!(writes.len(), 0);
    let sent = outcomes.iter().filter(|outcome| matches!(outcome, Ok(Some(Outcome::Sent)))).count();
    let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    // Only the last thread in line writes, and it gets the error.
    assert_eq!((sent, failed, unwritten), (2, 1, 2 * 5));
}
