//! A backend for tests that tells what epoll tells as no system does, though it might: in any order, one edge or some at a time,
//! later, in parts, twice and in vain. Chance is that of a seed; what is told depends on nothing else where everything happens in one
//! thread, as within a process and between UNIX sockets.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;

use super::{Backend, Ready, Registry, Sides, epoll};
use crate::shared::lock;

/// What is known of the descriptors.
#[derive(Default)]
struct Known {
    /// Their indexes.
    added: HashMap<RawFd, usize>,
    /// What is to be told.
    held: Vec<Ready>,
}

struct Scrambled {
    epoll: Box<dyn Backend>,
    known: Arc<Mutex<Known>>,
    chance: Rng,
    /// It tells in vain, and twice. Not every test wants that, as it makes up for what a node forgets.
    vain: bool,
    /// The last wait kept something back.
    more: bool,
}

struct ScrambledRegistry {
    epoll: Arc<dyn Registry>,
    known: Arc<Mutex<Known>>,
}

/// Both sides of one, which tells in vain as well or does not.
pub(crate) fn scrambled(seed: u64, vain: bool) -> io::Result<Sides> {
    let (backend, registry) = epoll()?;
    let known = Arc::<Mutex<Known>>::default();
    let chance = Rng::with_seed(seed);
    let scrambled = Scrambled { epoll: backend, known: known.clone(), chance, vain, more: false };
    Ok((Box::new(scrambled), Arc::new(ScrambledRegistry { epoll: registry, known })))
}

/// An edge in two parts, where it has two that may come apart: the end of both directions is told at once.
fn parts(edge: Ready) -> Vec<Ready> {
    if edge.readable && edge.writable && !edge.closed && edge.cut.is_none() {
        vec![Ready { writable: false, ..edge }, Ready { readable: false, ..edge }]
    } else {
        vec![edge]
    }
}

impl Backend for Scrambled {
    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        let holds = !lock(&self.known).held.is_empty();
        let mut fresh = Vec::new();
        self.epoll.wait(if holds { Some(Duration::ZERO) } else { timeout }, &mut fresh)?;
        let chance = &mut self.chance;
        let mut known = lock(&self.known);
        for edge in fresh {
            known.held.extend(if chance.bool() { parts(edge) } else { vec![edge] });
            if self.vain && chance.u8(..4) == 0 {
                known.held.push(edge);
            }
        }
        // By their indexes, as those of a map come in an order of their own.
        let mut indexes: Vec<_> = known.added.values().copied().collect();
        indexes.sort_unstable();
        if self.vain
            && chance.bool()
            && let Some(index) = chance.choice(indexes)
        {
            let (readable, writable) = (chance.bool(), chance.bool());
            known.held.push(Ready { index, readable, writable, closed: false, cut: None });
        }
        chance.shuffle(&mut known.held);
        let told = if chance.bool() { 1 } else { chance.usize(..=known.held.len()) };
        let left = known.held.len().saturating_sub(told);
        ready.extend(known.held.drain(left..));
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
    fn add(&self, source: BorrowedFd<'_>, index: usize, room: bool) -> io::Result<()> {
        lock(&self.known).added.insert(source.as_raw_fd(), index);
        self.epoll.add(source, index, room)
    }

    fn ask(&self, source: BorrowedFd<'_>, index: usize, room: bool) -> io::Result<()> {
        self.epoll.ask(source, index, room)
    }

    fn remove(&self, source: BorrowedFd<'_>) {
        let mut known = lock(&self.known);
        if let Some(index) = known.added.remove(&source.as_raw_fd()) {
            known.held.retain(|edge| edge.index != index);
        }
        drop(known);
        self.epoll.remove(source);
    }

    fn wake(&self) {
        self.epoll.wake();
    }
}
