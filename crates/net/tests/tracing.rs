//! What a node says by `tracing`, and what it must not say.
#![cfg(feature = "tracing")]

mod common;

use std::fmt::{Debug, Write};
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Seen, Side, address, connected, until};
use estafette_net::{Close, Limits, Options, Outcome, Reconnect};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Metadata, Subscriber};

/// Keeps all events as lines: level, message, and fields.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    /// Collects the events of this thread from now on.
    fn collect() -> (Lines, DefaultGuard) {
        let lines = Lines::default();
        (lines.clone(), tracing::subscriber::set_default(lines))
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// The events whose message begins like this.
    fn of(&self, message: &str) -> Vec<String> {
        let mut all = self.all();
        all.retain(|line| line.split_once(' ').is_some_and(|(_, rest)| rest.starts_with(message)));
        all
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "estafette_net"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.0.lock().unwrap().push(format!("{} {}{}", event.metadata().level(), line.message, line.fields));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => write!(self.fields, " {name}={value:?}").unwrap(),
        }
    }
}

#[test]
fn a_session_says_who_connects_and_how_it_ends_and_nothing_that_was_sent() {
    let (lines, _guard) = Lines::collect();
    let (mut server, mut client) = (Side::new(), Side::new());
    let listener = server.handle.listen("ws://127.0.0.1:0").unwrap();
    let port = server.handle.local_address(listener).unwrap().port().unwrap();
    let options = Options::default().header("Authorization", "Bearer s3cret");
    let endpoint = client.handle.connect_with(format!("ws://127.0.0.1:{port}/s3cret?t=s3cret"), &options).unwrap();
    until(&mut server, &mut client, "open", |server, client| {
        client.seen.contains(&Seen::Connected(endpoint)) && !server.accepted(listener).is_empty()
    });
    let accepted = server.accepted(listener)[0];
    let before = lines.all().len();
    for _ in 0..100 {
        assert!(client.handle.send(endpoint, b"s3cret").is_accepted());
    }
    until(&mut server, &mut client, "received", |server, _| server.received(accepted) == 600);
    assert_eq!(lines.all().len(), before, "a message said something");
    client.handle.close_with(endpoint, &Close { code: Some(4000), reason: "s3cret".to_owned() }).unwrap();
    until(&mut server, &mut client, "closed", |server, client| {
        server.closed(accepted).is_some() && client.closed(endpoint).is_some()
    });
    assert_eq!(
        lines.of("listening"),
        [format!("INFO listening endpoint={listener:?} address=\"ws://127.0.0.1:{port}\"")]
    );
    let connecting = format!("DEBUG connecting endpoint={endpoint:?} address=\"ws://127.0.0.1:{port}\"");
    assert_eq!(lines.of("connecting"), [connecting]);
    assert_eq!(lines.of("connected"), [format!("DEBUG connected endpoint={endpoint:?}")]);
    let of_accepted = lines.of("accepted").concat();
    let expected = format!("DEBUG accepted endpoint={accepted:?} listener={listener:?} peer=\"tcp://127.0.0.1:");
    assert!(of_accepted.starts_with(&expected), "{of_accepted}");
    let closed = lines.of("closed");
    assert!(closed.contains(&format!("DEBUG closed endpoint={endpoint:?} reason=\"closed here\"")), "{closed:?}");
    let by_peer = format!("DEBUG closed endpoint={accepted:?} reason=\"closed by the peer: 4000\"");
    assert!(closed.contains(&by_peer), "{closed:?}");
    assert!(!lines.all().concat().contains("s3cret"), "{:#?}", lines.all());
}

#[test]
fn a_failed_handshake_says_its_listener_peer_and_status() {
    let (lines, _guard) = Lines::collect();
    let mut side = Side::new();
    let listener = side.handle.listen("ws://127.0.0.1:0").unwrap();
    let port = side.handle.local_address(listener).unwrap().port().unwrap();
    let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let at = peer.local_addr().unwrap();
    peer.write_all(b"GET /s3cret HTTP/1.1\r\nHost: s3cret\r\nCookie: s3cret\r\n\r\n").unwrap();
    side.step_until("refused", |seen| !seen.is_empty());
    let failed = lines.of("not opened").concat();
    let expected = format!("listener={listener:?} peer=\"tcp://{at}\" reason=\"WebSocket handshake: status 426\"");
    assert!(failed.starts_with("INFO ") && failed.ends_with(&expected), "{failed}");
    assert!(!lines.all().concat().contains("s3cret"), "{:#?}", lines.all());
}

#[test]
fn a_full_queue_is_said_once_until_it_drains() {
    let (lines, _guard) = Lines::collect();
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = (Side::new(), Side::new());
    let (accepted, endpoint, _) = connected(&mut server, &mut client, &address("tcp+msg", &folder));
    let mut sent = 0;
    for round in 1..=2 {
        for _ in 0..3 {
            while client.handle.send(endpoint, &[7; 100_000]).is_accepted() {
                sent += 100_000;
            }
        }
        let mut batch = client.handle.batch(endpoint);
        assert!(batch.push(&[7; 100]).is_accepted());
        assert_eq!(batch.flush(), Outcome::Full);
        let said = lines.of("refuses sends");
        assert_eq!(said.len(), round, "{said:?}");
        assert!(said[0].starts_with("WARN ") && said[0].contains(&format!("endpoint={endpoint:?}")), "{said:?}");
        until(&mut server, &mut client, "drained", |server, client| {
            client.count(&Seen::Drained(endpoint)) == round && server.received(accepted) >= sent
        });
        sent += 100 * usize::from(batch.flush().is_accepted());
        drop(batch);
    }
}

#[test]
fn a_listener_that_backs_off_says_so_once() {
    let (lines, _guard) = Lines::collect();
    let mut limits = Limits::default();
    limits.connections = 1;
    let mut side = Side::with(limits);
    let listener = side.handle.listen("tcp://127.0.0.1:0").unwrap();
    let port = side.handle.local_address(listener).unwrap().port().unwrap();
    let _peers: Vec<_> = (0..3).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    side.step_until("accepted", |seen| !seen.is_empty());
    // It tries again several times in this time.
    let until = std::time::Instant::now() + Duration::from_millis(300);
    while std::time::Instant::now() < until {
        side.step();
    }
    let said = lines.of("accepts later");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("WARN ") && said[0].contains(&format!("listener={listener:?}")), "{said:?}");
}

#[test]
fn each_attempt_to_reconnect_is_said() {
    let (lines, _guard) = Lines::collect();
    let mut side = Side::new();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let plan = Reconnect::default().initial_delay(Duration::from_millis(1)).max_attempts(2);
    let endpoint = side.handle.connect_with(format!("tcp://{nobody}"), &Options::default().reconnect(plan)).unwrap();
    side.until_closed(endpoint);
    assert_eq!(lines.of("connecting").len(), 3);
    let lost = lines.of("lost");
    assert_eq!(lost.len(), 2, "{lost:?}");
    assert!(lost[0].starts_with("INFO ") && lost[0].contains("not connected"), "{lost:?}");
    assert_eq!(lines.of("not opened").len(), 1);
}
