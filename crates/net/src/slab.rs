//! A slab whose keys are not reused: a key identifies neither a later value in the same slot nor a
//! value of another slab.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

/// Identifies one value of a [`Slab`]. It becomes invalid when the value is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) index: u32,
    /// How many values the slot held before this one. It wraps around after 2^32.
    generation: u32,
    /// The number of its slab.
    slab: u32,
}

impl Key {
    /// A key of no value.
    pub(crate) const NONE: Key = Key { index: u32::MAX, generation: u32::MAX, slab: u32::MAX };
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}.{}", self.slab, self.index, self.generation)
    }
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// A vector whose free slots are filled again.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    /// Distinguishes the slabs of this process. It wraps around after 2^32.
    number: u32,
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Slab<T> {
        static SLABS: AtomicU32 = AtomicU32::new(0);
        Slab { number: SLABS.fetch_add(1, Ordering::Relaxed), slots: Vec::new(), free: Vec::new() }
    }

    /// Whether the key is from this slab, even if its value was removed.
    pub(crate) fn issued(&self, key: Key) -> bool {
        key.slab == self.number
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Inserts the value that `make` returns; `make` gets its key.
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(Key) -> T) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, value: None });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        let key = Key { index, generation: slot.generation, slab: self.number };
        slot.value = Some(make(key));
        key
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        slot.value.as_ref().filter(|_| slot.generation == key.generation && self.issued(key))
    }

    /// All values, with their keys.
    pub(crate) fn values(&self) -> impl Iterator<Item = (Key, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let key = Key { index: index as u32, generation: slot.generation, slab: self.number };
            slot.value.as_ref().map(|value| (key, value))
        })
    }

    /// Replaces the value of a key, and returns the old one.
    pub(crate) fn replace(&mut self, key: Key, value: T) -> Option<T> {
        let slot = self.slot(key)?;
        Some(std::mem::replace(slot.value.as_mut()?, value))
    }

    /// The slot of a key, unless another value is in it.
    fn slot(&mut self, key: Key) -> Option<&mut Slot<T>> {
        let is_own = self.issued(key);
        self.slots.get_mut(key.index as usize).filter(|slot| is_own && slot.generation == key.generation)
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slot(key)?;
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_of_another_slab_identifies_nothing() {
        let (mut slab, mut other) = (Slab::new(), Slab::new());
        let (key, foreign) = (slab.insert_with(|_| 1), other.insert_with(|_| 2));
        assert_ne!(key, foreign);
        assert!(slab.issued(key) && !slab.issued(foreign));
        assert_eq!((slab.get(foreign), other.get(foreign)), (None, Some(&2)));
        assert_eq!((slab.replace(foreign, 3), slab.remove(foreign)), (None, None));
        assert_eq!(slab.get(key), Some(&1));
    }

    proptest! {
        #[test]
        fn a_slab_is_a_map_whose_keys_are_never_reused(steps in prop::collection::vec(any::<(bool, u8)>(), 0..200)) {
            let mut slab = Slab::new();
            let mut model = HashMap::new();
            let mut gone = Vec::new();
            for (insert, value) in steps {
                if insert || model.is_empty() {
                    let key = slab.insert_with(|_| value);
                    prop_assert!(!gone.contains(&key));
                    prop_assert!(model.insert(key, value).is_none());
                } else {
                    let key = *model.keys().nth(usize::from(value) % model.len()).unwrap();
                    prop_assert_eq!(slab.remove(key), model.remove(&key));
                    gone.push(key);
                }
                prop_assert_eq!(slab.len(), model.len());
                prop_assert!(slab.values().map(|(key, value)| (key, *value)).collect::<HashMap<_, _>>() == model);
                prop_assert!(model.iter().all(|(key, value)| slab.get(*key) == Some(value)));
                prop_assert!(gone.iter().all(|key| slab.get(*key).is_none()));
            }
        }
    }
}
