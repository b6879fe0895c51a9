//! Dialogues with proxies that answer in pieces, wrongly, or anything at all.

use proptest::prelude::*;

use super::exchange::{Exchange, run};
use super::*;

const SOCKS5: &str = "socks5://user:password@127.0.0.1:1080";
const HTTP: &str = "http://user:password@127.0.0.1:3128";

fn tunnel(proxy: &str, to: &str) -> Tunnel {
    Tunnel::new(&proxy.parse().unwrap(), &to.parse().unwrap()).unwrap()
}

fn failure(proxy: &str, input: &[u8]) -> ProxyFailure {
    run(&tunnel(proxy, "tcp://h:80"), input, &[]).end.unwrap_err()
}

#[test]
fn a_socks5_dialogue_is_that_of_the_standard() {
    let without_login = "socks5://127.0.0.1:1080";
    for (to, request) in [
        ("tcp://192.0.2.7:258", &b"\x05\x01\0\x01\xc0\0\x02\x07\x01\x02"[..]),
        ("tls://[2001:db8::1]:80", b"\x05\x01\0\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\0\x50"),
        ("ws://example.org", b"\x05\x01\0\x03\x0bexample.org\0\x50"),
    ] {
        let reply = b"\x05\0\x05\0\0\x01\0\0\0\0\0\0behind";
        let Exchange { sent, end } = run(&tunnel(without_login, to), reply, &[]);
        assert_eq!(sent, [b"\x05\x01\0", request]);
        assert_eq!(end, Ok(Some(reply.len() - 6)));
        let reply = b"\x05\x02\x01\0\x05\0\0\x03\x04name\0\0behind";
        let Exchange { sent, end } = run(&tunnel(SOCKS5, to), reply, &[]);
        assert_eq!(sent, [b"\x05\x02\0\x02", &b"\x01\x04user\x08password"[..], request]);
        assert_eq!(end, Ok(Some(reply.len() - 6)));
        // It asks for no login although one was offered.
        let reply = b"\x05\0\x05\0\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0behind";
        assert_eq!(run(&tunnel(SOCKS5, to), reply, &[]).sent, [b"\x05\x02\0\x02", request]);
    }
}

#[test]
fn a_socks5_proxy_that_refuses_is_understood() {
    assert_eq!(failure(SOCKS5, b"\x05\xff"), ProxyFailure::NoMethod);
    assert_eq!(failure(SOCKS5, b"\x05\x02\x01\x07"), ProxyFailure::Login(7));
    for reply in 1..=u8::MAX {
        // Nothing has to follow a refusal.
        assert_eq!(failure(SOCKS5, &[5, 0, 5, reply]), ProxyFailure::Reply(reply));
    }
    assert_eq!(socks5::kind(5), ErrorKind::ConnectionRefused);
    let malformed = |input: &[u8]| match failure(SOCKS5, input) {
        ProxyFailure::Malformed(what) => what,
        other => panic!("{other:?}"),
    };
    assert!(malformed(b"HTTP/1.1 400 Bad Request").contains("version"));
    assert!(malformed(b"\x04\0").contains("version"));
    assert!(malformed(b"\x05\x01").contains("not offered"));
    assert!(malformed(b"\x05\x02\x05\0").contains("version"));
    assert!(malformed(b"\x05\0\x04\0\0\x01").contains("version"));
    assert!(malformed(b"\x05\0\x05\0\0\x02").contains("type of address"));
    // Without user and password in the URL, they were not offered.
    let chosen = run(&tunnel("socks5://127.0.0.1:1080", "tcp://h:80"), b"\x05\x02", &[]).end.unwrap_err();
    assert_eq!(chosen, ProxyFailure::Malformed("it chose a method that was not offered"));
}

#[test]
fn a_connect_request_is_that_of_the_standard() {
    for (to, host) in [("tcp://192.0.2.7:80", "192.0.2.7:80"), ("wss://[::1]", "[::1]:443"), ("ws://h", "h:80")] {
        let answer =
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200 Connection established\r\nContent-Length: 6\r\n\r\nbehind";
        let Exchange { sent, end } = run(&tunnel(HTTP, to), answer, &[]);
        let expected = format!(
            "CONNECT {host} HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: Basic dXNlcjpwYXNzd29yZA==\r\n\r\n"
        );
        assert_eq!(sent, [expected.as_bytes()]);
        assert_eq!(end, Ok(Some(answer.len() - 6)));
    }
    let plain = run(&tunnel("http://h:1", "tcp://a:1"), b"HTTP/1.1 204 \n\n", &[]);
    assert_eq!(plain.sent, [b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"]);
    assert_eq!(plain.end, Ok(Some(15)));
}

#[test]
fn an_http_proxy_that_refuses_is_understood() {
    let refused = failure(HTTP, b"HTTP/1.1 407 Proxy Authentication Required\r\nX: y\r\n\r\n<html>");
    let reason = "Proxy Authentication Required".to_owned();
    assert_eq!(refused, ProxyFailure::Status { status: 407, reason });
    assert!(refused.to_string().contains("407") && refused.to_string().contains("http://user:password@host:port"));
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    assert!(failure(HTTP, b"HTTP/1.1 502 Bad Gateway\r\n\r\n").to_string().contains("502 Bad Gateway"));
    let malformed = |input: &[u8]| match failure(HTTP, input) {
        ProxyFailure::Malformed(what) => what,
        other => panic!("{other:?}"),
    };
    // Found at the first wrong byte, whatever follows.
    assert!(malformed(b"S").contains("not a response"));
    assert!(malformed(b"HTTP/2 200\r\n\r\n").contains("not a response"));
    assert!(malformed(b"\x05\0").contains("not a response"));
    assert!(malformed(b"HTTP/1.1 abc\r\n\r\n").contains("not valid"));
    assert!(malformed(&[b"HTTP/1.1 200 OK\r\n", &b"a: b\r\n".repeat(101)[..], b"\r\n"].concat()).contains("not valid"));
    assert!(malformed(&[b"HTTP/1.1 200 OK\r\na: ", &[b'b'; MAX_HEAD][..]].concat()).contains("16 KiB"));
    assert!(malformed(&b"HTTP/1.1 100 Continue\r\n\r\n".repeat(1000)).contains("16 KiB"));
}

const MAX_HEAD: usize = 16 << 10;

#[test]
fn a_destination_that_no_proxy_understands_is_refused() {
    let refused = |to: &str| Tunnel::new(&SOCKS5.parse().unwrap(), &to.parse().unwrap()).unwrap_err().to_string();
    assert!(refused("tcp://[fe80::1%eth0]:80").contains("zone"));
    assert!(refused("tcp://grün.example:80").contains("Punycode"));
    assert!(refused(&format!("tcp://{}:80", "a".repeat(256))).contains("255 bytes"));
    let error = refused("unix:///socket");
    assert!(error.contains("no host") && error.contains("socks5://127.0.0.1:1080"), "{error}");
    assert!(!error.contains("password"), "{error}");
}

/// Bytes of a proxy: an answer of some kind, with changes.
fn answers() -> impl Strategy<Value = Vec<u8>> {
    let keywords = prop::sample::select(vec![
        &b"\x05\x02\x01\0\x05\0\0\x03\x04name\0\0"[..],
        b"\x05\0\x05\0\0\x01\0\0\0\0\0\0",
        b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"\r\n\r\n",
    ]);
    let part = prop_oneof![keywords.prop_map(<[u8]>::to_vec), prop::collection::vec(any::<u8>(), 0..6)];
    prop::collection::vec(part, 0..5).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn an_answer_means_the_same_however_it_is_cut(
        input in answers(),
        pieces in prop::collection::vec(1_usize..8, 0..40),
        uses_http in any::<bool>(),
    ) {
        let tunnel = tunnel(if uses_http { HTTP } else { SOCKS5 }, "tcp://h:80");
        prop_assert_eq!(run(&tunnel, &input, &pieces), run(&tunnel, &input, &[]));
    }
}
