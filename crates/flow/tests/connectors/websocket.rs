//! WebSocket sources and sinks, with servers of another library that die and restart.

use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use tungstenite::{Message, WebSocket};

use crate::http;
use crate::pipeline::{PATIENCE, Running, until};

/// A port on which nobody listens.
const NOBODY: u16 = 1;

fn source(port: u16) -> Running {
    Running::start(&format!(
        "
sources:
  - {{ name: chat, websocket: {{ url: 'ws://127.0.0.1:{port}/x' }}, output: {{ topics: [t] }} }}
sinks:
  - {{ name: keep, input: {{ topic: t }}, file: {{ path: out.txt }} }}
topics:
  t: {{ capacity: 64KiB, max_message: 8KiB }}
"
    ))
}

fn sink(port: u16, source: &str) -> Running {
    Running::start(&format!(
        "
sources:
  - {{ name: source, {source}, output: {{ topics: [t] }} }}
sinks:
  - {{ name: publish, input: {{ topic: t }}, websocket: {{ url: 'ws://127.0.0.1:{port}' }} }}
topics:
  t: {{ capacity: 4KiB, max_message: 1KiB }}
"
    ))
}

fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Listens on a port again, once the system has released it.
fn listen_again(port: u16) -> TcpListener {
    crate::pipeline::until(|| TcpListener::bind(("127.0.0.1", port)).ok())
}

fn accept(listener: &TcpListener) -> WebSocket<TcpStream> {
    listener.set_nonblocking(true).unwrap();
    let (stream, _) = crate::pipeline::until(|| listener.accept().ok());
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    tungstenite::accept(stream).unwrap()
}

/// Reads until the client closes the connection.
fn read_to_end(socket: &mut WebSocket<TcpStream>) -> Vec<String> {
    let mut messages = Vec::new();
    while let Ok(message) = socket.read() {
        if message.is_binary() {
            messages.push(String::from_utf8(message.into_data().to_vec()).unwrap());
        }
    }
    messages
}

fn text(number: usize) -> Message {
    Message::text(format!("message {number}"))
}

fn expected(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("message {number}")).collect()
}

#[test]
fn text_and_binary_messages_arrive_in_order() {
    let (listener, port) = listen();
    let pipeline = source(port);
    let mut socket = accept(&listener);
    for number in 0..2000 {
        let message = if number % 2 == 0 { text(number) } else { Message::binary(format!("message {number}")) };
        socket.send(message).unwrap();
    }
    assert_eq!(pipeline.until_lines("out.txt", 2000), expected(2000));
    let client = thread::spawn(move || read_to_end(&mut socket));
    assert_eq!(pipeline.end().failures, [""; 0]);
    assert_eq!(client.join().unwrap(), [""; 0]);
}

#[test]
fn a_source_survives_servers_that_die() {
    let (listener, port) = listen();
    let pipeline = source(port);
    let mut count = 0;
    let mut listener = Some(listener);
    for round in 0..4 {
        let open = listener.take().unwrap_or_else(|| listen_again(port));
        let mut socket = accept(&open);
        for _ in 0..10 {
            socket.send(text(count)).unwrap();
            count += 1;
        }
        pipeline.until_lines("out.txt", count);
        if round % 2 == 0 {
            socket.close(None).unwrap();
            socket.flush().ok();
        }
        // The listener is dropped together with the connection.
    }
    assert_eq!(pipeline.lines("out.txt"), expected(count));
    assert_eq!(pipeline.end().failures, [""; 0]);
}

#[test]
fn a_message_that_is_too_long_is_dropped() {
    let (listener, port) = listen();
    let pipeline = source(port);
    let mut socket = accept(&listener);
    socket.send(Message::text("x".repeat(8 * 1024 + 1))).unwrap();
    socket.send(text(0)).unwrap();
    assert_eq!(pipeline.until_lines("out.txt", 1), expected(1));
    // A source counts a message after it has passed it on.
    until(|| {
        let status = pipeline.remote.status()?;
        let chat = status.connectors.iter().find(|connector| connector.name == "chat")?;
        ((chat.dropped, chat.sent_messages) == (1, 1)).then_some(())
    });
    assert_eq!(pipeline.end().failures, [""; 0]);
}

#[test]
fn a_source_with_a_full_topic_blocks_the_server_and_can_still_be_ended() {
    let (listener, port) = listen();
    let pipeline = sink(NOBODY, &format!("websocket: {{ url: 'ws://127.0.0.1:{port}' }}"));
    let mut socket = accept(&listener);
    socket.get_ref().set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    // Only messages that fit into buffers are accepted.
    let message = "x".repeat(1024);
    let accepted = (0..1 << 20).take_while(|_| socket.send(Message::text(message.clone())).is_ok()).count();
    assert!(accepted < 1 << 20);
    pipeline.remote.end();
    pipeline.end();
}

#[test]
fn a_sink_sends_everything_and_closes_the_connection() {
    let (listener, port) = listen();
    let pipeline = sink(port, "timer: { every: 1us, count: 3000 }");
    let mut socket = accept(&listener);
    let messages = read_to_end(&mut socket);
    assert_eq!(messages, (0..3000).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(pipeline.end().failures, [""; 0]);
}

#[test]
fn a_sink_waits_for_its_server_and_for_the_next_one() {
    let (listener, port) = listen();
    drop(listener);
    let pipeline = sink(port, "http: { listen: '127.0.0.1:0', path: /in }");
    let address = http::address(&pipeline);
    let send = |numbers: std::ops::Range<u32>| {
        for number in numbers {
            assert!(http::post(&address, number.to_string().as_bytes()).starts_with("HTTP/1.1 202 "));
        }
    };
    send(0..10);
    let first = listen_again(port);
    let mut socket = accept(&first);
    for number in 0..10 {
        assert_eq!(socket.read().unwrap().into_data().to_vec(), number.to_string().as_bytes());
    }
    drop(socket);
    drop(first);
    send(10..20);
    let second = listen_again(port);
    let mut socket = accept(&second);
    send(20..30);
    let reader = thread::spawn(move || read_to_end(&mut socket));
    assert_eq!(pipeline.end().failures, [""; 0]);
    let rest: Vec<u32> = reader.join().unwrap().iter().map(|number| number.parse().unwrap()).collect();
    // Messages in flight when the first server died may be lost. Later ones are not, and none is
    // sent twice.
    let start = rest.first().copied().unwrap();
    assert!((10..=20).contains(&start) && rest == (start..30).collect::<Vec<_>>(), "{rest:?}");
}

#[test]
fn a_sink_that_never_connects_ends_when_asked_twice() {
    let pipeline = sink(NOBODY, "timer: { every: 1us, count: 100000 }");
    pipeline.remote.end();
    pipeline.end();
}
