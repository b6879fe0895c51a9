//! The HTTP source, with clients that write raw HTTP.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use crate::pipeline::{PATIENCE, Running, until};

const TO_FILE: &str = "
sources:
  - { name: posts, http: { listen: '127.0.0.1:0', path: /in }, output: { topics: [t] } }
sinks:
  - { name: keep, input: { topic: t }, file: { path: out.txt } }
topics:
  t: { capacity: 64KiB, max_message: 8KiB }
";

/// The sink never connects, so the topic fills.
const TO_NOBODY: &str = "
sources:
  - { name: posts, http: { listen: '127.0.0.1:0', path: /in }, output: { topics: [t] } }
sinks:
  - { name: gone, input: { topic: t }, websocket: { url: 'ws://127.0.0.1:1' } }
topics:
  t: { capacity: 4KiB, max_message: 1KiB }
";

/// The address on which a pipeline's source listens.
pub(crate) fn address(pipeline: &Running) -> String {
    let rest = pipeline.logged("listening at http://");
    rest.split('/').next().unwrap().to_owned()
}

fn connect(address: &str) -> TcpStream {
    let client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client
}

fn request(head: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("{head} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Sends bytes. Returns all that is received until the end of the connection.
fn exchange(address: &str, bytes: &[u8]) -> String {
    let mut client = connect(address);
    // The server may have responded and disconnected before all bytes are written.
    client.write_all(bytes).ok();
    answer(client)
}

/// All that is received until the end of the connection.
fn answer(mut client: TcpStream) -> String {
    let mut answer = Vec::new();
    // A connection that is reset after the response is an error, which is ignored.
    client.read_to_end(&mut answer).ok();
    String::from_utf8_lossy(&answer).into_owned()
}

pub(crate) fn post(address: &str, body: &[u8]) -> String {
    exchange(address, &request("POST /in", body))
}

#[test]
fn each_post_is_a_message() {
    let pipeline = Running::start(TO_FILE);
    let address = address(&pipeline);
    for number in 0..20 {
        let answer = post(&address, format!("message {number}").as_bytes());
        assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    }
    let chunked = b"POST /in?a=b HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
        3\r\nin \r\n6\r\nchunks\r\n0\r\n\r\n";
    assert!(exchange(&address, chunked).starts_with("HTTP/1.1 202 "));
    let summary = pipeline.end();
    assert_eq!(summary.failures, [""; 0]);
    let mut expected: Vec<_> = (0..20).map(|number| format!("message {number}")).collect();
    expected.push("in chunks".into());
    assert_eq!(pipeline.lines("out.txt"), expected);
}

#[test]
fn connections_are_reused() {
    let pipeline = Running::start(TO_FILE);
    let mut client = connect(&address(&pipeline));
    for number in 0..3 {
        write!(client, "POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n{number}").unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 202 "));
    }
    assert_eq!(pipeline.until_lines("out.txt", 3), ["0", "1", "2"]);
    assert_eq!(pipeline.end().failures, [""; 0]);
}

#[test]
fn invalid_requests_are_refused() {
    let pipeline = Running::start(TO_FILE);
    let address = address(&pipeline);
    let refused = |bytes: &[u8], status: &str| {
        let answer = exchange(&address, bytes);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
        answer
    };
    refused(&request("POST /other", b"x"), "404");
    let answer = refused(&request("GET /in", b""), "405");
    assert!(answer.to_ascii_lowercase().contains("allow: post"), "{answer}");
    refused(&request("POST /in", &[b'x'; 8 * 1024 + 1]), "413");
    // A length that is only announced costs no memory.
    refused(b"POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", "413");
    let chunk = [&b"POST /in HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2001\r\n"[..], &[b'x'; 0x2001]];
    refused(&chunk.concat(), "413");
    refused(b"\x16\x03\x01 this is not HTTP\r\n\r\n", "400");
    refused(b"POST /in HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n", "400");
    let long = format!("POST /in HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(64 << 10));
    let answer = exchange(&address, long.as_bytes());
    assert!(!answer.starts_with("HTTP/1.1 2"), "{answer}");
    assert!(post(&address, &[b'x'; 8 * 1024]).starts_with("HTTP/1.1 202 "));
    assert_eq!(pipeline.end().failures, [""; 0]);
    assert_eq!(pipeline.lines("out.txt"), ["x".repeat(8 * 1024)]);
}

#[test]
fn slow_clients_delay_neither_others_nor_the_end() {
    let pipeline = Running::start(TO_FILE);
    let address = address(&pipeline);
    let halves = [&b""[..], b"POST /i", b"POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf"];
    let slow: Vec<_> = (0..60).map(|number| (connect(&address), halves[number % 3])).collect();
    for (client, half) in &slow {
        (&*client).write_all(half).unwrap();
    }
    assert!(post(&address, b"quick").starts_with("HTTP/1.1 202 "));
    assert_eq!(pipeline.end().failures, [""; 0]);
    assert_eq!(pipeline.lines("out.txt"), ["quick"]);
    for (mut client, _) in slow {
        // Clients whose request had begun get a response. All are disconnected.
        let mut answer = String::new();
        client.read_to_string(&mut answer).ok();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 503 "), "{answer}");
    }
}

/// A client whose request headers the server has read, but not the body.
fn begun(address: &str, body: &[u8]) -> TcpStream {
    let head = "POST /in HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\n";
    let mut client = connect(address);
    write!(client, "{head}Content-Length: {}\r\n\r\n", body.len()).unwrap();
    let mut answer = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 100 Continue\r\n\r\n");
    client
}

#[test]
fn clients_wait_while_a_topic_is_full_and_get_a_response_when_it_ends() {
    let pipeline = Running::start(TO_NOBODY);
    let address = address(&pipeline);
    let body = [b'x'; 1000];
    let clients: Vec<_> = (0..12).map(|_| begun(&address, &body)).collect();
    for mut client in &clients {
        client.write_all(&body).unwrap();
    }
    let clients: Vec<_> = clients.into_iter().map(|client| thread::spawn(|| answer(client))).collect();
    // The ring accepts some messages, and at least one of the others waits.
    until(|| clients.iter().any(thread::JoinHandle::is_finished).then_some(()));
    assert!(!clients.iter().all(thread::JoinHandle::is_finished));
    // The source ends and refuses the clients that wait. The sink cannot send its messages, so the
    // pipeline must be ended a second time.
    pipeline.remote.end();
    until(|| clients.iter().all(thread::JoinHandle::is_finished).then_some(()));
    pipeline.end();
    let answers: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
    let count = |status: &str| answers.iter().filter(|answer| answer.starts_with(status)).count();
    let (accepted, refused) = (count("HTTP/1.1 202 "), count("HTTP/1.1 503 "));
    assert_eq!(accepted + refused, 12, "{answers:?}");
    assert!(accepted > 0 && refused > 0, "{accepted} accepted, {refused} refused");
}

#[test]
fn an_address_in_use_is_an_error_at_the_start() {
    let first = Running::start(TO_FILE);
    let taken = TO_FILE.replace("127.0.0.1:0", &address(&first));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("taken.yml");
    std::fs::write(&path, format!("functions: []\n{taken}")).unwrap();
    let pipeline = estafette_flow::config::check(&path, &Default::default()).pipeline.unwrap();
    let options = estafette_flow::Options { host_program: "unused".into(), drain_timeout: PATIENCE };
    let error = estafette_flow::Supervisor::new(pipeline, options).unwrap().run().unwrap_err();
    assert!(format!("{error:#}").contains("cannot listen at"), "{error:#}");
    first.end();
}
