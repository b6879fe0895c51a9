//! A test backend that reports epoll's events as no system does, though any might: reordered, one
//! or several at a time, delayed, split, repeated and spurious.
//!
//! A seed determines its choices. A test is deterministic if everything happens in one thread, as
//! with `inproc` and UNIX sockets.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;

use super::{Backend, BackendPair, Ready, Registry, epoll};
use crate::lock::lock;

/// The state that both sides share.
#[derive(Default)]
struct Known {
    /// The index of each descriptor.
    added: HashMap<RawFd, usize>,
    /// Edges to be reported.
    pending: Vec<Ready>,
}

struct Scrambled {
    epoll: Box<dyn Backend>,
    known: Arc<Mutex<Known>>,
    chance: Rng,
    /// Whether to add spurious and repeated edges. Some tests go without, because such edges hide
    /// missing reads.
    vain: bool,
    /// The last wait held back some edges.
    more: bool,
}

struct ScrambledRegistry {
    epoll: Arc<dyn Registry>,
    known: Arc<Mutex<Known>>,
}

/// Creates both sides. `vain` adds spurious and repeated edges.
pub(crate) fn scrambled(seed: u64, vain: bool) -> io::Result<BackendPair> {
    let (backend, registry) = epoll()?;
    let known = Arc::<Mutex<Known>>::default();
    let chance = Rng::with_seed(seed);
    let scrambled = Scrambled { epoll: backend, known: known.clone(), chance, vain, more: false };
    Ok((Box::new(scrambled), Arc::new(ScrambledRegistry { epoll: registry, known })))
}

/// Splits an edge into two where possible. The end of both directions stays one edge.
fn parts(edge: Ready) -> Vec<Ready> {
    if edge.readable && edge.writable && !edge.read_closed && edge.write_closed.is_none() {
        vec![Ready { writable: false, ..edge }, Ready { readable: false, ..edge }]
    } else {
        vec![edge]
    }
}

impl Backend for Scrambled {
    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        let holds = !lock(&self.known).pending.is_empty();
        let mut fresh = Vec::new();
        self.epoll.wait(if holds { Some(Duration::ZERO) } else { timeout }, &mut fresh)?;
        let chance = &mut self.chance;
        let mut known = lock(&self.known);
        for edge in fresh {
            known.pending.extend(if chance.bool() { parts(edge) } else { vec![edge] });
            if self.vain && chance.u8(..4) == 0 {
                known.pending.push(edge);
            }
        }
        // Sorted, because a map's order is not deterministic.
        let mut indexes: Vec<_> = known.added.values().copied().collect();
        indexes.sort_unstable();
        if self.vain
            && chance.bool()
            && let Some(index) = chance.choice(indexes)
        {
            let (readable, writable) = (chance.bool(), chance.bool());
            known.pending.push(Ready { index, readable, writable, read_closed: false, write_closed: None });
        }
        chance.shuffle(&mut known.pending);
        let count = if chance.bool() { 1 } else { chance.usize(..=known.pending.len()) };
        let left = known.pending.len().saturating_sub(count);
        ready.extend(known.pending.drain(left..));
        self.more = left > 0;
        Ok(())
    }

    #[cfg(feature = "tokio")]
    fn may_have_more(&self) -> bool {
        self.more || self.epoll.may_have_more()
    }

    #[cfg(feature = "tokio")]
    fn descriptor(&self) -> io::Result<std::os::fd::OwnedFd> {
        self.epoll.descriptor()
    }
}

impl Registry for ScrambledRegistry {
    fn add(&self, source: BorrowedFd<'_>, index: usize, writable: bool) -> io::Result<()> {
        lock(&self.known).added.insert(source.as_raw_fd(), index);
        self.epoll.add(source, index, writable)
    }

    fn set_writable(&self, source: BorrowedFd<'_>, index: usize, writable: bool) -> io::Result<()> {
        self.epoll.set_writable(source, index, writable)
    }

    fn remove(&self, source: BorrowedFd<'_>) {
        let mut known = lock(&self.known);
        if let Some(index) = known.added.remove(&source.as_raw_fd()) {
            known.pending.retain(|edge| edge.index != index);
        }
        drop(known);
        self.epoll.remove(source);
    }

    fn wake(&self) {
        self.epoll.wake();
    }
}
