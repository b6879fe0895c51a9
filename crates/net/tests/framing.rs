//! The framing of `+msg` as docs/framing.md specifies it: a client in Python that was written from
//! that page, and the bytes on the wire.

mod common;

use std::env;
use std::io::{Read, Write, stderr};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{PATIENCE, Seen, Side};
use estafette_net::{Event, Node};

/// Runs the client against a server that echoes. Returns how many messages arrived, and why the
/// connection ended. `None` if there is no Python.
fn run(what: &str) -> Option<(usize, String)> {
    let mut node = Node::<()>::new().unwrap();
    let handle = node.handle();
    let listener = handle.listen("tcp+msg://127.0.0.1:0").unwrap();
    let port = handle.local_address(listener).unwrap().port().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/framing.py");
    let mut child = match Command::new("python3").arg(script).args([&port.to_string(), what]).spawn() {
        Ok(child) => child,
        Err(error) => {
            assert!(env::var("ESTAFETTE_PEERS").as_deref() != Ok("required"), "python3: {error}");
            // Written directly: the test harness shows macro output of failed tests only.
            stderr().write_all(b"skipped: python3 is not here\n").unwrap();
            return None;
        }
    };
    let (mut messages, mut reason, begun) = (0, None, Instant::now());
    loop {
        node.poll(Some(Duration::from_millis(1)), |event| match event {
            Event::Message(from, message) => {
                messages += 1;
                // All of them are less than a queue holds.
                assert!(handle.send(from, &message).is_accepted());
            }
            Event::Closed { reason: why, .. } => reason = Some(why.to_string()),
            _ => {}
        })
        .unwrap();
        let status = child.try_wait().unwrap();
        assert!(status.is_none_or(|status| status.success()), "it says above what is wrong; {reason:?}");
        match reason.take() {
            Some(reason) if status.is_some() => return Some((messages, reason)),
            other => reason = other,
        }
        assert!(begun.elapsed() < PATIENCE, "it never ends: {reason:?}");
    }
}

#[test]
fn a_client_written_from_the_page_talks_to_our_server() {
    let Some(found) = run("talk") else { return };
    assert_eq!(found, (1004, "ended by the peer".to_owned()));
}

#[test]
fn a_message_that_is_cut_off_is_told_from_an_orderly_end() {
    let Some(found) = run("truncate") else { return };
    assert_eq!(found, (0, "ended by the peer in the middle of a message".to_owned()));
}

#[test]
fn a_length_over_the_limit_ends_the_connection_without_a_reply() {
    let Some((messages, reason)) = run("exceed") else { return };
    assert_eq!(messages, 0);
    assert!(reason.contains("a message of 16777217 bytes exceeds the limit of 16777216 bytes"), "{reason}");
}

#[test]
fn the_bytes_on_the_wire_are_those_of_the_page() {
    let mut side = Side::new();
    let listener = side.handle.listen("tcp+msg://127.0.0.1:0").unwrap();
    let port = side.handle.local_address(listener).unwrap().port().unwrap();
    let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
    side.step_until("accepted", |seen| seen.iter().any(|seen| matches!(seen, Seen::Accepted(..))));
    let to = side.accepted(listener)[0];
    assert!(side.handle.send(to, b"hello").is_accepted());
    assert!(side.handle.send(to, b"").is_accepted());
    let mut bytes = [0; 13];
    peer.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, *b"\0\0\0\x05hello\0\0\0\0");
    // Something else than this framing, which begins with too great a length.
    peer.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let reason = side.until_closed(to);
    assert!(reason.contains("1195725856"), "{reason}");
}
