//! Values of a program by endpoint.

use std::collections::HashMap;
use std::fmt;

use crate::event::{Endpoint, Event};
use crate::slab::Key;

/// A table with a value for each endpoint of a node, such as the user behind a connection.
///
/// It belongs to the program and not to the node: it needs no lock, and its values may be of any
/// type. A look-up is an index and a comparison, without hashing; only values of single peers of a
/// shared datagram socket are hashed. Its memory is proportional to the highest number of endpoints
/// that existed at the same time.
///
/// An endpoint that has ended never stands for another one. [`EndpointMap::forget`] removes its
/// value; if nothing does, the value stays until another endpoint is inserted in its place.
///
/// ```
/// use estafette_net::{EndpointMap, Event, Node};
///
/// let mut node = Node::<()>::new()?;
/// let handle = node.handle();
/// let listener = handle.listen("tcp+msg://127.0.0.1:0")?;
/// let client = handle.connect(handle.local_address(listener).ok_or("no address")?)?;
/// handle.send(client, b"Zoe");
/// handle.close(client);
///
/// let mut names = EndpointMap::new();
/// node.run(|event| match event {
///     Event::Accepted { endpoint, .. } => drop(names.insert(endpoint, String::from("nobody"))),
///     Event::Message(from, message) => {
///         if let Some(name) = names.get_mut(from) {
///             *name = String::from_utf8_lossy(&message).into_owned();
///         }
///     }
///     Event::Closed { endpoint, .. } => {
///         if let Some(name) = names.remove(endpoint) {
///             assert_eq!(name, "Zoe");
///             handle.stop();
///         }
///     }
///     _ => {}
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct EndpointMap<T> {
    /// By the index of the key.
    values: Vec<Option<(Key, T)>>,
    /// Those of single peers of a shared datagram socket.
    peers: HashMap<Endpoint, T>,
    len: usize,
}

impl<T> Default for EndpointMap<T> {
    fn default() -> EndpointMap<T> {
        EndpointMap::new()
    }
}

impl<T> EndpointMap<T> {
    /// Creates an empty table. It allocates nothing.
    pub fn new() -> EndpointMap<T> {
        EndpointMap { values: Vec::new(), peers: HashMap::new(), len: 0 }
    }

    /// Sets the value of an endpoint, and returns the one that it had. A value of an endpoint that
    /// has ended and whose place this one has taken is dropped.
    pub fn insert(&mut self, endpoint: Endpoint, value: T) -> Option<T> {
        if endpoint.remote.is_some() {
            return self.peers.insert(endpoint, value);
        }
        let index = endpoint.key.index as usize;
        if self.values.len() <= index {
            self.values.resize_with(index + 1, || None);
        }
        let before = self.values[index].replace((endpoint.key, value));
        self.len += usize::from(before.is_none());
        before.filter(|(key, _)| *key == endpoint.key).map(|(_, value)| value)
    }

    /// Returns the value of an endpoint.
    pub fn get(&self, endpoint: Endpoint) -> Option<&T> {
        if endpoint.remote.is_some() {
            return self.peers.get(&endpoint);
        }
        let (key, value) = self.values.get(endpoint.key.index as usize)?.as_ref()?;
        (*key == endpoint.key).then_some(value)
    }

    /// Returns the value of an endpoint, to be changed.
    pub fn get_mut(&mut self, endpoint: Endpoint) -> Option<&mut T> {
        if endpoint.remote.is_some() {
            return self.peers.get_mut(&endpoint);
        }
        let (key, value) = self.values.get_mut(endpoint.key.index as usize)?.as_mut()?;
        (*key == endpoint.key).then_some(value)
    }

    /// Removes the value of an endpoint, and returns it.
    pub fn remove(&mut self, endpoint: Endpoint) -> Option<T> {
        if endpoint.remote.is_some() {
            return self.peers.remove(&endpoint);
        }
        let (_, value) = self.values.get_mut(endpoint.key.index as usize)?.take_if(|(key, _)| *key == endpoint.key)?;
        self.len -= 1;
        Some(value)
    }

    /// Removes the value of an endpoint that `event` reports as [`Event::Closed`], and returns it;
    /// with a shared datagram socket, the values of its peers too. Any other event changes nothing.
    pub fn forget<S>(&mut self, event: &Event<'_, S>) -> Option<T> {
        let Event::Closed { endpoint, .. } = event else { return None };
        if !self.peers.is_empty() {
            self.peers.retain(|peer, _| peer.key != endpoint.key);
        }
        self.remove(*endpoint)
    }

    /// All endpoints and their values, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (Endpoint, &T)> {
        let values = self.values.iter().flatten().map(|(key, value)| (Endpoint::new(*key), value));
        values.chain(self.peers.iter().map(|(peer, value)| (*peer, value)))
    }

    /// As [`EndpointMap::iter`], with values to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Endpoint, &mut T)> {
        let values = self.values.iter_mut().flatten().map(|(key, value)| (Endpoint::new(*key), value));
        values.chain(self.peers.iter_mut().map(|(peer, value)| (*peer, value)))
    }

    /// How many endpoints have a value.
    pub fn len(&self) -> usize {
        self.len + self.peers.len()
    }

    /// Whether no endpoint has a value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: fmt::Debug> fmt::Debug for EndpointMap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::Reason;
    use crate::slab::Slab;

    fn peer(key: Key, port: u16) -> Endpoint {
        Endpoint { key, remote: Some(([127, 0, 0, 1], port).into()) }
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((0_usize..12, 0_u16..4, 0_u8..4, any::<u32>()), 0..200)) {
            let mut slab = Slab::new();
            let keys: Vec<_> = (0..12).map(|i| slab.insert_with(|_| i)).collect();
            let (mut map, mut model) = (EndpointMap::new(), HashMap::new());
            for (which, port, what, value) in steps {
                let endpoint = if port == 0 { Endpoint::new(keys[which]) } else { peer(keys[which], port) };
                match what {
                    0 | 1 => prop_assert_eq!(map.insert(endpoint, value), model.insert(endpoint, value)),
                    2 => prop_assert_eq!(map.remove(endpoint), model.remove(&endpoint)),
                    _ => prop_assert_eq!(map.get_mut(endpoint).copied(), model.get(&endpoint).copied()),
                }
                prop_assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
                prop_assert!(map.iter().map(|(endpoint, value)| (endpoint, *value)).collect::<HashMap<_, _>>() == model);
            }
        }
    }

    #[test]
    fn an_endpoint_never_has_the_value_of_an_earlier_one_in_its_place() {
        let mut slab = Slab::new();
        let first = slab.insert_with(|_| ());
        slab.remove(first);
        let second = slab.insert_with(|_| ());
        assert_eq!(first.index, second.index);
        let mut map = EndpointMap::new();
        map.insert(Endpoint::new(first), "first");
        assert_eq!(map.get(Endpoint::new(second)), None);
        assert_eq!(map.remove(Endpoint::new(second)), None);
        assert_eq!(map.insert(Endpoint::new(second), "second"), None);
        assert_eq!((map.get(Endpoint::new(first)), map.len()), (None, 1));
        assert_eq!(map.get(Endpoint::new(second)), Some(&"second"));
    }

    #[test]
    fn a_closed_endpoint_is_forgotten_with_its_peers() {
        let mut slab = Slab::new();
        let (socket, other) = (slab.insert_with(|_| ()), slab.insert_with(|_| ()));
        let mut map = EndpointMap::new();
        map.insert(Endpoint::new(socket), 1);
        map.insert(peer(socket, 1), 2);
        map.insert(peer(other, 1), 3);
        let closed =
            |key| -> Event<'static, ()> { Event::Closed { endpoint: Endpoint::new(key), reason: Reason::Closed } };
        assert_eq!(map.forget::<()>(&Event::Drained(Endpoint::new(socket))), None);
        assert_eq!(map.forget::<()>(&closed(socket)), Some(1));
        assert_eq!(map.iter().map(|(_, value)| *value).collect::<Vec<_>>(), [3]);
        assert_eq!(map.forget::<()>(&closed(other)), None);
        assert!(map.is_empty());
    }
}
