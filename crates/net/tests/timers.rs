//! Delayed signals, and cancelling them.

mod common;

use std::time::{Duration, Instant};

use common::{PATIENCE, Seen, Side};
use estafette_net::{Event, Node};

const NOW: Duration = Duration::ZERO;
/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(10_000);

#[test]
fn a_cancelled_signal_is_returned_and_never_arrives() {
    let mut side = Side::new();
    let timers: Vec<_> = (0..10).map(|i| side.handle.signal_after(Duration::from_millis(20), i)).collect();
    let late = side.handle.signal_after(LONG, 77);
    for (i, timer) in timers.iter().enumerate().filter(|(i, _)| i % 3 != 0) {
        assert_eq!(side.handle.cancel_signal(*timer), Some(i as u32));
        assert_eq!(side.handle.cancel_signal(*timer), None, "it was cancelled before");
    }
    side.until("the last", |seen| (*seen == Seen::Signal(9)).then_some(()));
    assert_eq!(side.seen, [0, 3, 6, 9].map(Seen::Signal));
    assert_eq!(side.handle.cancel_signal(timers[0]), None, "it was delivered");
    assert_eq!(side.handle.cancel_signal(late), Some(77));
}

#[test]
fn a_signal_whose_delay_has_passed_can_be_cancelled_until_it_is_delivered() {
    let mut node = Node::<u32>::new().unwrap();
    let handle = node.handle();
    let timers: Vec<_> = (0..4).map(|i| handle.signal_after(NOW, i)).collect();
    handle.signal(100);
    let mut seen = Vec::new();
    // All of them are due in the same turn, so the later ones wait behind the first.
    node.poll(Some(PATIENCE), |event| {
        let Event::Signal(signal) = event else { panic!("{event:?}") };
        match signal {
            100 => assert_eq!(handle.cancel_signal(timers[1]), Some(1)),
            0 => {
                assert_eq!(handle.cancel_signal(timers[0]), None, "it is being delivered");
                assert_eq!(handle.cancel_signal(timers[3]), Some(3));
            }
            _ => {}
        }
        seen.push(signal);
    })
    .unwrap();
    assert_eq!(seen, [100, 0, 2]);
    assert!(node.next(Some(Duration::from_millis(10))).unwrap().is_none());
}

#[test]
fn a_cancelled_signal_does_not_end_a_wait() {
    let mut node = Node::<u32>::new().unwrap();
    let handle = node.handle();
    let begun = Instant::now();
    let first = handle.signal_after(Duration::from_millis(1), 1);
    handle.signal_after(Duration::from_millis(50), 2);
    assert_eq!(handle.cancel_signal(first), Some(1));
    let event = node.next(None).unwrap();
    assert!(matches!(event, Some(Event::Signal(2))), "{event:?}");
    assert!(begun.elapsed() >= Duration::from_millis(50));
}

#[test]
fn a_timer_of_another_node_cancels_nothing() {
    let (a, b) = (Side::new(), Side::new());
    let timers = [a.handle.signal_after(LONG, 1), b.handle.signal_after(LONG, 2)];
    assert_ne!(timers[0], timers[1]);
    assert_eq!((a.handle.cancel_signal(timers[1]), b.handle.cancel_signal(timers[0])), (None, None));
    assert_eq!((a.handle.cancel_signal(timers[0]), b.handle.cancel_signal(timers[1])), (Some(1), Some(2)));
}

/// Signals that another thread cancels while they become due are delivered or cancelled, never both
/// and never neither.
#[test]
fn a_signal_is_either_delivered_or_cancelled() {
    let mut node = Node::<u32>::new().unwrap();
    let handle = node.handle();
    const COUNT: u32 = 2000;
    let timers: Vec<_> = (0..COUNT).map(|i| handle.signal_after(Duration::from_micros(u64::from(i)), i)).collect();
    handle.signal_after(Duration::from_millis(100), COUNT);
    let canceller = std::thread::spawn(move || {
        timers.into_iter().filter_map(|timer| handle.cancel_signal(timer)).collect::<Vec<_>>()
    });
    let mut delivered = Vec::new();
    while delivered.last() != Some(&COUNT) {
        node.poll(Some(PATIENCE), |event| {
            let Event::Signal(signal) = event else { panic!("{event:?}") };
            delivered.push(signal);
        })
        .unwrap();
    }
    delivered.extend(canceller.join().unwrap());
    delivered.sort_unstable();
    assert_eq!(delivered, (0..=COUNT).collect::<Vec<_>>());
}
