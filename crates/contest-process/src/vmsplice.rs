//! A pipe that refers to the sender's pages: the sender calls `vmsplice`, the receiver calls
//! `read`. Only the receiver copies.
//!
//! A page in the pipe must not be written, and no call reports when it has left the pipe. But a
//! pipe has a known number of slots, one per page even if the page is only partly used, and
//! delivers them in order. A read frees a slot after it has copied its content. So when as many
//! pages as there are slots were sent after a message, the message's own pages have left the pipe.
//! The sender cycles through that many pages plus those of one message.

use std::io::{self, ErrorKind, pipe};
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result};
use estafette_contest_common::byte_stream::{PipeEnd, Reading};
use estafette_contest_common::fd_passing::DescriptorChannel;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::Tier;
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Spec, Transport, Tx};
use memmap2::{MmapMut, MmapOptions};
use rustix::io::retry_on_intr;
use rustix::param::page_size;
use rustix::pipe::{IoSliceRaw, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, vmsplice};

use super::pipe::keeps_whole;

/// The largest pipe that unprivileged users may create by default.
const SIZE: usize = 1 << 20;

pub(super) struct Vmsplice;

impl Mechanism for Vmsplice {
    fn spec(&self) -> Spec {
        Spec::new("process/vmsplice")
            .kernel_copies(1)
            .implementation("vmsplice(2) into a pipe of 1 MiB, and read")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex, Pattern::FanIn, Pattern::RequestReply])
            .max_producers(None)
            .tier(Tier::Standard)
    }

    /// A message of up to one page uses one slot.
    fn supports(&self, case: &Case) -> Result<(), String> {
        keeps_whole(case)
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        let (_read, write) = enlarged().ok()?;
        Some((slots(&write).ok()? / pages(case.payload.len())) as u64)
    }
}

/// Returns how many pages a message uses.
fn pages(len: usize) -> usize {
    len.div_ceil(page_size())
}

/// Returns the capacity of a pipe in pages.
fn slots(pipe: impl AsFd) -> Result<usize> {
    Ok(fcntl_getpipe_size(pipe).context("the size of a pipe")? / page_size())
}

/// Creates a pipe that is as large as allowed.
fn enlarged() -> Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe()?;
    // A user with too many large pipes keeps the default size, which is enough.
    let _ = fcntl_setpipe_size(&write, SIZE);
    Ok((read.into(), write.into()))
}

impl Transport<Raw> for Vmsplice {
    type Tx = SendEnd;
    type Rx = Reading<PipeEnd>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let len = case.payload.len();
        let forward = || enlarged().map(|(read, write)| ([write], Reading::new(PipeEnd::new(read), len)));
        let reply = || enlarged().and_then(|(read, write)| Ok(([read], SendEnd::new(write, len)?)));
        let tx = |[forward]: [OwnedFd; 1]| SendEnd::new(forward, len);
        let rx = |[reply]: [OwnedFd; 1]| Ok(Reading::new(PipeEnd::new(reply), len));
        DescriptorChannel { forward, reply, tx, rx }.open(case, role, rendezvous)
    }
}

/// The sending end.
pub(super) struct SendEnd {
    pipe: OwnedFd,
    /// Buffers for messages, each beginning at a page. Dropping this does not affect pages that are
    /// still in the pipe: the kernel reuses unmapped pages only after they have left it.
    memory: MmapMut,
    len: usize,
    /// The distance from one buffer to the next, in bytes.
    stride: usize,
    /// The offset of the next message's buffer.
    next_offset: usize,
}

impl SendEnd {
    fn new(pipe: OwnedFd, len: usize) -> Result<SendEnd> {
        let buffer_count = buffer_count(slots(&pipe)?, pages(len));
        let stride = pages(len) * page_size();
        let memory = MmapOptions::new().len(buffer_count * stride).populate().map_anon();
        Ok(SendEnd { pipe, memory: memory.context("memory to send from")?, len, stride, next_offset: 0 })
    }
}

/// Returns how many message buffers the sender needs: while it fills one, all others together fill
/// the pipe.
fn buffer_count(slots: usize, pages: usize) -> usize {
    slots.div_ceil(pages) + 1
}

/// Adds a message's pages to a pipe.
#[inline(always)]
#[allow(unsafe_code)]
fn vmsplice_all(pipe: &OwnedFd, message: &[u8]) -> io::Result<()> {
    let mut rest = message;
    while !rest.is_empty() {
        // SAFETY: the descriptor is the writing end of a pipe, so the call does not write the
        // memory. `SpliceFlags::empty()` does not gift the pages.
        let spliced =
            retry_on_intr(|| unsafe { vmsplice(pipe, &[IoSliceRaw::from_slice(rest)], SpliceFlags::empty()) })?;
        if spliced == 0 {
            return Err(ErrorKind::WriteZero.into());
        }
        rest = &rest[spliced..];
    }
    Ok(())
}

impl Tx for SendEnd {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        let message = &mut self.memory[self.next_offset..self.next_offset + self.len];
        source.fill(message);
        vmsplice_all(&self.pipe, message)?;
        self.next_offset += self.stride;
        if self.next_offset == self.memory.len() {
            self.next_offset = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_reused_only_after_its_message_left_the_pipe() {
        for slots in [1, 15, 16, 256] {
            for pages in [1, 2, 3, 16, 17, 300] {
                // The pages that were sent after the message that is overwritten next.
                assert!((buffer_count(slots, pages) - 1) * pages >= slots, "{slots} slots, {pages} pages");
            }
        }
    }
}
