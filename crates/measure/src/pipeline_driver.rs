//! Pipelines: one sender and one or two receivers, which make, check, count and time the messages
//! themselves.
//!
//! A whole pipeline of functions is measured, as in `wasm-pipeline-throughput`, so the harness's
//! own loops are not used. If the window is a number of messages, every mechanism of a cell gets
//! the same number. If it is a time, slow mechanisms get fewer. The harness compares the numbers
//! sent and received, and counts the processor time of all processes. The receiver measures the
//! time: from its first message to the last message of all.

use std::time::Duration;

use crate::case::{Cell, Pattern, Role};
use crate::message::{Faults, StreamCount};
use crate::protocol::PartyReport;
use crate::window::Window;

/// The result of one end of a pipeline.
#[derive(Clone, Copy, Debug)]
pub struct PipelineEnd {
    role: Role,
    messages: u64,
    damaged: u64,
    time: Option<Duration>,
}

impl PipelineEnd {
    /// The sender, which has sent `messages` messages, including the one marked as the last.
    pub fn sender(messages: u64) -> PipelineEnd {
        PipelineEnd { role: Role::Producer(0), messages, damaged: 0, time: None }
    }

    /// The receiver with the number `index`. `time` is the time from its first message to the last
    /// message of all, if it received that one.
    pub fn receiver(index: usize, messages: u64, time: Option<Duration>) -> PipelineEnd {
        PipelineEnd { role: Role::Consumer(index), messages, damaged: 0, time }
    }

    /// Sets the number of messages that were received with a wrong checksum.
    #[must_use]
    pub fn damaged(self, damaged: u64) -> PipelineEnd {
        PipelineEnd { damaged, ..self }
    }

    /// The report of this end, as that of a party.
    pub(crate) fn report(self) -> PartyReport {
        let PipelineEnd { role, messages, damaged, time } = self;
        let report = PartyReport::new(role);
        if let Role::Producer(_) = role {
            return PartyReport { sent: messages, ..report };
        }
        let count = StreamCount { producer: 0, received: messages, announced: None, digest: 0 };
        // The length of a window is never 0 if there was one.
        let window_ns = time.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1));
        let faults = Faults { damaged, ..Faults::default() };
        PartyReport { received: vec![count], faults, messages, window_ns, ..report }
    }
}

/// The number of messages of an instance before the last one.
///
/// If the window is a time, it is about the number that two processes without a sandbox pass in
/// that time, divided by `slowness`.
pub(crate) fn messages(cell: &Cell, window: Window, slowness: u64) -> u64 {
    match window {
        Window::Time { measure_ns, .. } => ((measure_ns as f64 / nominal_ns(cell)) as u64 / slowness).max(1),
        Window::Count { messages, .. } => messages,
    }
}

/// The approximate time of a message between two processes on a fast machine, in nanoseconds: a
/// constant plus a time for each byte.
fn nominal_ns(cell: &Cell) -> f64 {
    const MESSAGE_NS: f64 = 25.0;
    let byte_ns = if cell.pattern == Pattern::SendChecksum { 0.2 } else { 0.025 };
    MESSAGE_NS + byte_ns * cell.payload.len() as f64
}

/// How long an instance may take between start and end: `least`, or longer if the data takes longer
/// at 50 MB/s.
pub(crate) fn timeout(cell: &Cell, window: Window, least: Duration) -> Duration {
    const SLOWEST_BYTES_PER_SECOND: f64 = 50e6;
    let bytes = messages(cell, window, 1) as f64 * cell.payload.len() as f64;
    least.max(Duration::from_secs_f64(bytes / SLOWEST_BYTES_PER_SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite;

    const TIME: Window = Window::Time { warmup_ns: 0, measure_ns: 100_000_000 };
    const COUNT: Window = Window::Count { warmup: 10, messages: 1_000_000 };

    fn cell(pattern: Pattern, len: usize) -> Cell {
        let cells = suite::flow(suite::Profile::Full);
        let cell = cells.into_iter().find(|cell| cell.pattern == pattern).unwrap();
        Cell { payload: crate::case::Payload::Bytes(len), ..cell }
    }

    #[test]
    fn the_window_decides_the_number_of_messages() {
        let messages = |cell, window| messages(&cell, window, 1);
        assert_eq!(messages(cell(Pattern::SendReceive, 1_000), TIME), 2_000_000);
        assert_eq!(messages(cell(Pattern::SendReceive, 1 << 20), Window::Time { warmup_ns: 0, measure_ns: 1 }), 1);
        let checked = messages(cell(Pattern::SendChecksum, 100_000), TIME);
        assert!(checked < messages(cell(Pattern::SendReceive, 100_000), TIME), "{checked}");
        assert_eq!(messages(cell(Pattern::SendReceive, 1_000), COUNT), 1_000_000);
    }

    #[test]
    fn a_slow_mechanism_has_fewer_messages_if_the_window_is_a_time() {
        let cell = cell(Pattern::SendReceive, 1_000);
        assert_eq!(messages(&cell, TIME, 8), 250_000);
        assert_eq!(messages(&cell, Window::Time { warmup_ns: 0, measure_ns: 100 }, 1_000), 1);
        assert_eq!(messages(&cell, COUNT, 8), 1_000_000);
    }

    #[test]
    fn many_long_messages_have_a_longer_timeout() {
        let least = Duration::from_secs(300);
        assert_eq!(timeout(&cell(Pattern::SendReceive, 1_000), TIME, least), least);
        assert_eq!(timeout(&cell(Pattern::SendReceive, 100_000), COUNT, least), Duration::from_secs(2_000));
    }

    #[test]
    fn only_the_receiver_of_the_last_message_has_a_window() {
        let last = PipelineEnd::receiver(1, 40, Some(Duration::from_micros(7))).damaged(2).report();
        assert_eq!((last.role, last.messages, last.window_ns, last.faults.damaged), (Role::Consumer(1), 40, 7_000, 2));
        let other = PipelineEnd::receiver(0, 60, None).report();
        assert_eq!((other.messages, other.window_ns), (60, 0));
        assert_eq!(PipelineEnd::sender(100).report().sent, 100);
    }
}
