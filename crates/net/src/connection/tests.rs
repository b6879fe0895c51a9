//! What waits at connections whose peers do not read.

use std::os::fd::{AsFd, BorrowedFd};

use super::*;

/// A link to a peer that does not read. Where it is never asked for its descriptor, any will do.
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
fn answers_to_pings_stay_within_the_limits_of_a_connection_and_of_all() {
    let limits = Limits { queue: 1_000, queues: 3_000, ..Limits::default() };
    let holdings = Arc::<Holdings>::default();
    let connections: Vec<_> = (0..10)
        .map(|_| {
            let link = Box::new(Stuck(std::fs::File::open("/dev/null").unwrap()));
            let framing = Framing::WebSocket(Side::Server);
            let connection = Connection::new(link, framing, false, &limits, holdings.clone());
            connection.open().unwrap();
            connection
        })
        .collect();
    // A frame has a header of two bytes.
    let frame = 2 + 50;
    for connection in &connections {
        for _ in 0..100 {
            connection.pong(&[7; 50]).unwrap();
        }
        let waits = connection.lock().queue.len();
        assert!((frame..=limits.queue + frame).contains(&waits), "{waits} bytes wait at one");
    }
    // Where nothing waits, an answer may leave at once: that is tried.
    let most = limits.queues + frame * (connections.len() + 1);
    let all = holdings.queued.load(Ordering::Relaxed);
    assert!((limits.queues..=most).contains(&all), "{all} bytes wait at all");
}
