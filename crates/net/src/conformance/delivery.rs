//! Checks of delivery: every byte arrives, messages are complete and in order, whichever thread
//! sends.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use super::Subject;
use super::scene::{End, Scene, pattern};
use crate::{Address, Event, Handle, Outcome};

/// Everything that is sent arrives, in order, and nothing else.
///
/// # Panics
///
/// If it does not.
pub fn streams_keep_every_byte(subject: &Subject) {
    for mut scene in subject.scenes("every byte arrives, in order") {
        let (accepted, endpoint) = scene.connect();
        let sent: Vec<_> = (0..50).map(|i| pattern(i, i * 4321)).collect();
        scene.send_all(End::Client, endpoint, &sent);
        let sent = sent.concat();
        scene.until("all there", |server, _| server.received(accepted) >= sent.len());
        scene.expects_bytes(End::Server, accepted, &sent);
    }
}

/// A stream is delivered in records of one length if [`Options::records`](crate::Options::records)
/// asks for it; an end in the middle of a record is reported as such. Schemes with message framing
/// are not checked.
///
/// # Panics
///
/// If this does not hold.
pub fn streams_are_told_in_records(subject: &Subject) {
    for length in [1, 7, 1000, 150_000] {
        for mut scene in subject.scenes("a stream is delivered in records").filter(Scene::is_stream) {
            scene.options.0.records = Some(length);
            let (accepted, endpoint) = scene.connect();
            let sent = pattern(length, 20 * length + length / 2);
            for piece in sent.chunks(length / 3 + 10) {
                scene.send_all(End::Client, endpoint, &[piece.to_vec()]);
                scene.server.step();
            }
            scene.client.handle.close(endpoint);
            scene.until("closed", |server, _| server.closed(accepted).is_some());
            let records: Vec<_> = sent.chunks_exact(length).map(<[u8]>::to_vec).collect();
            scene.expects_messages(End::Server, accepted, &records);
            let how = if length == 1 { "" } else { " in the middle of a message" };
            scene.expects_end(End::Server, accepted, &format!("ended by the peer{how}"));
        }
    }
}

/// Messages of any length, from 0 to 16 MiB, arrive complete and in order, in both directions.
///
/// # Panics
///
/// If they do not.
pub fn messages_are_whole_and_in_order(subject: &Subject) {
    let mut scene = subject.scene("messages arrive whole and in order, in both directions");
    let (accepted, endpoint) = scene.connect();
    let sizes =
        [0, 1, 125, 126, 1000, 65_507, 65_535, 65_536, 200_000, 131_072, 131_073, 262_144, 1 << 20, 16 << 20, 3];
    let messages = |seed: usize| sizes.iter().enumerate().map(move |(i, len)| pattern(seed + i, *len));
    let (forward, reply): (Vec<_>, Vec<_>) = (messages(0).collect(), messages(100).collect());
    scene.send_all(End::Client, endpoint, &forward);
    scene.send_all(End::Server, accepted, &reply);
    scene.until("all there", |server, client| {
        server.messages(accepted).len() >= forward.len() && client.messages(endpoint).len() >= reply.len()
    });
    scene.expects_messages(End::Server, accepted, &forward);
    scene.expects_messages(End::Client, endpoint, &reply);
}

/// Messages that arrive in pieces, alternating between two connections, are put together. The start
/// of an incomplete message in the shared buffer survives a read of the other connection.
///
/// The client writes the frames itself, over the transport without framing. WebSockets are not
/// checked.
///
/// # Panics
///
/// If they are not.
pub fn pieces_of_messages_are_put_together(subject: &Subject) {
    let mut scene = subject.scene("messages that come piece by piece are put together");
    if scene.is_websocket() {
        return;
    }
    let (listener, at) = scene.listen();
    let unframed = unframed(&scene, &at);
    let peers = [scene.begin(&unframed), scene.begin(&unframed)];
    scene.until("two accepted", |server, _| server.accepted(listener).len() == peers.len());
    // Lengths for the shared buffer, and for memory of their own.
    let sent = [1, 40, 5_000, 120_000, 140_000, 400_000].map(|size| pattern(size, size));
    let framed: Vec<u8> = sent.iter().flat_map(|m| [&(m.len() as u32).to_be_bytes()[..], m].concat()).collect();
    for piece in framed.chunks(7_001) {
        for peer in peers {
            scene.send_all(End::Client, peer, &[piece.to_vec()]);
            scene.server.step();
        }
    }
    let accepted = scene.server.accepted(listener);
    scene.until("all messages", |server, _| {
        accepted.iter().all(|endpoint| server.messages(*endpoint).len() >= sent.len())
    });
    for endpoint in accepted {
        scene.expects_messages(End::Server, endpoint, &sent);
    }
}

/// The address of the same listener without message framing.
fn unframed(scene: &Scene<'_>, at: &Address) -> Address {
    let address = at.to_string().replacen("+msg://", "://", 1).parse();
    address.unwrap_or_else(|error| scene.broken(format_args!("the listener's address is {at}: {error}")))
}

/// Messages that several threads send to one endpoint do not interleave, and those of one thread
/// keep their order.
///
/// # Panics
///
/// If they do not.
pub fn threads_do_not_interleave(subject: &Subject) {
    const THREADS: usize = 4;
    const EACH: usize = 200;
    let message =
        |thread: usize, i: usize| [&[thread as u8, i as u8], &pattern(thread * 1000 + i, 1 + i * 97)[..]].concat();
    let mut scene = subject.scene("the messages of threads that send at once do not interleave");
    let (accepted, endpoint) = scene.connect();
    for thread in 0..THREADS {
        let handle = scene.client.handle.clone();
        // If the check fails, the node is dropped; sends are then rejected and the thread ends.
        thread::spawn(move || {
            for i in 0..EACH {
                while handle.send(endpoint, &message(thread, i)) == Outcome::Full {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        });
    }
    scene.until("all there", |server, _| server.messages(accepted).len() >= THREADS * EACH);
    let mut next = [0; THREADS];
    for seen in scene.server.messages(accepted) {
        let thread = seen.first().map_or(THREADS, |thread| usize::from(*thread));
        let Some(next) = next.get_mut(thread) else {
            scene.broken(format_args!("a message of {} bytes came that nobody sent", seen.len()))
        };
        scene.expects(*seen == message(thread, *next), format_args!("message {next} of thread {thread} is another"));
        *next += 1;
    }
}

/// Two nodes that reply to every message in bulk, from their callbacks, do not deadlock.
///
/// # Panics
///
/// If they do.
pub fn nodes_that_send_from_callbacks_go_on(subject: &Subject) {
    let mut scene = subject.scene("two nodes that send in bulk from their callbacks do not wait for each other");
    let (accepted, endpoint) = scene.connect();
    // Each message circulates until there have been 500 receptions.
    let mut waiting = [VecDeque::new(), VecDeque::from_iter((0..20).map(|i| pattern(i, 300_000)))];
    let (mut rounds, begun) = (0, Instant::now());
    while rounds < 500 {
        for ((side, to), waiting) in
            [(&mut scene.server, accepted), (&mut scene.client, endpoint)].into_iter().zip(&mut waiting)
        {
            let handle: Handle<u32> = side.handle.clone();
            let send = |waiting: &mut VecDeque<Vec<u8>>| {
                while waiting.front().is_some_and(|message| handle.send(to, message).is_accepted()) {
                    waiting.pop_front();
                }
            };
            send(waiting);
            let polled = side.node.poll(Some(Duration::from_millis(1)), |event| {
                if let Event::Message(from, message) = event
                    && from == to
                {
                    rounds += 1;
                    waiting.push_back(message.take());
                    send(waiting);
                }
            });
            polled.expect("a node can wait, whatever its peers do");
        }
        scene.expects(begun.elapsed() < subject.patience, format_args!("after {rounds} messages of 500 none came"));
    }
}
