//! A queue in shared memory with a mutex and two condition variables: the textbook solution.
//!
//! The mutex is robust: if its owner dies, the next one to lock it gets an error and does not wait
//! for ever.
//!
//! Before 2.41, condition variables of glibc could lose a wake-up when several threads wait (glibc
//! bug 25847). The producers of a fan-in here may be affected.

use std::cell::UnsafeCell;
use std::io::{self, ErrorKind};
use std::mem::{self, MaybeUninit};
use std::os::fd::OwnedFd;
use std::ptr;

use anyhow::{Context, Result};
use estafette_contest_common::buffer::Buffer;
use estafette_contest_common::capacity::slots;
use estafette_contest_common::fd_passing::{self, DescriptorChannel};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::Tier;
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};
use libc::{pthread_cond_t, pthread_mutex_t};
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

pub(super) struct ShmMutex;

impl Mechanism for ShmMutex {
    fn spec(&self) -> Spec {
        Spec::new("process/shm-mutex")
            .kernel_copies(0)
            .implementation("a queue in a memfd, a robust pthread_mutex_t and two pthread_cond_t")
            .patterns(&[
                Pattern::PingPong,
                Pattern::Stream,
                Pattern::Duplex,
                Pattern::FanIn,
                Pattern::RequestReply,
                Pattern::PubSub,
            ])
            .max_producers(None)
            .tier(Tier::Suite)
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        Some(slots(case) as u64)
    }
}

impl Transport<Raw> for ShmMutex {
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<SendEnd, RecvEnd>> {
        let (len, slots) = (case.payload.len(), slots(case));
        let each = |queues| SendEnd { queues, buffer: Buffer::new(len) };
        let tx = |queue| each(vec![queue]);
        let rx = |queue| RecvEnd { queue, buffer: Buffer::new(len) };
        let make = || Queue::create(slots, len);
        let map = |file: OwnedFd| Queue::map(&file, slots, len);
        let forward = || make().map(|(theirs, ours)| ([theirs], rx(ours)));
        if case.pattern == Pattern::PubSub {
            let queues = |theirs: Vec<OwnedFd>| theirs.into_iter().map(map).collect::<Result<_>>();
            return fd_passing::open_pub_sub(case, role, rendezvous, forward, |theirs| queues(theirs).map(each));
        }
        let reply = || make().map(|(theirs, ours)| ([theirs], tx(ours)));
        let tx = |[forward]: [OwnedFd; 1]| map(forward).map(tx);
        let rx = |[reply]: [OwnedFd; 1]| map(reply).map(rx);
        DescriptorChannel { forward, reply, tx, rx }.open(case, role, rendezvous)
    }
}

/// The header before the slots, which begin at a cache line. Only the owner of the mutex accesses
/// the counts.
#[repr(C, align(64))]
struct Header {
    mutex: UnsafeCell<pthread_mutex_t>,
    filled: UnsafeCell<pthread_cond_t>,
    freed: UnsafeCell<pthread_cond_t>,
    sent: UnsafeCell<u64>,
    received: UnsafeCell<u64>,
}

/// One process's mapping of the queue. It has `size_of::<Header>() + slots * len` bytes and cannot
/// shrink.
struct Queue {
    map: MmapRaw,
    slots: usize,
    len: usize,
}

/// Converts the return value of a pthread function.
fn check(code: i32) -> io::Result<()> {
    match code {
        0 => Ok(()),
        libc::EOWNERDEAD | libc::ENOTRECOVERABLE => {
            Err(io::Error::new(ErrorKind::BrokenPipe, "the other side died while it owned the mutex"))
        }
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

impl Queue {
    fn size(slots: usize, len: usize) -> usize {
        size_of::<Header>() + slots * len
    }

    /// Creates an empty queue in a new memory file.
    fn create(slots: usize, len: usize) -> Result<(OwnedFd, Queue)> {
        let file = memfd_create("estafette-queue", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .context("making a memory file")?;
        let size = Queue::size(slots, len);
        ftruncate(&file, size as u64).with_context(|| format!("a memory file of {size} bytes"))?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        let queue = Queue::map(&file, slots, len)?;
        queue.init().context("a mutex and its condition variables between processes")?;
        Ok((file, queue))
    }

    /// Maps the queue in a memory file of another process.
    fn map(file: &OwnedFd, slots: usize, len: usize) -> Result<Queue> {
        let size = Queue::size(slots, len);
        let has = rustix::fs::fstat(file)?.st_size;
        anyhow::ensure!(has == size as i64, "the queue has {has} bytes, not {size}");
        Ok(Queue { map: MmapOptions::new().len(size).map_raw(file)?, slots, len })
    }

    #[allow(unsafe_code)]
    fn header(&self) -> &Header {
        // SAFETY: the mapping begins at a page, is longer than a header, and lives as long as
        // `self`. Any bits are valid in its cells. Only the processes of an instance have the
        // mapping; they follow the protocol, and the mutex orders their accesses. A peer that
        // breaks the protocol could do harm whatever bounds are checked here, because a robust
        // mutex contains pointers that glibc follows.
        unsafe { &*self.map.as_mut_ptr().cast::<Header>() }
    }

    /// Initialises the mutex and the condition variables of a queue that no other process has yet.
    #[allow(unsafe_code)]
    fn init(&self) -> io::Result<()> {
        let header = self.header();
        // SAFETY: the attributes are initialised before they are used, and not used after they are
        // destroyed. Mutex and condition variables are in memory that nobody else has, and are
        // initialised once.
        unsafe {
            let mut attributes = MaybeUninit::uninit();
            check(libc::pthread_mutexattr_init(attributes.as_mut_ptr()))?;
            check(libc::pthread_mutexattr_setpshared(attributes.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED))?;
            check(libc::pthread_mutexattr_setrobust(attributes.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST))?;
            check(libc::pthread_mutex_init(header.mutex.get(), attributes.as_ptr()))?;
            check(libc::pthread_mutexattr_destroy(attributes.as_mut_ptr()))?;
            let mut attributes = MaybeUninit::uninit();
            check(libc::pthread_condattr_init(attributes.as_mut_ptr()))?;
            check(libc::pthread_condattr_setpshared(attributes.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED))?;
            for condition in [&header.filled, &header.freed] {
                check(libc::pthread_cond_init(condition.get(), attributes.as_ptr()))?;
            }
            check(libc::pthread_condattr_destroy(attributes.as_mut_ptr()))
        }
    }

    /// Locks the mutex.
    #[allow(unsafe_code)]
    fn lock(&self) -> io::Result<Guard<'_>> {
        // SAFETY: the creator of the queue initialised the mutex before it passed the queue on, and
        // nobody destroys it.
        let code = unsafe { libc::pthread_mutex_lock(self.header().mutex.get()) };
        if code == libc::EOWNERDEAD {
            // The lock succeeded nevertheless. Unlocking it makes it unusable, so all others get an
            // error too.
            drop(Guard(self));
        }
        check(code).map(|()| Guard(self))
    }

    /// Wakes one waiting thread.
    #[allow(unsafe_code)]
    fn signal(&self, condition: &UnsafeCell<pthread_cond_t>) -> io::Result<()> {
        // SAFETY: initialised like the mutex.
        check(unsafe { libc::pthread_cond_signal(condition.get()) })
    }

    #[inline(always)]
    fn send(&self, message: &[u8]) -> io::Result<()> {
        let mut guard = self.lock()?;
        while guard.len() >= self.slots as u64 {
            guard = guard.wait(&self.header().freed)?;
        }
        guard.send(message);
        drop(guard);
        self.signal(&self.header().filled)
    }

    #[inline(always)]
    fn recv(&self, message: &mut [u8]) -> io::Result<()> {
        let mut guard = self.lock()?;
        while guard.len() == 0 {
            guard = guard.wait(&self.header().filled)?;
        }
        guard.recv(message);
        drop(guard);
        self.signal(&self.header().freed)
    }
}

/// A guard of the locked mutex.
struct Guard<'a>(&'a Queue);

impl<'a> Guard<'a> {
    /// Returns how many messages are in the queue.
    #[allow(unsafe_code)]
    fn len(&self) -> u64 {
        let header = self.0.header();
        // SAFETY: this thread owns the mutex, so nobody else accesses the counts.
        unsafe { (*header.sent.get()).wrapping_sub(*header.received.get()) }
    }

    /// Unlocks the mutex, waits for a signal and locks the mutex again. May return without a
    /// signal.
    #[allow(unsafe_code)]
    fn wait(self, condition: &UnsafeCell<pthread_cond_t>) -> io::Result<Guard<'a>> {
        // SAFETY: both were initialised, and this thread owns the mutex.
        let code = unsafe { libc::pthread_cond_wait(condition.get(), self.0.header().mutex.get()) };
        if code == libc::ENOTRECOVERABLE {
            // Only in this case the call returns without the mutex.
            mem::forget(self);
            return Err(check(code).unwrap_err());
        }
        check(code).map(|()| self)
    }

    #[allow(unsafe_code)]
    fn send(&mut self, message: &[u8]) {
        let sent = self.0.header().sent.get();
        assert_eq!(message.len(), self.0.len);
        // SAFETY: this thread owns the mutex, so nobody else accesses the counts and the slots. The
        // slot is within the mapping for any count.
        unsafe {
            ptr::copy_nonoverlapping(message.as_ptr(), self.slot(*sent), message.len());
            *sent = (*sent).wrapping_add(1);
        }
    }

    #[allow(unsafe_code)]
    fn recv(&mut self, message: &mut [u8]) {
        let received = self.0.header().received.get();
        assert_eq!(message.len(), self.0.len);
        // SAFETY: as for `send`.
        unsafe {
            ptr::copy_nonoverlapping(self.slot(*received), message.as_mut_ptr(), message.len());
            *received = (*received).wrapping_add(1);
        }
    }

    /// Returns the address of message `number`.
    fn slot(&self, number: u64) -> *mut u8 {
        let slot = (number % self.0.slots as u64) as usize;
        self.0.map.as_mut_ptr().wrapping_add(size_of::<Header>() + slot * self.0.len)
    }
}

impl Drop for Guard<'_> {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: this thread owns the mutex.
        unsafe { libc::pthread_mutex_unlock(self.0.header().mutex.get()) };
    }
}

/// The sending end.
pub(super) struct SendEnd {
    queues: Vec<Queue>,
    buffer: Buffer,
}

impl SendEnd {
    #[inline(always)]
    fn send_buffer(&self) -> io::Result<()> {
        for queue in &self.queues {
            queue.send(&self.buffer)?;
        }
        Ok(())
    }
}

impl Tx for SendEnd {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        source.fill(&mut self.buffer);
        self.send_buffer()
    }
}

/// The receiving end.
pub(super) struct RecvEnd {
    queue: Queue,
    buffer: Buffer,
}

impl Rx for RecvEnd {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.queue.recv(&mut self.buffer).map(|()| verifier.bytes(&self.buffer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_in_order_and_a_full_queue_blocks_senders() {
        let (file, tx) = Queue::create(4, 8).unwrap();
        let rx = Queue::map(&file, 4, 8).unwrap();
        let sender = std::thread::spawn(move || (0..1_000u64).try_for_each(|n| tx.send(&n.to_le_bytes())));
        for n in 0..1_000u64 {
            let mut message = [0; 8];
            rx.recv(&mut message).unwrap();
            assert_eq!(u64::from_le_bytes(message), n);
        }
        sender.join().unwrap().unwrap();
    }

    #[test]
    fn a_dead_owner_causes_an_error_not_a_hang() {
        let (file, queue) = Queue::create(4, 8).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| std::mem::forget(queue.lock().unwrap()));
        });
        let other = Queue::map(&file, 4, 8).unwrap();
        let error = other.send(&[0; 8]).unwrap_err().to_string();
        assert!(error.contains("died"), "{error}");
    }

    #[test]
    fn a_file_of_another_size_is_refused() {
        let (file, _) = Queue::create(4, 8).unwrap();
        let error = Queue::map(&file, 8, 8).err().unwrap().to_string();
        assert!(error.contains("bytes, not"), "{error}");
    }
}
