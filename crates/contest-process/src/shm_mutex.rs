//! A queue in shared memory under a mutex, with condition variables to wait on: what a textbook writes. The mutex is
//! robust: who comes after an owner that died hears of it, and does not wait for ever.
//!
//! Before 2.41, glibc's condition variables could lose a wake-up where several wait (its bug 25847): so may the producers of
//! a fan-in here.

use std::cell::UnsafeCell;
use std::future::{Future, ready};
use std::io::{self, ErrorKind};
use std::mem::{self, MaybeUninit};
use std::os::fd::OwnedFd;
use std::ptr;

use anyhow::{Context, Result};
use estafette_contest_common::buffer::Buffer;
use estafette_contest_common::capacity::slots;
use estafette_contest_common::fd_passing;
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
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        let (len, slots) = (case.payload.len(), slots(case));
        let each = |queues| Sending { queues, buffer: Buffer::new(len) };
        let tx = |queue| each(vec![queue]);
        let rx = |queue| Receiving { queue, buffer: Buffer::new(len) };
        let make = || Queue::create(slots, len);
        let map = |file: OwnedFd| Queue::map(&file, slots, len);
        let forward = || make().map(|(theirs, ours)| (theirs, rx(ours)));
        if case.pattern == Pattern::PubSub {
            let queues = |theirs: Vec<OwnedFd>| theirs.into_iter().map(map).collect::<Result<_>>();
            return fd_passing::open_pub_sub(case, role, rendezvous, forward, |theirs| queues(theirs).map(each));
        }
        let reply = || make().map(|(theirs, ours)| (theirs, tx(ours)));
        fd_passing::open(
            case,
            role,
            rendezvous,
            forward,
            reply,
            |forward| map(forward).map(tx),
            |reply| map(reply).map(rx),
        )
    }
}

/// What stands before the slots, which begin at a cache line. The counts are touched by the mutex's owner alone.
#[repr(C, align(64))]
struct Header {
    mutex: UnsafeCell<pthread_mutex_t>,
    filled: UnsafeCell<pthread_cond_t>,
    freed: UnsafeCell<pthread_cond_t>,
    sent: UnsafeCell<u64>,
    received: UnsafeCell<u64>,
}

/// The queue as one process has it: a mapping of `size_of::<Header>() + slots * len` bytes that cannot shrink.
struct Queue {
    map: MmapRaw,
    slots: usize,
    len: usize,
}

/// What a function of pthreads says.
fn check(code: i32) -> io::Result<()> {
    match code {
        0 => Ok(()),
        libc::EOWNERDEAD | libc::ENOTRECOVERABLE => {
            Err(io::Error::new(ErrorKind::BrokenPipe, "the other side died with the mutex in its hands"))
        }
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

impl Queue {
    fn size(slots: usize, len: usize) -> usize {
        size_of::<Header>() + slots * len
    }

    /// An empty queue, and the memory file it lies in.
    fn create(slots: usize, len: usize) -> Result<(OwnedFd, Queue)> {
        let file = memfd_create("estafette-queue", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .context("making a memory file")?;
        let size = Queue::size(slots, len);
        ftruncate(&file, size as u64).with_context(|| format!("a memory file of {size} bytes"))?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        let queue = Queue::map(&file, slots, len)?;
        queue.begin().context("a mutex and its condition variables between processes")?;
        Ok((file, queue))
    }

    /// The queue in a memory file of another process.
    fn map(file: &OwnedFd, slots: usize, len: usize) -> Result<Queue> {
        let size = Queue::size(slots, len);
        let has = rustix::fs::fstat(file)?.st_size;
        anyhow::ensure!(has == size as i64, "the queue has {has} bytes, not {size}");
        Ok(Queue { map: MmapOptions::new().len(size).map_raw(file)?, slots, len })
    }

    #[allow(unsafe_code)]
    fn header(&self) -> &Header {
        // SAFETY: the mapping begins at a page, is longer than a header, and stays as long as `self`; any bits are valid in its
        // cells. The mutex puts in order what the processes of an instance do, who alone have the mapping, and keep the protocol.
        // A peer that did not could do harm, whatever bounds there are: a robust mutex has pointers in it that glibc follows.
        unsafe { &*self.map.as_mut_ptr().cast::<Header>() }
    }

    /// Prepares the mutex and the condition variables of a queue that no other process has yet.
    #[allow(unsafe_code)]
    fn begin(&self) -> io::Result<()> {
        let header = self.header();
        // SAFETY: the attributes are initialised before they are used, and not used after they are destroyed; mutex and
        // condition variables lie in memory that nobody else has, and are initialised once.
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

    /// Takes the mutex.
    #[allow(unsafe_code)]
    fn lock(&self) -> io::Result<Held<'_>> {
        // SAFETY: whoever made the queue initialised the mutex before handing it on, and nobody destroys it.
        let code = unsafe { libc::pthread_mutex_lock(self.header().mutex.get()) };
        if code == libc::EOWNERDEAD {
            // It is held even so; given back, it tells all others that there is nothing to recover.
            drop(Held(self));
        }
        check(code).map(|()| Held(self))
    }

    /// Wakes one that waits.
    #[allow(unsafe_code)]
    fn signal(&self, condition: &UnsafeCell<pthread_cond_t>) -> io::Result<()> {
        // SAFETY: initialised as the mutex was.
        check(unsafe { libc::pthread_cond_signal(condition.get()) })
    }

    #[inline(always)]
    fn send(&self, message: &[u8]) -> io::Result<()> {
        let mut held = self.lock()?;
        while held.waiting() >= self.slots as u64 {
            held = held.wait(&self.header().freed)?;
        }
        held.send(message);
        drop(held);
        self.signal(&self.header().filled)
    }

    #[inline(always)]
    fn receive(&self, message: &mut [u8]) -> io::Result<()> {
        let mut held = self.lock()?;
        while held.waiting() == 0 {
            held = held.wait(&self.header().filled)?;
        }
        held.take(message);
        drop(held);
        self.signal(&self.header().freed)
    }
}

/// The mutex, held.
struct Held<'a>(&'a Queue);

impl<'a> Held<'a> {
    /// How many messages are in the queue.
    #[allow(unsafe_code)]
    fn waiting(&self) -> u64 {
        let header = self.0.header();
        // SAFETY: the counts are ours while the mutex is.
        unsafe { (*header.sent.get()).wrapping_sub(*header.received.get()) }
    }

    /// Gives the mutex back until somebody signals, and a little longer or shorter.
    #[allow(unsafe_code)]
    fn wait(self, condition: &UnsafeCell<pthread_cond_t>) -> io::Result<Held<'a>> {
        // SAFETY: both were initialised, and the mutex is held.
        let code = unsafe { libc::pthread_cond_wait(condition.get(), self.0.header().mutex.get()) };
        if code == libc::ENOTRECOVERABLE {
            // The only case in which it comes back without the mutex.
            mem::forget(self);
            return Err(check(code).unwrap_err());
        }
        check(code).map(|()| self)
    }

    #[allow(unsafe_code)]
    fn send(&mut self, message: &[u8]) {
        let sent = self.0.header().sent.get();
        assert_eq!(message.len(), self.0.len);
        // SAFETY: the count and the slots are ours while the mutex is. A slot is within the mapping, whatever the count is.
        unsafe {
            ptr::copy_nonoverlapping(message.as_ptr(), self.slot(*sent), message.len());
            *sent = (*sent).wrapping_add(1);
        }
    }

    #[allow(unsafe_code)]
    fn take(&mut self, message: &mut [u8]) {
        let received = self.0.header().received.get();
        assert_eq!(message.len(), self.0.len);
        // SAFETY: as for `put`.
        unsafe {
            ptr::copy_nonoverlapping(self.slot(*received), message.as_mut_ptr(), message.len());
            *received = (*received).wrapping_add(1);
        }
    }

    /// Where the message of this number lies.
    fn slot(&self, number: u64) -> *mut u8 {
        let slot = (number % self.0.slots as u64) as usize;
        self.0.map.as_mut_ptr().wrapping_add(size_of::<Header>() + slot * self.0.len)
    }
}

impl Drop for Held<'_> {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: it is held, by this thread.
        unsafe { libc::pthread_mutex_unlock(self.0.header().mutex.get()) };
    }
}

/// The sending end.
pub(super) struct Sending {
    queues: Vec<Queue>,
    buffer: Buffer,
}

impl Sending {
    #[inline(always)]
    fn send_buffer(&self) -> io::Result<()> {
        for queue in &self.queues {
            queue.send(&self.buffer)?;
        }
        Ok(())
    }
}

impl Tx for Sending {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        source.fill(&mut self.buffer);
        ready(self.send_buffer())
    }
}

/// The receiving end.
pub(super) struct Receiving {
    queue: Queue,
    buffer: Buffer,
}

impl Rx for Receiving {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.queue.receive(&mut self.buffer).map(|()| verifier.bytes(&self.buffer)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_as_they_went_in_and_senders_wait_for_room() {
        let (file, tx) = Queue::create(4, 8).unwrap();
        let rx = Queue::map(&file, 4, 8).unwrap();
        let sender = std::thread::spawn(move || (0..1_000u64).try_for_each(|n| tx.send(&n.to_le_bytes())));
        for n in 0..1_000u64 {
            let mut message = [0; 8];
            rx.receive(&mut message).unwrap();
            assert_eq!(u64::from_le_bytes(message), n);
        }
        sender.join().unwrap().unwrap();
    }

    #[test]
    fn an_owner_that_died_is_an_error_and_no_hang() {
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
