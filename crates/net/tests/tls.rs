//! TLS with valid and invalid certificates, and with misbehaving peers.
#![cfg(feature = "tls")]

mod common;

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use common::{Seen, Side, tls, until};
use estafette_net::Options;
use rcgen::date_time_ymd;

/// Connects with options that must fail. Returns the reasons that the client and the server report.
fn refused(server_options: &Options, client_options: &Options, host: &str) -> (String, String) {
    let (mut server, mut client) = (Side::new(), Side::new());
    let listener = server.handle.listen_with("tls+msg://0.0.0.0:0", server_options).unwrap();
    let port = server.handle.local_address(listener).unwrap().port().unwrap();
    let endpoint = client.handle.connect_with(format!("tls+msg://{host}:{port}"), client_options).unwrap();
    let closed = |side: &Side| {
        side.seen.iter().find_map(|seen| match seen {
            Seen::Closed(_, reason) | Seen::AcceptFailed(_, _, reason) => Some(reason.clone()),
            _ => None,
        })
    };
    until(&mut server, &mut client, "refused", |server, client| closed(server).is_some() && closed(client).is_some());
    assert!(!client.seen.contains(&Seen::Connected(endpoint)));
    (closed(&client).unwrap(), closed(&server).unwrap())
}

#[test]
fn an_invalid_certificate_is_rejected_and_both_sides_report_why() {
    let (server, client) = tls::options();
    let (reason, server_reason) = refused(&server, &tls::with(tls::params()).1, "127.0.0.1");
    assert!(reason.starts_with("not connected: invalid peer certificate"), "{reason}");
    assert!(server_reason.starts_with("not connected: received fatal alert"), "{server_reason}");

    let (reason, _) = refused(&server, &client, "127.0.0.2");
    assert!(reason.contains("not valid for"), "{reason}");

    let mut params = tls::params();
    params.not_before = date_time_ymd(2001, 1, 1);
    params.not_after = date_time_ymd(2002, 1, 1);
    let (server, client) = tls::with(params);
    let (reason, server_reason) = refused(&server, &client, "127.0.0.1");
    assert!(reason.contains("xpired"), "{reason}");
    assert!(server_reason.contains("xpired"), "{server_reason}");
}

#[test]
fn a_peer_without_tls_is_disconnected() {
    let mut server = Side::new();
    let listener = server.handle.listen_with("tls://127.0.0.1:0", &tls::options().0).unwrap();
    let port = server.handle.local_address(listener).unwrap().port().unwrap();
    let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
    peer.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let reason = server.until("refused", |seen| match seen {
        Seen::AcceptFailed(_, _, reason) => Some(reason.clone()),
        _ => None,
    });
    assert!(reason.starts_with("not connected: received corrupt message"), "{reason}");
}

#[test]
fn a_listener_without_a_certificate_says_what_it_needs() {
    let error = Side::new().handle.listen("wss://127.0.0.1:0").unwrap_err().to_string();
    assert!(error.contains("wss://127.0.0.1:0") && error.contains("Options::tls_server"), "{error}");
}

/// A listening node, and a peer that uses rustls directly and has completed the handshake.
fn by_hand() -> (Side, TcpStream, rustls::ClientConnection) {
    let mut server = Side::new();
    let (config, ours) = tls::client(tls::params());
    let listener = server.handle.listen_with("tls+msg://127.0.0.1:0", &ours).unwrap();
    let port = server.handle.local_address(listener).unwrap().port().unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let name = rustls::pki_types::ServerName::try_from("127.0.0.1").unwrap();
    let mut session = rustls::ClientConnection::new(Arc::clone(&config), name).unwrap();
    while session.is_handshaking() {
        if session.wants_write() {
            session.write_tls(&mut stream).unwrap();
        } else {
            stream.set_nonblocking(true).unwrap();
            match session.read_tls(&mut stream) {
                Ok(_) => drop(session.process_new_packets().unwrap()),
                Err(_) => server.step(),
            }
            stream.set_nonblocking(false).unwrap();
        }
    }
    while session.wants_write() {
        session.write_tls(&mut stream).unwrap();
    }
    server.until("accepted", |seen| matches!(seen, Seen::Accepted(..)).then_some(()));
    (server, stream, session)
}

/// The reason why the peer's connection ended.
fn reason(server: &mut Side) -> String {
    server.until("closed", |seen| match seen {
        Seen::Closed(_, reason) => Some(reason.clone()),
        _ => None,
    })
}

#[test]
fn an_end_without_close_notify_is_distinguished_from_an_orderly_one() {
    let (mut server, mut stream, mut session) = by_hand();
    session.writer().write_all(b"\0\0\0\x04full").unwrap();
    session.write_tls(&mut stream).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let reason = reason(&mut server);
    assert!(reason.contains("close_notify"), "{reason}");
    assert!(server.seen.iter().any(|seen| matches!(seen, Seen::Message(_, _, message) if message == b"full")));
}

#[test]
fn data_before_a_corrupt_record_is_delivered_before_the_end() {
    let (mut server, mut stream, mut session) = by_hand();
    let mut records = Vec::new();
    session.writer().write_all(b"\0\0\0\x04full").unwrap();
    session.write_tls(&mut records).unwrap();
    // A record whose length is valid and whose content is not.
    records.extend([&[0x17, 3, 3, 0, 30][..], &[7; 30]].concat());
    stream.write_all(&records).unwrap();
    let reason = reason(&mut server);
    assert!(reason.contains("decrypt"), "{reason}");
    assert!(server.seen.iter().any(|seen| matches!(seen, Seen::Message(_, _, message) if message == b"full")));
}

#[test]
fn records_are_reassembled_however_they_are_cut() {
    let (mut server, mut stream, mut session) = by_hand();
    stream.set_nodelay(true).unwrap();
    let message: Vec<u8> = (0..200_000_u32).map(|i| (i % 251) as u8).collect();
    let mut records = Vec::new();
    for part in [&(message.len() as u32).to_be_bytes()[..], &message].concat().chunks(16_384) {
        session.writer().write_all(part).unwrap();
        while session.wants_write() {
            session.write_tls(&mut records).unwrap();
        }
    }
    // Almost a record, the next byte, and many records at once.
    let mut rest = &records[..];
    for len in [16_405, 1, 20_000, 3, 100_000, usize::MAX] {
        let (now, later) = rest.split_at(len.min(rest.len()));
        stream.write_all(now).unwrap();
        (0..3).for_each(|_| server.step());
        rest = later;
    }
    let received = server.until("a message", |seen| match seen {
        Seen::Message(_, _, received) => Some(received.clone()),
        _ => None,
    });
    assert!(received == message);
}
