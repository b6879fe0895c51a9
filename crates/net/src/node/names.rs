//! Connections to a host whose name has to be looked up first.

use std::io;
use std::net::SocketAddr;
use std::sync::Weak;

use super::Node;
use crate::connection::Connection;
use crate::event::Reason;
use crate::shared::{Connecting, How};
use crate::slab::Key;

impl<S> Node<S> {
    /// The name of a connection's host was looked up.
    pub(super) fn found(&mut self, key: Key, of: &Weak<Connection>, found: io::Result<Vec<SocketAddr>>) {
        let Some(incoming) = self.stream_of(key, of.as_ptr()) else { return };
        let Some(How::Connecting(connecting)) = incoming.opening.take() else { return };
        let Connecting { address, options, .. } = *connecting;
        let begun = found.and_then(|to| self.connect_instead(key, &address, to, &options));
        if let Err(error) = begun {
            self.forget(key, Reason::NotConnected(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::io::Read;
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex, mpsc};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::{Endpoint, Event, Limits, Outcome};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A resolver that answers when it is told to, and how many names it is asked for at a time.
    struct Slow {
        answers: mpsc::Sender<io::Result<Vec<SocketAddr>>>,
        asked: Arc<AtomicUsize>,
        most: Arc<AtomicUsize>,
    }

    fn slow(limits: Limits) -> (Node<()>, Slow) {
        let mut node = Node::with_limits(limits).unwrap();
        let (answers, told) = mpsc::channel();
        let told = Mutex::new(told);
        let (asked, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let slow = Slow { answers, asked: asked.clone(), most: most.clone() };
        let shared = Arc::get_mut(&mut node.shared).expect("nobody has a handle yet");
        let lookups = Arc::get_mut(&mut shared.lookups).expect("no thread was started yet");
        lookups.resolver = Arc::new(move |_, _| {
            most.fetch_max(asked.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // A test that has ended without an answer has none.
            let answer = told.lock().unwrap().recv().unwrap_or_else(|_| Err(io::ErrorKind::Interrupted.into()));
            asked.fetch_sub(1, Ordering::SeqCst);
            answer
        });
        (node, slow)
    }

    impl Slow {
        fn until_asked(&self, names: usize) {
            let begun = Instant::now();
            while self.most.load(Ordering::SeqCst) < names {
                assert!(begun.elapsed() < PATIENCE, "never asked");
                std::thread::yield_now();
            }
        }
    }

    /// What is told next.
    fn told(node: &mut Node<()>) -> String {
        match node.next(Some(PATIENCE)).unwrap() {
            Some(Event::Closed { reason, .. }) => reason.to_string(),
            Some(event) => format!("{event:?}").split('(').next().unwrap_or_default().to_owned(),
            None => panic!("nothing is told"),
        }
    }

    #[test]
    fn what_is_sent_during_a_lookup_waits_and_the_next_address_is_tried() {
        let (mut node, slow) = slow(Limits::default());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap();
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let handle = node.handle();
        let endpoint = handle.connect("tcp://example.org:80").unwrap();
        assert_eq!(handle.send(endpoint, b"early"), Outcome::Queued);
        handle.close(endpoint);
        slow.until_asked(1);
        assert!(node.next(Some(Duration::ZERO)).unwrap().is_none());
        slow.answers.send(Ok(vec![nobody, there])).unwrap();
        assert_eq!(told(&mut node), "Connected");
        let (mut stream, _) = listener.accept().unwrap();
        let mut first = [0; 5];
        stream.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"early");
        drop(stream);
        // It was asked to close before any address was known.
        while !told(&mut node).starts_with("closed here") {}
    }

    #[test]
    fn a_name_without_address_is_told() {
        let (mut node, slow) = slow(Limits::default());
        let endpoint = node.handle().connect("ws://example.org").unwrap();
        slow.answers.send(Err(io::Error::other("no such name"))).unwrap();
        assert_eq!(told(&mut node), "not connected: no such name");
        assert_eq!(node.handle().send(endpoint, b"late"), Outcome::Closed);
    }

    #[test]
    fn a_lookup_ends_by_a_close_and_in_time() {
        let limits = Limits { handshake: Duration::from_millis(50), ..Limits::default() };
        let (mut node, slow) = slow(limits);
        let first = node.handle().connect("tcp://example.org:80").unwrap();
        node.handle().close(first);
        assert_eq!(told(&mut node), "closed here");
        node.handle().connect("tcp://example.org:80").unwrap();
        assert_eq!(told(&mut node), "no connection in time");
        slow.until_asked(1);
        // Neither wants to know any more.
        slow.answers.send(Ok(Vec::new())).unwrap();
        slow.answers.send(Ok(Vec::new())).unwrap();
        assert!(node.next(Some(Duration::from_millis(20))).unwrap().is_none());
    }

    #[test]
    fn a_node_that_is_dropped_leaves_nothing_to_its_lookups() {
        let (node, slow) = slow(Limits::default());
        node.handle().connect("tcp://example.org:80").unwrap();
        slow.until_asked(1);
        let (lookups, shared) = (Arc::downgrade(&node.shared.lookups), Arc::downgrade(&node.shared));
        drop(node);
        assert!(lookups.upgrade().is_none() && shared.upgrade().is_none());
        slow.answers.send(Ok(Vec::new())).unwrap();
        let begun = Instant::now();
        while slow.asked.load(Ordering::SeqCst) > 0 {
            assert!(begun.elapsed() < PATIENCE, "the thread never ends");
            std::thread::yield_now();
        }
    }

    #[test]
    fn few_names_are_looked_up_at_a_time_and_every_one_in_the_end() {
        let (mut node, slow) = slow(Limits::default());
        let handle = node.handle();
        let mut endpoints: HashSet<Endpoint> =
            (0..50).map(|_| handle.connect("tcp://example.org:80").unwrap()).collect();
        slow.until_asked(8);
        for _ in 0..endpoints.len() {
            slow.answers.send(Err(io::ErrorKind::NotFound.into())).unwrap();
        }
        while !endpoints.is_empty() {
            match node.next(Some(PATIENCE)).unwrap() {
                Some(Event::Closed { endpoint, .. }) => assert!(endpoints.remove(&endpoint)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(slow.most.load(Ordering::SeqCst), 8);
        assert_eq!(handle.shared.count(), 0);
    }
}
