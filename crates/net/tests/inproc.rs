//! What only connections within one process can do.

mod common;

use std::thread;

use common::{Seen, Side, connected_with, until};
use estafette_net::{Event, Node, Options, Outcome};

#[test]
fn a_node_can_connect_to_itself() {
    let mut side = Side::new();
    let listener = side.handle.listen("inproc+msg://itself").unwrap();
    assert_eq!(side.handle.local_address(listener).unwrap().to_string(), "inproc+msg://itself");
    let endpoint = side.handle.connect("inproc+msg://itself").unwrap();
    assert_eq!(side.handle.peer_address(endpoint).unwrap().to_string(), "inproc://itself");
    assert_eq!(side.handle.send(endpoint, b"to myself"), Outcome::Queued);
    let accepted = side.until("a message", |seen| match seen {
        Seen::Message(from, _, message) if message == b"to myself" => Some(*from),
        _ => None,
    });
    assert_eq!(side.handle.send(accepted, b"thanks"), Outcome::Sent);
    side.until("an answer", |seen| matches!(seen, Seen::Message(from, ..) if *from == endpoint).then_some(()));
}

#[test]
fn a_name_has_one_listener_and_is_free_again_when_that_ends() {
    let (mut first, second) = (Side::new(), Side::new());
    let listener = first.handle.listen("inproc://one").unwrap();
    let error = second.handle.listen("inproc+msg://one").unwrap_err().to_string();
    assert_eq!(error, "listening at inproc+msg://one: the name is in use in this process");
    first.handle.close(listener);
    assert_eq!(first.until_closed(listener), "closed here");
    let error = first.handle.connect("inproc://one").unwrap_err().to_string();
    assert_eq!(error, "connecting to inproc://one: nobody in this process listens at this name");
    second.handle.listen("inproc://one").unwrap();
    drop(second);
    first.handle.listen("inproc://one").unwrap();
}

#[test]
fn connections_in_the_backlog_end_with_the_listener_and_a_full_backlog_refuses() {
    let (server, mut client) = (Side::new(), Side::new());
    server.handle.listen_with("inproc://backlog", &Options::default().backlog(1)).unwrap();
    let endpoint = client.handle.connect("inproc://backlog").unwrap();
    let error = client.handle.connect("inproc://backlog").unwrap_err().to_string();
    assert_eq!(error, "connecting to inproc://backlog: the listener's backlog is full");
    drop(server);
    assert_eq!(client.until_closed(endpoint), "ended by the peer");
}

#[test]
fn the_capacity_of_a_pipe_is_an_option() {
    let (mut server, mut client) = (Side::new(), Side::new());
    let options = (Options::default().buffer(10), Options::default());
    let (accepted, endpoint, _) = connected_with(&mut server, &mut client, "inproc://room", &options);
    assert_eq!(client.handle.send(endpoint, &[1; 10]), Outcome::Sent);
    assert_eq!(client.handle.send(endpoint, &[2; 25]), Outcome::Queued);
    until(&mut server, &mut client, "all there", |server, client| {
        server.messages(accepted).concat().len() == 35 && client.seen.contains(&Seen::Drained(endpoint))
    });
}

#[test]
fn nodes_of_two_threads_lose_nothing_whichever_one_waits() {
    const MESSAGES: u32 = 20_000;
    let mut server = Node::<()>::new().unwrap();
    let answering = server.handle();
    answering.listen_with("inproc+msg://threads", &Options::default().buffer(5000)).unwrap();
    let answers = thread::spawn(move || {
        let (mut seen, mut waiting) = (0, std::collections::VecDeque::new());
        let mut peer = None;
        server
            .run(|event| {
                if let Event::Message(from, message) = event {
                    assert_eq!(message[..4], u32::to_le_bytes(seen));
                    seen += 1;
                    peer = Some(from);
                    waiting.push_back(message.take());
                } else if let Event::Closed { .. } = event {
                    answering.stop();
                }
                while let (Some(peer), Some(message)) = (peer, waiting.front())
                    && answering.send(peer, message).is_accepted()
                {
                    waiting.pop_front();
                }
            })
            .unwrap();
        seen
    });
    let mut client = Node::<()>::new().unwrap();
    let handle = client.handle();
    let endpoint = handle.connect("inproc+msg://threads").unwrap();
    let (mut sent, mut seen) = (0, 0);
    let message = |i: u32| [&i.to_le_bytes()[..], &vec![i as u8; (i % 3000) as usize]].concat();
    client
        .run(|event| {
            match event {
                Event::Message(_, answer) => {
                    assert!(*answer == message(seen));
                    seen += 1;
                    if seen == MESSAGES {
                        handle.close(endpoint);
                    }
                }
                Event::Closed { .. } => handle.stop(),
                _ => {}
            }
            while sent < MESSAGES && handle.send(endpoint, &message(sent)).is_accepted() {
                sent += 1;
            }
        })
        .unwrap();
    assert_eq!((answers.join().unwrap(), seen), (MESSAGES, MESSAGES));
}
