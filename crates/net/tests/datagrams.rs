//! Datagram sockets.

mod common;

use common::{Seen, Side};
use estafette_net::conformance::pattern;
use estafette_net::{Options, Outcome};

#[test]
fn a_reply_goes_to_the_sender_of_a_datagram() {
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
fn datagrams_of_a_batch_keep_their_boundaries_whatever_their_lengths() {
    let (mut server, client) = (Side::new(), Side::new());
    let listener = server.handle.listen("udp://127.0.0.1:0").unwrap();
    let address = server.handle.local_address(listener).unwrap();
    // A run longer than one system call sends, a shorter datagram behind it, all different lengths,
    // and empty datagrams. All of it fits into the receiver's buffer.
    let lengths = [vec![40; 70], vec![7], (1..20).collect(), vec![0, 0], vec![1400; 3], vec![20_000], vec![3]].concat();
    let sent: Vec<_> = (0..).zip(&lengths).map(|(seed, len)| pattern(seed, *len)).collect();
    for connected in [true, false] {
        let options = Options::default().broadcast(!connected);
        let to = client.handle.connect_with(&address, &options).unwrap();
        let mut batch = client.handle.batch(to);
        assert!(sent.iter().all(|datagram| batch.push(datagram).is_accepted()));
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
