//! Checks of queues and back-pressure: sends before the connection is open, slow readers, and
//! paused endpoints.

use std::time::Duration;

use super::Subject;
use super::scene::{End, Scene, pattern};
use super::side::{Seen, Side};
use super::usage::Usage;
use crate::{Endpoint, Outcome};

/// The most CPU time of a node while nothing happens. A node that busy-waits uses all there is.
const IDLE: Duration = Duration::from_millis(50);
/// The most wake-ups while nothing happens.
const WAKES: i64 = 20;
/// After this many accepted sends the queue counts as unbounded.
const MOST: usize = 10_000;

/// Sends before the connection is open are queued, and `Drained` follows `Connected`.
///
/// # Panics
///
/// If this does not hold.
pub fn early_sends_wait(subject: &Subject) {
    for mut scene in subject.scenes("what is sent before the connection is open is queued") {
        let (_, at) = scene.listen();
        let endpoint = scene.begin(&at);
        let outcome = scene.client.handle.send(endpoint, b"early");
        scene.expects(outcome == Outcome::Queued, format_args!("a send returned {outcome:?}"));
        scene.until("there", |server, client| {
            server.seen.iter().any(|seen| matches!(seen, Seen::Message(_, _, message) if message == b"early"))
                && client.seen.contains(&Seen::Drained(endpoint))
        });
        let order = [Seen::Connected(endpoint), Seen::Drained(endpoint)];
        scene.expects(scene.client.seen == order, format_args!("the events were {:?}", scene.client.seen));
    }
}

/// A peer that reads nothing costs one queue. Beyond [`Limits::queue`](crate::Limits) sends return
/// [`Full`](Outcome::Full), and `Drained` reports when to continue. Meanwhile the node sleeps.
///
/// # Panics
///
/// If more is accepted, data is lost, `Drained` never comes, or the node does not sleep.
pub fn slow_readers_cost_a_queue(subject: &Subject) {
    for mut scene in subject.scenes("a slow reader costs its queue and no more") {
        let mut limits = subject.limits();
        limits.queue = 100_000;
        scene.client = subject.side(limits);
        let (accepted, endpoint) = scene.connect();
        let mut sent = Vec::new();
        // Repeated, because the kernel's buffers may grow.
        let spent = loop {
            send_until_full(&scene, &mut sent, endpoint);
            let (events, spent) = measure_wait(&mut scene.client, Duration::from_millis(300));
            if events == 0 {
                break spent;
            }
        };
        scene.expects(spent.cpu < IDLE && spent.sleeps < WAKES, format_args!("while it waits it spends {spent:?}"));
        scene.until("drained", |_, client| client.seen.contains(&Seen::Drained(endpoint)));
        let last = pattern(sent.len(), 10_000);
        scene.send(End::Client, endpoint, &last);
        let sent = [sent.concat(), last].concat();
        scene.until("all there", |server, _| server.received(accepted) >= sent.len());
        scene.expects_bytes(End::Server, accepted, &sent);
    }
}

/// Sends until the queue is full, and collects what was accepted.
fn send_until_full(scene: &Scene<'_>, sent: &mut Vec<Vec<u8>>, endpoint: Endpoint) {
    let send = |message: &[u8]| scene.client.handle.send(endpoint, message);
    let full = loop {
        let message = pattern(sent.len(), 10_000);
        match send(&message) {
            Outcome::Sent | Outcome::Queued => {}
            other => break other,
        }
        sent.push(message);
        scene.expects(sent.len() < MOST, format_args!("nobody reads, and it takes everything"));
    };
    scene.expects(full == Outcome::Full, format_args!("a send returned {full:?}"));
    // The last message may exceed the limit, and each has a header. More may have been queued for a moment: the kernel
    // takes some whenever its buffer grows.
    let queued = scene.client.handle.counters_of(endpoint).map_or(0, |counters| counters.queued_bytes);
    scene.expects((1..=115_000).contains(&queued), format_args!("{queued} bytes wait, with a limit of 100000"));
    let second = send(&pattern(0, 10_000));
    scene.expects(second == Outcome::Full, format_args!("after one was refused, a send returned {second:?}"));
}

/// Waits with a node. Returns the number of events, and what its thread spent.
fn measure_wait(side: &mut Side, time: Duration) -> (usize, Usage) {
    let usage = || Usage::of_this_thread().expect("the system reports what a thread has spent");
    let before = usage();
    let events = side.node.poll(Some(time), |_| {}).expect("a node can wait, whatever its peers do");
    (events, usage() - before)
}

/// A paused connection reports nothing, its peer has to wait, the other direction continues, and no
/// data is lost.
///
/// # Panics
///
/// If one of these does not hold.
pub fn paused_connections_lose_nothing(subject: &Subject) {
    const SIZE: usize = 50_000;
    for mut scene in subject.scenes("a paused connection makes its peer wait and loses nothing") {
        let (accepted, endpoint) = scene.connect();
        scene.server.handle.pause(accepted);
        scene.turns();
        let mut sent = Vec::new();
        // Until nothing more is accepted after several turns of both nodes.
        loop {
            let before = sent.len();
            while scene.client.handle.send(endpoint, &pattern(sent.len(), SIZE)).is_accepted() {
                sent.push(pattern(sent.len(), SIZE));
                scene.expects(sent.len() < MOST / 5, format_args!("nobody reads, and it takes everything"));
            }
            if sent.len() == before {
                break;
            }
            scene.turns();
        }
        scene.expects_bytes(End::Server, accepted, &[]);
        scene.send(End::Server, accepted, b"slowly");
        scene.until("an answer", |_, client| client.messages(endpoint).concat() == b"slowly");
        scene.server.handle.resume(accepted);
        let sent = sent.concat();
        scene.until("all there", |server, client| {
            server.received(accepted) >= sent.len() && client.seen.contains(&Seen::Drained(endpoint))
        });
        scene.expects_bytes(End::Server, accepted, &sent);
    }
}

/// A paused connection can be closed: its queue is written, and only `Closed` is reported.
///
/// # Panics
///
/// If this does not hold.
pub fn paused_connections_are_closed(subject: &Subject) {
    for mut scene in subject.scenes("a connection is closed though it is paused") {
        let (accepted, endpoint) = scene.connect();
        scene.server.handle.pause(accepted);
        scene.turns();
        scene.send(End::Client, endpoint, b"unread");
        scene.send(End::Server, accepted, b"last");
        scene.turns();
        scene.server.handle.close(accepted);
        scene.until("closed", |server, client| server.closed(accepted).is_some() && client.closed(endpoint).is_some());
        scene.expects_end(End::Server, accepted, "closed here");
        scene.expects_bytes(End::Client, endpoint, b"last");
        scene.expects_bytes(End::Server, accepted, &[]);
    }
}

/// A paused listener accepts nobody, and after it resumes it accepts the peers that have waited.
///
/// # Panics
///
/// If this does not hold.
pub fn paused_listeners_accept_nobody(subject: &Subject) {
    for mut scene in subject.scenes("a paused listener accepts nobody, and after it resumes those who have waited") {
        let (listener, at) = scene.listen();
        scene.server.handle.pause(listener);
        scene.turns();
        scene.begin(&at);
        scene.turns();
        scene.expects(scene.server.seen.is_empty(), format_args!("the events were {:?}", scene.server.seen));
        scene.server.handle.resume(listener);
        scene.until("accepted", |server, _| !server.accepted(listener).is_empty());
    }
}

/// A paused connection with unread data uses no CPU time.
///
/// # Panics
///
/// If it does.
pub fn pauses_cost_nothing(subject: &Subject) {
    for mut scene in subject.scenes("a pause uses no CPU time") {
        let (accepted, endpoint) = scene.connect();
        scene.server.handle.pause(accepted);
        scene.turns();
        scene.send(End::Client, endpoint, b"unread");
        scene.turns();
        let (events, spent) = measure_wait(&mut scene.server, Duration::from_millis(500));
        scene.expects(events == 0, format_args!("{events} events were reported"));
        scene.expects(spent.cpu < IDLE && spent.sleeps < WAKES, format_args!("it spends {spent:?}"));
    }
}
