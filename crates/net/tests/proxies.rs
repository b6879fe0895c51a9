//! Clients that connect through a proxy: Debian's microsocks (SOCKS5) and tinyproxy (HTTP), and
//! proxies of the test that answer in pieces, wrongly, or never.
//!
//! If one of the programs is unavailable, its test is skipped with a message; with
//! `ESTAFETTE_PEERS=required` it fails.

mod common;

use std::env;
use std::fs;
use std::io::{ErrorKind, Read, Write, stderr};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use common::{PATIENCE, Seen, Side, until};
use estafette_net::{Endpoint, Event, Late, Limits, Node, Options, Proxy, ProxyError, ProxyFailure, Reason, Reconnect};
use tempfile::TempDir;

/// A proxy that runs as a process of its own.
struct Program {
    child: Child,
    port: u16,
    _folder: TempDir,
}

impl Drop for Program {
    fn drop(&mut self) {
        // It fails only if the process has ended.
        self.child.kill().ok();
        self.child.wait().unwrap();
    }
}

/// Starts a program that listens at the port it is given, unless it is unavailable. Another
/// process may take the port before it does, so there are several attempts.
fn start(program: &str, arguments: impl Fn(u16, &TempDir) -> Vec<String>) -> Option<Program> {
    for _ in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(program);
        command.args(arguments(port, &folder)).stdout(Stdio::null()).stderr(Stdio::null());
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                let absent = format!("{program} is not here ({error}); it is in Debian's {program}");
                assert!(env::var("ESTAFETTE_PEERS").as_deref() != Ok("required"), "{absent}");
                // Written directly: the test harness shows macro output of failed tests only.
                stderr().write_all(format!("skipped: {absent}\n").as_bytes()).unwrap();
                return None;
            }
        };
        let mut program = Program { child, port, _folder: folder };
        let begun = Instant::now();
        while program.child.try_wait().unwrap().is_none() {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Some(program);
            }
            assert!(begun.elapsed() < PATIENCE, "it never listens");
            thread::sleep(Duration::from_millis(5));
        }
    }
    panic!("{program} always ends at once");
}

/// microsocks, which knows no option for a file, so its password is among its arguments.
fn microsocks(login: &[&str]) -> Option<Program> {
    start("microsocks", |port, _| {
        let place = ["-i", "127.0.0.1", "-p", &port.to_string()].map(str::to_owned);
        place.into_iter().chain(login.iter().map(|part| (*part).to_owned())).collect()
    })
}

fn tinyproxy(login: &str) -> Option<Program> {
    start("tinyproxy", |port, folder| {
        let file = folder.path().join("tinyproxy.conf");
        fs::write(&file, format!("Port {port}\nListen 127.0.0.1\nAllow 127.0.0.1\nTimeout 600\n{login}\n")).unwrap();
        vec!["-d".to_owned(), "-c".to_owned(), file.display().to_string()]
    })
}

const SCHEMES: &[&str] =
    if cfg!(feature = "tls") { &["tcp", "tcp+msg", "ws", "tls", "tls+msg", "wss"] } else { &["tcp", "tcp+msg", "ws"] };

/// Connects to an echo server by a proxy, with every scheme and by name and number.
fn talks(proxy: &Proxy) {
    let (ours, theirs) = common::options();
    for scheme in SCHEMES {
        for host in ["127.0.0.1", "localhost"] {
            let (mut server, mut client) = (Side::new(), Side::new());
            let listener = server.handle.listen_with(format!("{scheme}://127.0.0.1:0"), &ours).unwrap();
            let port = server.handle.local_address(listener).unwrap().port().unwrap();
            let options = theirs.clone().proxy(proxy.clone());
            let to = client.handle.connect_with(format!("{scheme}://{host}:{port}"), &options).unwrap();
            // Sent before there is a connection to the proxy.
            assert!(client.handle.send(to, b"hello").is_accepted());
            until(&mut server, &mut client, "connected", |server, client| {
                assert_eq!(client.closed(to), None, "{scheme}://{host}");
                client.seen.contains(&Seen::Connected(to)) && !server.accepted(listener).is_empty()
            });
            let accepted = server.accepted(listener)[0];
            until(&mut server, &mut client, "received", |server, _| server.received(accepted) == 5);
            let long = vec![7; 300_000];
            assert!(server.handle.send(accepted, &long).is_accepted());
            until(&mut server, &mut client, "echoed", |_, client| client.received(to) == long.len());
            client.handle.close(to);
            until(&mut server, &mut client, "closed", |server, client| {
                client.closed(to).is_some() && server.closed(accepted).is_some()
            });
        }
    }
}

/// The reason why connecting to this address by a proxy fails.
fn failure(to: &str, proxy: &str, options: &Options) -> Reason {
    let mut node = Node::<()>::new().unwrap();
    let handle = node.handle();
    let endpoint = handle.connect_with(to, &options.clone().proxy(proxy.parse().unwrap())).unwrap();
    match node.next(Some(PATIENCE)).unwrap() {
        Some(Event::Closed { endpoint: closed, reason }) if closed == endpoint => reason,
        other => panic!("{other:?}"),
    }
}

/// As [`failure`], of the proxy. Its text names the proxy, and no secret.
fn proxy_failure(to: &str, proxy: &str) -> (ErrorKind, ProxyFailure) {
    match failure(to, proxy, &Options::default()) {
        Reason::NotConnected(error) => {
            let text = error.to_string();
            assert!(text.starts_with("the proxy ") && text.contains("://127.0.0.1:"), "{text}");
            assert!(!text.contains("secret"), "{text}");
            let found = error.get_ref().unwrap().downcast_ref::<ProxyError>().unwrap();
            (error.kind(), found.failure.clone())
        }
        other => panic!("{other:?}"),
    }
}

/// A port at which nobody listens.
fn nobody() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn microsocks_connects_with_and_without_a_login() {
    let Some(open) = microsocks(&[]) else { return };
    talks(&format!("socks5://127.0.0.1:{}", open.port).parse().unwrap());
    let (kind, found) =
        proxy_failure(&format!("tcp://127.0.0.1:{}", nobody()), &format!("socks5://127.0.0.1:{}", open.port));
    assert_eq!((kind, found), (ErrorKind::ConnectionRefused, ProxyFailure::Reply(5)));

    let Some(closed) = microsocks(&["-u", "us:er", "-P", "se@cret"]) else { return };
    let place = format!("127.0.0.1:{}", closed.port);
    talks(&format!("socks5://us%3Aer:se%40cret@{place}").parse().unwrap());
    let (kind, found) = proxy_failure("tcp://127.0.0.1:9", &format!("socks5://{place}"));
    assert_eq!((kind, found), (ErrorKind::PermissionDenied, ProxyFailure::NoMethod));
    let (kind, found) = proxy_failure("tcp://127.0.0.1:9", &format!("socks5://us%3Aer:secret@{place}"));
    assert_eq!(kind, ErrorKind::PermissionDenied);
    assert!(matches!(found, ProxyFailure::Login(status) if status != 0), "{found}");
}

#[test]
fn tinyproxy_connects_with_and_without_a_login() {
    let Some(open) = tinyproxy("") else { return };
    // By its name: the proxy has two addresses then, and may listen at one of them only.
    talks(&format!("http://localhost:{}", open.port).parse().unwrap());
    let proxy = format!("http://127.0.0.1:{}", open.port);
    let (_, found) = proxy_failure(&format!("ws://127.0.0.1:{}", nobody()), &proxy);
    assert!(matches!(found, ProxyFailure::Status { status: 500..600, .. }), "{found}");

    let Some(closed) = tinyproxy("BasicAuth user sec-ret") else { return };
    let place = format!("127.0.0.1:{}", closed.port);
    talks(&format!("http://user:sec%2Dret@{place}").parse().unwrap());
    for wrong in ["", "user:secret@"] {
        let (kind, found) = proxy_failure("tcp://127.0.0.1:9", &format!("http://{wrong}{place}"));
        assert_eq!(kind, ErrorKind::PermissionDenied, "{found}");
        assert!(matches!(found, ProxyFailure::Status { status: 401 | 407, .. }), "{found}");
    }
}

/// A proxy of the test: it accepts connections, and treats one after the other.
fn proxy(mut treat: impl FnMut(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    // It ends with the test's process, while it waits for one more connection.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.set_nodelay(true).unwrap();
            treat(stream);
        }
    });
    at.to_string()
}

/// Reads this many bytes, or fewer if the client ends.
fn read(stream: &mut TcpStream, len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.take(len as u64).read_to_end(&mut bytes).unwrap();
    bytes
}

fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = read(stream, 1);
        assert_eq!(byte.len(), 1, "{}", head.escape_ascii());
        head.extend(byte);
    }
    String::from_utf8(head).unwrap()
}

/// Copies both directions until both have ended. Returns what the client has sent.
fn relay(mut client: TcpStream, to: (&str, u16)) -> Vec<u8> {
    let mut server = TcpStream::connect(to).unwrap();
    let (mut to_client, mut from_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let back = thread::spawn(move || {
        std::io::copy(&mut from_server, &mut to_client).ok();
        to_client.shutdown(Shutdown::Write).ok();
    });
    let (mut sent, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(len @ 1..) = client.read(&mut buffer) {
        sent.extend_from_slice(&buffer[..len]);
        if server.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    server.shutdown(Shutdown::Write).ok();
    back.join().unwrap();
    sent
}

/// A SOCKS5 proxy that connects every client to `host` at the requested port. It passes on what
/// each client has sent to its destination.
fn socks5_relay(host: &'static str, sent: Sender<Vec<u8>>) -> String {
    proxy(move |mut stream| {
        let greeting = read(&mut stream, 2);
        read(&mut stream, greeting[1].into());
        stream.write_all(METHOD).unwrap();
        let request = read(&mut stream, 4);
        let len = match request[3] {
            1 => 4,
            3 => read(&mut stream, 1)[0].into(),
            other => panic!("an address of type {other}"),
        };
        read(&mut stream, len);
        let port = read(&mut stream, 2);
        stream.write_all(REPLY).unwrap();
        sent.send(relay(stream, (host, u16::from_be_bytes([port[0], port[1]])))).ok();
    })
}

/// The same with `CONNECT` of HTTP.
fn http_relay(host: &'static str, sent: Sender<Vec<u8>>) -> String {
    proxy(move |mut stream| {
        let head = read_head(&mut stream);
        let target = head.split(' ').nth(1).unwrap();
        let port = target.rsplit(':').next().unwrap().parse().unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        sent.send(relay(stream, (host, port))).ok();
    })
}

#[test]
fn every_scheme_goes_through_a_proxy() {
    let (sent, _relayed) = mpsc::channel();
    talks(&format!("socks5://{}", socks5_relay("127.0.0.1", sent.clone())).parse().unwrap());
    talks(&format!("http://{}", http_relay("127.0.0.1", sent)).parse().unwrap());
}

/// TLS is between the client and the destination: the proxy sees no contents, and cannot take the
/// place of the destination.
#[cfg(feature = "tls")]
#[test]
fn a_proxy_sees_no_contents_of_tls_and_proves_no_name() {
    let (ours, theirs) = common::options();
    for scheme in ["tls", "tls+msg", "wss"] {
        for protocol in ["socks5", "http"] {
            let (sent, relayed) = mpsc::channel();
            let at = match protocol {
                "socks5" => socks5_relay("127.0.0.1", sent),
                _ => http_relay("127.0.0.1", sent),
            };
            let proxy: Proxy = format!("{protocol}://{at}").parse().unwrap();
            let (mut server, mut client) = (Side::new(), Side::new());
            let listener = server.handle.listen_with(format!("{scheme}://127.0.0.1:0"), &ours).unwrap();
            let port = server.handle.local_address(listener).unwrap().port().unwrap();
            let options = theirs.clone().proxy(proxy);
            // The certificate has this name, which the client's system need not resolve.
            let to = client.handle.connect_with(format!("{scheme}://localhost:{port}"), &options).unwrap();
            assert!(client.handle.send(to, b"for nobody else").is_accepted());
            until(&mut server, &mut client, "received", |server, _| {
                server.accepted(listener).first().is_some_and(|accepted| server.received(*accepted) == 15)
            });
            assert!(client.handle.tls(to).is_some());
            client.handle.close(to);
            let accepted = server.accepted(listener)[0];
            until(&mut server, &mut client, "closed", |server, client| {
                client.closed(to).is_some() && server.closed(accepted).is_some()
            });
            let seen = relayed.recv_timeout(PATIENCE).unwrap();
            // A handshake record of TLS, and no plain text.
            assert_eq!(seen[0], 22);
            assert!(!seen.windows(15).any(|part| part == b"for nobody else"));

            // The proxy leads to a server whose certificate has another name.
            let to = client.handle.connect_with(format!("{scheme}://{NAME}:{port}"), &options).unwrap();
            until(&mut server, &mut client, "refused", |_, client| client.closed(to).is_some());
            let reason = client.closed(to).unwrap();
            assert!(reason.starts_with("not connected:") && reason.contains("certificate"), "{reason}");
        }
    }
}

/// The answers to a client without login, which connects to a name of 20 bytes.
const METHOD: &[u8] = b"\x05\0";
const REPLY: &[u8] = b"\x05\0\0\x01\0\0\0\0\0\0";
const NAME: &str = "only.the.proxy.knows";
const GREETING: usize = 3;
const REQUEST: usize = 5 + NAME.len() + 2;

#[test]
fn the_proxy_resolves_the_name_and_what_follows_its_answer_is_the_destinations() {
    // A destination that speaks first, and in the same segment as the proxy's answer.
    let socks5 = proxy(|mut stream| {
        assert_eq!(read(&mut stream, GREETING), b"\x05\x01\0");
        stream.write_all(METHOD).unwrap();
        assert!(read(&mut stream, REQUEST).windows(NAME.len()).any(|part| part == NAME.as_bytes()));
        stream.write_all(&[REPLY, b"\0\0\0\x07welcome"].concat()).unwrap();
        assert_eq!(read(&mut stream, 9), b"\0\0\0\x05hello");
    });
    let http = proxy(|mut stream| {
        let head = read_head(&mut stream);
        assert!(head.starts_with(&format!("CONNECT {NAME}:80 HTTP/1.1\r\n")), "{head}");
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n\0\0\0\x07welcome").unwrap();
        assert_eq!(read(&mut stream, 9), b"\0\0\0\x05hello");
    });
    // The same, a byte at a time.
    let slow = proxy(|mut stream| {
        read_head(&mut stream);
        for byte in b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n\0\0\0\x07welcome" {
            stream.write_all(&[*byte]).unwrap();
            thread::yield_now();
        }
        assert_eq!(read(&mut stream, 9), b"\0\0\0\x05hello");
    });
    for url in [format!("socks5://{socks5}"), format!("http://{http}"), format!("http://{slow}")] {
        let mut client = Side::new();
        let options = Options::default().proxy(url.parse().unwrap());
        let to = client.handle.connect_with(format!("tcp+msg://{NAME}:80"), &options).unwrap();
        assert!(client.handle.send(to, b"hello").is_accepted());
        assert_eq!(client.until_closed(to), "ended by the peer", "{url}");
        assert_eq!(client.messages(to), [b"welcome"]);
        assert_eq!(client.seen[0], Seen::Connected(to));
    }
}

#[test]
fn an_answer_that_ends_early_is_an_error_wherever_it_ends() {
    for len in 0..METHOD.len() + REPLY.len() {
        let at = proxy(move |mut stream| {
            let (method, reply) = (&METHOD[..len.min(2)], &REPLY[..len.saturating_sub(2)]);
            read(&mut stream, GREETING);
            stream.write_all(method).unwrap();
            if method.len() == 2 {
                read(&mut stream, REQUEST);
                stream.write_all(reply).unwrap();
            }
        });
        let (kind, found) = proxy_failure(&format!("tcp://{NAME}:80"), &format!("socks5://{at}"));
        assert_eq!((kind, found), (ErrorKind::UnexpectedEof, ProxyFailure::Ended), "{len}");
    }
    for answer in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 100 Continue\r\n\r\n"] {
        let at = proxy(move |mut stream| {
            read_head(&mut stream);
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let (_, found) = proxy_failure(&format!("tcp://{NAME}:80"), &format!("http://user:secret@{at}"));
        assert_eq!(found, ProxyFailure::Ended, "{answer}");
    }
}

#[test]
fn garbage_of_a_proxy_is_an_error_that_names_it() {
    for garbage in ["SSH-2.0-OpenSSH_9.2\r\n", "\x05\x02\x01", "\0", "HTTP/1.1 999999\r\n\r\n"] {
        for scheme in ["socks5", "http"] {
            let at = proxy(move |mut stream| {
                stream.write_all(garbage.as_bytes()).unwrap();
                // Until the client ends: closing with unread data would reset the connection.
                stream.read_to_end(&mut Vec::new()).ok();
            });
            let (kind, found) = proxy_failure(&format!("tcp://{NAME}:80"), &format!("{scheme}://{at}"));
            assert!(matches!(found, ProxyFailure::Malformed(_)), "{garbage:?}: {found}");
            assert_eq!(kind, ErrorKind::InvalidData);
        }
    }
    let endless = proxy(|mut stream| while stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").is_ok() {});
    let (_, found) = proxy_failure(&format!("tcp://{NAME}:80"), &format!("http://{endless}"));
    assert!(matches!(found, ProxyFailure::Malformed(what) if what.contains("16 KiB")), "{found}");
}

/// Why connecting by this proxy ends, with a handshake limit that passes.
fn reason_when_late(to: &str, proxy: &str, options: &Options, limit: Duration) -> Reason {
    let mut limits = Limits::default();
    limits.handshake = limit;
    let mut node = Node::<()>::with_limits(limits).unwrap();
    node.handle().connect_with(to, &options.clone().proxy(proxy.parse().unwrap())).unwrap();
    match node.next(Some(PATIENCE)).unwrap() {
        Some(Event::Closed { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_proxy_that_never_answers_is_named_at_the_handshake_limit() {
    // Nothing, a part of an answer, and a proxy that waits for its destination.
    for (scheme, answer) in
        [("http", &b""[..]), ("http", b"H"), ("socks5", b""), ("socks5", b"\x05"), ("socks5", METHOD)]
    {
        let at = proxy(move |mut stream| {
            stream.write_all(answer).unwrap();
            stream.read_to_end(&mut Vec::new()).ok();
        });
        for to in SCHEMES {
            let url = format!("{scheme}://user:secret@{at}");
            match reason_when_late(&format!("{to}://{NAME}:80"), &url, &common::options().1, Duration::from_millis(50))
            {
                Reason::NotConnected(error) => {
                    assert_eq!(error.kind(), ErrorKind::TimedOut);
                    let text = error.to_string();
                    assert!(text.contains(&format!("{scheme}://{at}")) && text.contains("Limits::handshake"), "{text}");
                    assert!(!text.contains("secret"), "{text}");
                    let found = error.get_ref().unwrap().downcast_ref::<ProxyError>().unwrap();
                    assert_eq!(found.failure, ProxyFailure::TimedOut);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn a_proxy_that_has_connected_is_not_blamed_for_a_silent_destination() {
    let at = proxy(|mut stream| {
        read(&mut stream, GREETING);
        stream.write_all(METHOD).unwrap();
        read(&mut stream, REQUEST);
        stream.write_all(REPLY).unwrap();
        stream.read_to_end(&mut Vec::new()).ok();
    });
    for to in SCHEMES.iter().filter(|scheme| !scheme.starts_with("tcp")) {
        let (to, proxy) = (format!("{to}://{NAME}:80"), format!("socks5://{at}"));
        let is_late = |millis| {
            let reason = reason_when_late(&to, &proxy, &common::options().1, Duration::from_millis(millis));
            matches!(reason, Reason::Late(Late::Handshake))
        };
        // On a busy machine the proxy itself is late if the limit is short.
        assert!([50, 500, 5_000, 50_000].into_iter().any(is_late), "{to}");
    }
}

#[test]
fn a_proxy_that_is_not_there_is_named() {
    let at = format!("127.0.0.1:{}", nobody());
    let (kind, found) = proxy_failure("tcp://192.0.2.1:80", &format!("socks5://user:secret@{at}"));
    assert_eq!(kind, ErrorKind::ConnectionRefused);
    assert!(matches!(found, ProxyFailure::Io { kind: ErrorKind::ConnectionRefused, .. }), "{found}");
}

#[test]
fn only_schemes_of_tcp_have_a_proxy() {
    let side = Side::new();
    let options = Options::default().proxy("socks5://user:secret@127.0.0.1:1".parse().unwrap());
    for address in
        ["udp://127.0.0.1:1", "udp://localhost:1", "unix:///nowhere", "inproc://nobody", "inproc+msg://nobody"]
    {
        let error = side.handle.connect_with(address, &options).unwrap_err().to_string();
        assert!(error.contains(address) && error.contains("Options::proxy"), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
    // Also what no proxy understands is refused before anything is sent.
    let error = side.handle.connect_with("tcp://grün.example:80", &options).unwrap_err().to_string();
    assert!(error.contains("Punycode"), "{error}");
    // A listener ignores it.
    side.handle.listen_with("tcp://127.0.0.1:0", &options).unwrap();
}

#[test]
fn a_reconnect_uses_the_proxy_again() {
    let mut count = 0;
    let at = proxy(move |mut stream| {
        count += 1;
        read(&mut stream, GREETING);
        stream.write_all(METHOD).unwrap();
        read(&mut stream, REQUEST);
        // The second attempt is refused.
        let refused = [5, 4, 0, 1, 0, 0, 0, 0, 0, 0];
        stream.write_all(if count == 2 { &refused } else { REPLY }).unwrap();
        read(&mut stream, if count == 3 { 1 } else { 0 });
    });
    let mut client = Side::new();
    let plan = Reconnect::default().initial_delay(Duration::from_millis(1));
    // The proxy's own name is resolved here, each time.
    let proxy: Proxy = format!("socks5://{}", at.replace("127.0.0.1", "localhost")).parse().unwrap();
    let to = client
        .handle
        .connect_with(format!("tcp://{NAME}:80"), &Options::default().reconnect(plan).proxy(proxy))
        .unwrap();
    let connected = |seen: &[Seen], to: Endpoint| seen.iter().filter(|seen| **seen == Seen::Connected(to)).count();
    client.step_until("connected twice", |seen| connected(seen, to) == 2);
    let lost: Vec<_> = client
        .seen
        .iter()
        .filter_map(|seen| match seen {
            Seen::Lost(_, reason, _) => Some(reason.clone()),
            _ => None,
        })
        .collect();
    assert!(lost.iter().any(|reason| reason.contains("host unreachable (reply 4)")), "{lost:?}");
}
