//! Peers that violate rules or limits. The other connections must not suffer.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use common::{Seen, Side, address, connected, until};
use estafette_net::{Endpoint, Limits, Outcome};

/// A listener with a well-behaved connection, and the raw socket of a misbehaving peer.
struct Scene {
    server: Side,
    good: (Side, Endpoint, Endpoint),
    peer: TcpStream,
}

impl Scene {
    fn new(scheme: &str, mut limits: Limits) -> Scene {
        // A peer that never ends its direction does not delay a test for longer.
        limits.flush = Duration::from_secs(1);
        let folder = tempfile::tempdir().unwrap();
        let (mut server, mut client) = (Side::with(limits), Side::new());
        let (accepted, endpoint, listener) = connected(&mut server, &mut client, &address(scheme, &folder));
        let port = server.handle.local_address(listener).unwrap().port().unwrap();
        let peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Scene { server, good: (client, endpoint, accepted), peer }
    }

    fn say(&mut self, bytes: &[u8]) {
        self.peer.write_all(bytes).unwrap();
    }

    /// The server's end of the misbehaving peer's connection.
    fn bad(&self) -> Option<Endpoint> {
        self.server.seen.iter().find_map(|seen| match seen {
            Seen::Accepted(endpoint, _) | Seen::Closed(endpoint, _) if *endpoint != self.good.2 => Some(*endpoint),
            _ => None,
        })
    }

    /// The reason why the peer's connection ended.
    fn reason(&mut self) -> String {
        let good = self.good.2;
        self.server.until("closed", |seen| match seen {
            Seen::Closed(which, reason) if *which != good => Some(reason.clone()),
            Seen::AcceptFailed(_, _, reason) => Some(reason.clone()),
            _ => None,
        })
    }

    /// Everything that the peer receives until the end.
    fn answer(&mut self) -> Vec<u8> {
        self.peer.shutdown(Shutdown::Write).unwrap();
        self.peer.set_nonblocking(true).unwrap();
        let (mut answer, mut chunk, begun) = (Vec::new(), [0; 4096], Instant::now());
        loop {
            match self.peer.read(&mut chunk) {
                Ok(0) => return answer,
                Ok(read) => answer.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => self.server.step(),
                Err(error) => panic!("{error}, after {answer:?}"),
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "the connection is never ended");
        }
    }

    /// Checks that the good connection still works.
    fn others_are_unharmed(mut self) {
        let (client, endpoint, accepted) = &mut self.good;
        assert_eq!(client.handle.send(*endpoint, b"still here"), Outcome::Sent);
        until(&mut self.server, client, "still here", |server, _| server.messages(*accepted).concat() == b"still here");
    }
}

const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

#[test]
fn a_frame_over_the_limit_is_rejected_by_its_header() {
    let mut scene = Scene::new("tcp+msg", Limits::default());
    scene.say(&u32::MAX.to_be_bytes());
    assert!(scene.reason().starts_with("a message of 4294967295 bytes exceeds the limit of 16777216 bytes"));
    scene.others_are_unharmed();
}

#[test]
fn another_protocol_is_named_if_its_first_bytes_are_taken_for_a_length() {
    for (said, named) in [(&b"GET / HTTP/1.1\r\n"[..], "HTTP"), (b"\x16\x03\x01\x02\x00\x01", "TLS")] {
        let mut scene = Scene::new("tcp+msg", Limits::default());
        scene.say(said);
        assert!(scene.reason().ends_with(&format!("; the peer may speak {named}")));
        scene.others_are_unharmed();
    }
}

#[test]
fn a_truncated_message_is_reported_as_such() {
    let mut scene = Scene::new("tcp+msg", Limits::default());
    scene.say(b"\0\0\0\x09half");
    scene.peer.shutdown(Shutdown::Both).unwrap();
    assert_eq!(scene.reason(), "ended by the peer in the middle of a message");
    scene.others_are_unharmed();
}

#[test]
fn a_reset_is_reported_in_every_state() {
    for before in [&b""[..], b"\0\0\0\x09half", b"\0\0\0\x04full"] {
        let mut scene = Scene::new("tcp+msg", Limits::default());
        scene.say(before);
        while scene.bad().is_none() {
            scene.server.step();
        }
        // With `SO_LINGER` of 0, closing sends a reset.
        socket2::SockRef::from(&scene.peer).set_linger(Some(Duration::ZERO)).unwrap();
        let another = TcpStream::connect(("127.0.0.1", port(&scene))).unwrap();
        drop(std::mem::replace(&mut scene.peer, another));
        let reason = scene.reason();
        assert!(reason.contains("reset"), "{reason}");
        scene.others_are_unharmed();
    }
}

fn port(scene: &Scene) -> u16 {
    let listener = scene.server.seen.iter().find_map(|seen| match seen {
        Seen::Accepted(_, listener) => Some(*listener),
        _ => None,
    });
    scene.server.handle.local_address(listener.unwrap()).unwrap().port().unwrap()
}

#[test]
fn a_peer_without_a_websocket_handshake_gets_an_explanation() {
    let mut scene = Scene::new("ws", Limits::default());
    scene.say(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    let answer = String::from_utf8(scene.answer()).unwrap();
    assert!(answer.starts_with("HTTP/1.1 426 Upgrade Required\r\n") && answer.contains("connect by ws://"), "{answer}");
    assert!(scene.reason().starts_with("WebSocket handshake: "));
    scene.others_are_unharmed();
}

#[test]
fn an_invalid_frame_is_answered_with_its_close_code() {
    for (frame, code, reason) in [
        (&b"\x82\x01x"[..], 1002_u16, "WebSocket protocol: a client must mask its frames"),
        (b"\x81\x81\0\0\0\0\xff", 1007, "WebSocket protocol: text that is not UTF-8"),
        (b"\x82\xff\0\0\0\0\xff\0\0\0\0\0\0\0", 1009, "a message of 4278190080 bytes"),
        (b"\x80\x80\0\0\0\0", 1002, "WebSocket protocol: a continuation where nothing was begun"),
    ] {
        let mut scene = Scene::new("ws", Limits::default());
        scene.say(&[UPGRADE, frame].concat());
        let answer = scene.answer();
        assert!(answer.ends_with(&[&[0x88, 2][..], &code.to_be_bytes()].concat()), "{answer:?}");
        assert!(scene.reason().starts_with(reason));
        scene.others_are_unharmed();
    }
}

#[test]
fn a_closing_frame_is_answered_and_its_code_reported() {
    let mut scene = Scene::new("ws", Limits::default());
    scene.say(&[UPGRADE, b"\x88\x85\0\0\0\0\x0b\xb8bye"].concat());
    assert!(scene.answer().ends_with(&[0x88, 2, 0x0b, 0xb8]));
    assert_eq!(scene.reason(), "closed by the peer: 3000: bye");
    scene.others_are_unharmed();
}

#[test]
fn pings_are_answered_and_a_flood_of_them_costs_one_queue_at_most() {
    let mut limits = Limits::default();
    limits.queue = 10_000;
    let mut scene = Scene::new("ws", limits);
    scene.say(&[UPGRADE, b"\x89\x83\0\0\0\0abc"].concat());
    let flood = b"\x89\xfd\0\0\0\0".iter().copied().chain([7; 125]).collect::<Vec<u8>>().repeat(1000);
    scene.peer.set_nonblocking(true).unwrap();
    let (mut sent, begun) = (0, Instant::now());
    while sent < 50 << 20 && begun.elapsed() < Duration::from_secs(10) {
        let at = sent % flood.len();
        match scene.peer.write(&flood[at..]) {
            Ok(written) => sent += written,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => scene.server.step(),
            Err(error) => panic!("{error}"),
        }
    }
    let answer = scene.answer();
    assert!(answer.windows(5).any(|bytes| bytes == b"\x8a\x03abc"));
    scene.others_are_unharmed();
}

#[test]
fn of_many_pings_at_once_the_first_64_and_the_last_are_answered() {
    let mut scene = Scene::new("ws", Limits::default());
    // All of them have arrived before the node reads.
    let ping = |number| [0x89, 0x81, 0, 0, 0, 0, number];
    let message = [0x82, 0x80, 0, 0, 0, 0];
    let pings: Vec<u8> = (0..200_u8).flat_map(|number| ping(number).into_iter().chain(message)).collect();
    scene.say(&[UPGRADE, &pings].concat());
    let answer = scene.answer();
    let pongs: Vec<u8> =
        answer.windows(3).filter(|bytes| bytes.starts_with(b"\x8a\x01")).map(|bytes| bytes[2]).collect();
    assert_eq!(pongs, (0..64).chain([199]).collect::<Vec<u8>>());
    scene.others_are_unharmed();
}

#[test]
fn a_peer_that_misses_a_deadline_is_disconnected() {
    let mut limits = Limits::default();
    limits.handshake = Duration::from_secs(1);
    limits.message_timeout = Duration::from_secs(1);
    let mut scene = Scene::new("ws", limits.clone());
    scene.say(&UPGRADE[..50]);
    assert_eq!(scene.reason(), "timed out before the connection was open");
    #[cfg(feature = "tls")]
    assert_eq!(Scene::new("tls", limits.clone()).reason(), "timed out before the connection was open");
    let mut scene = Scene::new("tcp+msg", limits);
    scene.say(b"\0\0\0\x09half");
    assert_eq!(scene.reason(), "a message was not complete in time");
    scene.others_are_unharmed();
}

#[test]
fn an_idle_peer_is_disconnected_if_the_limit_is_set() {
    let mut limits = Limits::default();
    limits.idle = Some(Duration::from_millis(500));
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = (Side::with(limits), Side::new());
    let (accepted, endpoint, _) = connected(&mut server, &mut client, &address("ws", &folder));
    assert_eq!(server.until_closed(accepted), "idle for too long");
    assert_eq!(client.until_closed(endpoint), "closed by the peer: 1008");
}

#[test]
fn incomplete_messages_of_all_peers_together_are_bounded() {
    let mut limits = Limits::default();
    limits.unfinished = 1 << 20;
    let mut scene = Scene::new("tcp+msg", limits);
    let begun = [&(16_u32 << 20).to_be_bytes()[..], &[0; 4 << 20]].concat();
    scene.peer.set_nonblocking(true).unwrap();
    let mut sent = 0;
    let reason = loop {
        match scene.peer.write(&begun[sent..]) {
            Ok(written) => sent += written,
            Err(_) => scene.server.step(),
        }
        if sent == begun.len() || scene.server.seen.iter().any(|seen| matches!(seen, Seen::Closed(..))) {
            break scene.reason();
        }
    };
    assert_eq!(reason, "the incomplete messages of all peers exceed Limits::unfinished");
    scene.others_are_unharmed();
}

#[test]
fn connections_over_the_limit_wait_until_another_ends() {
    let mut limits = Limits::default();
    // The good connection, and the connection of the scene's peer.
    limits.connections = 2;
    let mut scene = Scene::new("tcp+msg", limits);
    while scene.bad().is_none() {
        scene.server.step();
    }
    let mut waiting = TcpStream::connect(("127.0.0.1", port(&scene))).unwrap();
    waiting.write_all(b"\0\0\0\x04late").unwrap();
    for _ in 0..50 {
        scene.server.step();
    }
    assert_eq!(scene.server.seen.iter().filter(|seen| matches!(seen, Seen::Accepted(..))).count(), 2);
    scene.peer.shutdown(Shutdown::Both).unwrap();
    assert_eq!(scene.reason(), "ended by the peer");
    scene
        .server
        .until("accepted", |seen| matches!(seen, Seen::Message(_, _, message) if message == b"late").then_some(()));
    scene.others_are_unharmed();
}
