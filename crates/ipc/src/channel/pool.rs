//! Memory files for messages that are longer than the ring.
//!
//! The sender creates a file when no free one is long enough, and passes its descriptor over the
//! socket once. It reuses the file when the receiver has released it. The receiver checks that the
//! file's size is sealed, as it does for the ring.

use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use rustix::net::{RecvFlags, SendFlags};

use super::descriptor::Announcement;
use super::layout::POOL;
use super::ring::Ring;
use crate::error::{OpenError, Violation};
use crate::fd_passing::{recv_with, send_with};
use crate::file::{Kind, Pages, SharedFile};
use crate::memory::{Bytes, BytesMut, Controls, Memory};

const FILE: Kind = Kind {
    what: "memory for large messages",
    name: "estafette-large",
    magic: *b"estafLM\0",
    controls: 0,
    has_descriptors: false,
    pages: Pages::AtOnce,
};

/// No control words.
#[derive(Debug)]
pub(super) struct Nothing;

// SAFETY: no bytes.
#[allow(unsafe_code)]
unsafe impl Controls for Nothing {}

/// The files that one end has mapped.
#[derive(Debug, Default)]
pub(super) struct Pool {
    files: [Option<Memory<Nothing>>; POOL],
    /// Used by the sender: the files whose first message was announced, so that the receiver has
    /// them.
    announced: [bool; POOL],
}

impl Pool {
    /// A free file of at least `len` bytes, created if necessary. None while all files are in
    /// flight.
    pub(super) fn reserve(
        &mut self,
        ring: &Ring,
        socket: BorrowedFd<'_>,
        len: usize,
    ) -> Result<Option<Announcement>, OpenError> {
        let is_free = |file: &usize| ring.controls().front.pool[*file].load(Ordering::Acquire) == 0;
        let is_long = |file: &usize| self.files[*file].as_ref().is_some_and(|memory| memory.capacity() >= len as u64);
        if let Some(file) = (0..POOL).filter(is_free).find(is_long) {
            return Ok(Some(Announcement { file, is_new: !self.announced[file], len }));
        }
        let Some(file) = (0..POOL).find(is_free) else { return Ok(None) };
        let shared = SharedFile::create(FILE, len, 0)?;
        let memory = Memory::map(&shared)?;
        send_with(socket, &[shared.as_fd()], file as u8, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
            .map_err(OpenError::system("pass memory for a large message"))?;
        (self.files[file], self.announced[file]) = (Some(memory), false);
        Ok(Some(Announcement { file, is_new: true, len }))
    }

    /// The bytes of a reserved file, for writing.
    pub(super) fn fill(&self, reserved: Announcement) -> BytesMut {
        let memory = self.files[reserved.file].as_ref().expect("a file that was reserved");
        // SAFETY: the pool keeps the memory while the sender is borrowed. The file is free: either
        // the receiver has released it, which `reserve` acquired, or it never received it.
        #[allow(unsafe_code)]
        unsafe {
            memory.bytes_mut(0, reserved.len)
        }
    }

    /// Marks a file as in use, before its message is announced.
    pub(super) fn occupy(&mut self, ring: &Ring, file: usize) {
        self.announced[file] = true;
        ring.controls().front.pool[file].store(1, Ordering::Relaxed);
    }

    /// The bytes of an announced message. New files are received from the socket.
    pub(super) fn open(&mut self, socket: BorrowedFd<'_>, announced: Announcement) -> Result<Bytes, Violation> {
        if announced.is_new {
            self.receive_files(socket)?;
        }
        let file = self.files.get(announced.file).ok_or(Violation::LargeMessage)?;
        match file {
            // SAFETY: the pool keeps the memory while the receiver is borrowed, and replaces it
            // only here. The sender does not write the file before it is released. A sender that
            // breaks this rule is another process, not part of this one.
            #[allow(unsafe_code)]
            Some(memory) if announced.len as u64 <= memory.capacity() => Ok(unsafe { memory.bytes(0, announced.len) }),
            _ => Err(Violation::LargeMessage),
        }
    }

    /// Receives all files that the sender has passed. A message in a new file is announced after
    /// the file was passed, so this call need not wait.
    fn receive_files(&mut self, socket: BorrowedFd<'_>) -> Result<(), Violation> {
        // At most one file of each number waits, unless the sender announces none of the files that
        // it passes. The bound stops such a sender.
        for _ in 0..2 * POOL {
            let Ok((number, mut fds)) = recv_with(socket, RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT) else { break };
            let place = self.files.get_mut(usize::from(number)).ok_or(Violation::LargeMessage)?;
            let fd = fds.pop().ok_or(Violation::LargeMessage)?;
            let shared = SharedFile::from_fd(FILE, fd).map_err(|_| Violation::LargeMessage)?;
            *place = Some(Memory::map(&shared).map_err(|_| Violation::LargeMessage)?);
        }
        Ok(())
    }

    /// Returns a file to the sender.
    pub(super) fn release(ring: &Ring, file: usize) {
        if let Some(word) = ring.controls().front.pool.get(file) {
            word.store(0, Ordering::Release);
        }
    }
}
