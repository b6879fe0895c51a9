//! What every transport does alike.

mod common;

use std::collections::VecDeque;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::usage::Usage;
use common::{Seen, Side, address, connected, until};
use estafette_net::{Endpoint, Event, Kind, Limits, Options, Outcome};

const STREAMS: &[&str] =
    if cfg!(feature = "tls") { &["tcp", "unix", "inproc", "tls"] } else { &["tcp", "unix", "inproc"] };
const MESSAGES: &[&str] = if cfg!(feature = "tls") {
    &["tcp+msg", "unix+msg", "inproc+msg", "ws", "tls+msg", "wss"]
} else {
    &["tcp+msg", "unix+msg", "inproc+msg", "ws"]
};

fn all_streams() -> impl Iterator<Item = &'static str> {
    STREAMS.iter().chain(MESSAGES).copied()
}

/// Bytes that differ from place to place and from message to message.
fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31) ^ (i >> 8) ^ seed.wrapping_mul(7)) as u8).collect()
}

/// Sends everything, stepping both sides where there is no room.
fn send_all(from: &mut Side, to: &mut Side, endpoint: Endpoint, messages: &[Vec<u8>]) {
    for message in messages {
        loop {
            let drained = from.seen.iter().filter(|seen| **seen == Seen::Drained(endpoint)).count();
            match from.handle.send(endpoint, message) {
                Outcome::Sent | Outcome::Queued => break,
                Outcome::Full => until(from, to, "room", |from, _| {
                    from.seen.iter().filter(|seen| **seen == Seen::Drained(endpoint)).count() > drained
                }),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn messages_arrive_whole_and_in_order_in_both_directions() {
    for scheme in MESSAGES.iter().copied() {
        let folder = tempfile::tempdir().unwrap();
        let (mut server, mut client) = (Side::new(), Side::new());
        let (accepted, endpoint, _) = connected(&mut server, &mut client, &address(scheme, &folder));
        let sizes =
            [0, 1, 125, 126, 1000, 65_507, 65_535, 65_536, 200_000, 131_072, 131_073, 262_144, 1 << 20, 16 << 20, 3];
        let there: Vec<_> = sizes.iter().enumerate().map(|(i, len)| pattern(i, *len)).collect();
        let back: Vec<_> = sizes.iter().enumerate().map(|(i, len)| pattern(i + 100, *len)).collect();
        send_all(&mut client, &mut server, endpoint, &there);
        send_all(&mut server, &mut client, accepted, &back);
        until(&mut server, &mut client, "all there", |server, client| {
            server.messages(accepted).len() == there.len() && client.messages(endpoint).len() == back.len()
        });
        assert!(server.messages(accepted) == there, "{scheme}");
        assert!(client.messages(endpoint) == back, "{scheme}");
    }
}

#[test]
fn messages_that_come_piece_by_piece_at_two_connections_by_turns_are_whole() {
    let mut server = Side::new();
    let listener = server.handle.listen("tcp+msg://127.0.0.1:0").unwrap();
    let port = server.handle.local_address(listener).unwrap().port().unwrap();
    let mut peers = [0, 1].map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap());
    // In the shared buffer, and in memory of their own.
    let sizes = [1, 40, 5_000, 120_000, 140_000, 400_000];
    let sent: Vec<_> = sizes.iter().map(|size| pattern(*size, *size)).collect();
    let framed: Vec<u8> = sent.iter().flat_map(|m| [&(m.len() as u32).to_be_bytes()[..], m].concat()).collect();
    for piece in framed.chunks(7_001) {
        for peer in &mut peers {
            peer.write_all(piece).unwrap();
            server.step();
        }
    }
    server.step_until("all messages", |seen| {
        seen.iter().filter(|seen| matches!(seen, Seen::Message(..))).count() == 2 * sent.len()
    });
    let accepted: Vec<_> = server
        .seen
        .iter()
        .filter_map(|seen| match seen {
            Seen::Accepted(endpoint, _) => Some(*endpoint),
            _ => None,
        })
        .collect();
    for endpoint in accepted {
        assert!(server.messages(endpoint).iter().eq(sent.iter()), "{endpoint:?}");
    }
}

#[test]
fn a_stream_is_told_in_records_where_that_is_asked_for() {
    for len in [1, 7, 1000, 150_000] {
        let mut server = Side::new();
        let options = Options::default().records(len);
        let listener = server.handle.listen_with("tcp://127.0.0.1:0", &options).unwrap();
        let port = server.handle.local_address(listener).unwrap().port().unwrap();
        let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let sent = pattern(len, 20 * len + len / 2);
        for piece in sent.chunks(len / 3 + 10) {
            peer.write_all(piece).unwrap();
            server.step();
        }
        drop(peer);
        let closed = |seen: &[Seen]| matches!(seen.last(), Some(Seen::Closed(..)));
        server.step_until("closed", closed);
        let Some(Seen::Closed(endpoint, reason)) = server.seen.last().cloned() else { unreachable!() };
        assert!(server.messages(endpoint).into_iter().eq(sent.chunks_exact(len)), "records of {len}");
        assert_eq!(reason.contains("middle"), len / 2 > 0, "{reason}");
    }
    let refused = Side::new().handle.connect_with("tcp://127.0.0.1:1", &Options::default().records(0)).unwrap_err();
    assert!(refused.to_string().contains("records of 0 bytes"), "{refused}");
}

#[test]
fn streams_keep_every_byte() {
    for scheme in STREAMS.iter().copied() {
        let folder = tempfile::tempdir().unwrap();
        let (mut server, mut client) = (Side::new(), Side::new());
        let (accepted, endpoint, _) = connected(&mut server, &mut client, &address(scheme, &folder));
        let sent: Vec<_> = (0..50).map(|i| pattern(i, i * 4321)).collect();
        send_all(&mut client, &mut server, endpoint, &sent);
        let sent = sent.concat();
        until(&mut server, &mut client, "all there", |server, _| {
            server.messages(accepted).concat().len() >= sent.len()
        });
        assert!(server.messages(accepted).concat() == sent, "{scheme}");
    }
}

#[test]
fn datagrams_are_answered_where_they_came_from() {
    let (mut server, mut client) = (Side::new(), Side::new());
    let listener = server.handle.listen("udp://127.0.0.1:0").unwrap();
    let endpoint = client.handle.connect(server.handle.local_address(listener).unwrap()).unwrap();
    for len in [0, 1, 1000, 65_507] {
        assert_eq!(client.handle.send(endpoint, &pattern(len, len)), Outcome::Sent);
        server.seen.clear();
        let (from, message) = server.until("a datagram", |seen| match seen {
            Seen::Message(from, _, message) => Some((*from, message.clone())),
            _ => None,
        });
        assert!(from.remote().is_some() && message == pattern(len, len));
        assert_eq!(server.handle.send(from, &message), Outcome::Sent);
        client.seen.clear();
        let back = client.until("an answer", |seen| match seen {
            Seen::Message(from, _, message) if *from == endpoint => Some(message.clone()),
            _ => None,
        });
        assert_eq!(back, message);
    }
    assert_eq!(client.handle.send(endpoint, &[0; 65_508]), Outcome::TooLarge);
}

#[test]
fn datagrams_of_a_batch_keep_their_bounds_whatever_their_lengths() {
    let (mut server, client) = (Side::new(), Side::new());
    let listener = server.handle.listen("udp://127.0.0.1:0").unwrap();
    let address = server.handle.local_address(listener).unwrap();
    // Runs of one length, longer than what the system takes at once, a shorter one behind, none alike, and nothing at all.
    // All of it fits into the receiver's buffer.
    let lengths = [vec![40; 70], vec![7], (1..20).collect(), vec![0, 0], vec![1400; 3], vec![20_000], vec![3]].concat();
    let sent: Vec<_> = (0..).zip(&lengths).map(|(seed, len)| pattern(seed, *len)).collect();
    for connected in [true, false] {
        let options = Options::default().broadcast(!connected);
        let to = client.handle.connect_with(&address, &options).unwrap();
        let mut batch = client.handle.batch(to);
        assert!(sent.iter().all(|datagram| batch.push(datagram).taken()));
        assert_eq!(batch.flush(), Outcome::Sent);
        server.seen.clear();
        let arrived = |seen: &[Seen]| {
            let messages = seen.iter().filter_map(|seen| match seen {
                Seen::Message(_, _, message) => Some(message.clone()),
                _ => None,
            });
            messages.collect::<Vec<_>>()
        };
        server.step_until("all datagrams", |seen| arrived(seen).len() == sent.len());
        assert_eq!(arrived(&server.seen), sent);
        client.handle.close(to);
    }
}

#[test]
fn what_was_taken_is_written_before_a_connection_is_closed() {
    for scheme in all_streams() {
        let folder = tempfile::tempdir().unwrap();
        let (mut server, mut client) = (Side::new(), Side::new());
        let (accepted, endpoint, _) = connected(&mut server, &mut client, &address(scheme, &folder));
        let sent = pattern(1, 8 << 20);
        assert_eq!(client.handle.send(endpoint, &sent), Outcome::Queued, "{scheme}");
        client.handle.close(endpoint);
        until(&mut client, &mut server, "both closed", |client, server| {
            client.seen.iter().any(|seen| matches!(seen, Seen::Closed(which, _) if *which == endpoint))
                && server.seen.iter().any(|seen| matches!(seen, Seen::Closed(which, _) if *which == accepted))
        });
        assert!(server.messages(accepted).concat() == sent, "{scheme}");
        assert_eq!(client.until_closed(endpoint), "closed here");
        let told = server.until_closed(accepted);
        assert_eq!(told, if scheme.starts_with("ws") { "closed by the peer: 1000" } else { "ended by the peer" });
        assert_eq!(client.handle.send(endpoint, b"late"), Outcome::Closed);
    }
}

#[test]
fn a_slow_reader_costs_its_queue_and_no_more() {
    for scheme in all_streams() {
        let folder = tempfile::tempdir().unwrap();
        let mut limits = Limits::default();
        limits.queue = 100_000;
        let (mut server, mut client) = (Side::new(), Side::with(limits));
        let (accepted, endpoint, _) = connected(&mut server, &mut client, &address(scheme, &folder));
        let mut sent = Vec::new();
        // Again and again, as long as the system's own buffers grow.
        let spent = loop {
            let mut queued = 0;
            let full = loop {
                let message = pattern(sent.len(), 10_000);
                match client.handle.send(endpoint, &message) {
                    Outcome::Sent => {}
                    Outcome::Queued => queued += message.len(),
                    other => break other,
                }
                sent.push(message);
                assert!(sent.len() < 100_000, "{scheme}: it takes everything");
            };
            assert_eq!(full, Outcome::Full);
            assert!(queued <= 110_000, "{scheme}: {queued} bytes wait");
            assert_eq!(client.handle.send(endpoint, &pattern(0, 10_000)), Outcome::Full);
            let before = Usage::of_this_thread().unwrap();
            if client.node.poll(Some(Duration::from_millis(300)), |_| {}).unwrap() == 0 {
                break Usage::of_this_thread().unwrap() - before;
            }
        };
        assert!(spent.cpu < Duration::from_millis(50) && spent.sleeps < 20, "{scheme}: {spent:?}");
        until(&mut server, &mut client, "drained", |_, client| client.seen.contains(&Seen::Drained(endpoint)));
        let message = pattern(sent.len(), 10_000);
        assert!(client.handle.send(endpoint, &message).taken());
        sent.push(message);
        let sent = sent.concat();
        until(&mut server, &mut client, "all there", |server, _| {
            server.messages(accepted).concat().len() >= sent.len()
        });
        assert!(server.messages(accepted).concat() == sent, "{scheme}");
    }
}

#[test]
fn what_is_sent_before_the_connection_is_there_waits_for_it() {
    for scheme in all_streams() {
        let folder = tempfile::tempdir().unwrap();
        let (mut server, mut client) = (Side::new(), Side::new());
        let (ours, theirs) = common::options();
        let listener = server.handle.listen_with(address(scheme, &folder).as_str(), &ours).unwrap();
        let at = server.handle.local_address(listener).unwrap();
        let endpoint = client.handle.connect_with(&at, &theirs).unwrap();
        assert_eq!(client.handle.send(endpoint, b"early"), Outcome::Queued);
        until(&mut server, &mut client, "there", |server, client| {
            server.seen.iter().any(|seen| matches!(seen, Seen::Message(_, _, message) if message == b"early"))
                && client.seen.contains(&Seen::Drained(endpoint))
        });
        let at = |pick: fn(&Seen) -> bool| client.seen.iter().position(pick);
        assert!(
            at(|seen| matches!(seen, Seen::Connected(_))) < at(|seen| matches!(seen, Seen::Drained(_))),
            "{scheme}"
        );
    }
}

#[test]
fn threads_that_send_at_once_never_interleave() {
    for scheme in MESSAGES.iter().copied() {
        let folder = tempfile::tempdir().unwrap();
        let (mut server, mut client) = (Side::new(), Side::new());
        let (accepted, endpoint, _) = connected(&mut server, &mut client, &address(scheme, &folder));
        let (threads, each) = (4_usize, 200);
        let senders: Vec<_> = (0..threads)
            .map(|thread| {
                let handle = client.handle.clone();
                std::thread::spawn(move || {
                    for i in 0..each {
                        let message = [vec![thread as u8, i as u8], pattern(thread * 1000 + i, 1 + i * 97)].concat();
                        while handle.send(endpoint, &message) == Outcome::Full {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                    }
                })
            })
            .collect();
        until(&mut server, &mut client, "all there", |server, _| server.messages(accepted).len() == threads * each);
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        let mut next = vec![0; threads];
        for message in server.messages(accepted) {
            let (thread, i) = (usize::from(message[0]), usize::from(message[1]));
            assert_eq!(i, next[thread], "{scheme}: the messages of one thread keep their order");
            next[thread] += 1;
            assert!(message[2..] == pattern(thread * 1000 + i, 1 + i * 97), "{scheme}");
        }
    }
}

#[test]
fn two_nodes_that_send_in_bulk_from_their_callbacks_never_wait_for_each_other() {
    for scheme in MESSAGES.iter().copied() {
        let folder = tempfile::tempdir().unwrap();
        let (mut server, mut client) = (Side::new(), Side::new());
        let (accepted, endpoint, _) = connected(&mut server, &mut client, &address(scheme, &folder));
        // Every message is answered by itself, and goes round until there have been enough.
        let mut waiting = [VecDeque::new(), VecDeque::from_iter((0..20).map(|i| pattern(i, 300_000)))];
        let (mut rounds, begun) = (0, Instant::now());
        while rounds < 500 {
            for ((side, to), waiting) in
                [(&mut server, accepted), (&mut client, endpoint)].into_iter().zip(&mut waiting)
            {
                let handle = side.handle.clone();
                let send = |waiting: &mut VecDeque<Vec<u8>>| {
                    while waiting.front().is_some_and(|message| handle.send(to, message).taken()) {
                        waiting.pop_front();
                    }
                };
                send(waiting);
                let tell = |event: Event<'_, u32>| {
                    if let Event::Message(from, message) = event {
                        assert_eq!(from, to);
                        rounds += 1;
                        waiting.push_back(message.take());
                        send(waiting);
                    }
                };
                side.node.poll(Some(Duration::from_millis(1)), tell).unwrap();
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{scheme}: {rounds} rounds only");
        }
    }
}

#[test]
fn a_websocket_tells_text_from_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = (Side::new(), Side::new());
    let (accepted, endpoint, _) = connected(&mut server, &mut client, &address("ws", &folder));
    assert_eq!(client.handle.send_text(endpoint, "grün"), Outcome::Sent);
    assert_eq!(server.handle.send(accepted, b"\xff"), Outcome::Sent);
    let text = Seen::Message(accepted, Kind::Text, "grün".as_bytes().to_vec());
    let bytes = Seen::Message(endpoint, Kind::Binary, vec![0xff]);
    until(&mut server, &mut client, "both", |server, client| {
        server.seen.contains(&text) && client.seen.contains(&bytes)
    });
}

#[test]
fn nobody_listening_is_told_as_not_connected() {
    let folder = tempfile::tempdir().unwrap();
    for scheme in ["tcp", "tcp+msg", "ws"] {
        let (mut server, mut client) = (Side::new(), Side::new());
        let listener = server.handle.listen(address(scheme, &folder).as_str()).unwrap();
        let at = server.handle.local_address(listener).unwrap();
        server.handle.close(listener);
        assert_eq!(server.until_closed(listener), "closed here");
        let endpoint = client.handle.connect(&at).unwrap();
        let reason = client.until_closed(endpoint);
        assert!(reason.starts_with("not connected: Connection refused"), "{reason}");
    }
    let error = Side::new().handle.connect(address("inproc", &folder).as_str()).unwrap_err().to_string();
    assert!(error.contains("inproc://") && error.contains("nobody in this process listens"), "{error}");
    let error = Side::new().handle.connect(address("unix", &folder).as_str()).unwrap_err().to_string();
    assert!(error.contains("unix://") && error.contains("No such file"), "{error}");
}
