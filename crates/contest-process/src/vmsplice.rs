//! A pipe that is given the sender's pages instead of their bytes: vmsplice there, read here. One copy, the receiver's.
//!
//! A page that is in the pipe must not be written again, and nobody tells when it has left. But a pipe holds a known number
//! of pages, each in a slot of its own however little of it is used, and gives them out in order; a read frees a slot once
//! it has copied what was in it. So when as many pages as there are slots have gone in after a message, the message's own
//! have come out. The sender goes round over as many pages as that takes, and those of one message more.

use std::future::{Future, ready};
use std::io::{self, ErrorKind, pipe};
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result};
use estafette_contest_common::byte_stream::{PipeEnd, Reading};
use estafette_contest_common::fd_passing;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::Tier;
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Spec, Transport, Tx};
use memmap2::{MmapMut, MmapOptions};
use rustix::io::retry_on_intr;
use rustix::param::page_size;
use rustix::pipe::{IoSliceRaw, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, vmsplice};

use super::pipe::keeps_whole;

/// As large as a pipe can be made by everybody, as systems come.
const SIZE: usize = 1 << 20;

pub(super) struct Vmsplice;

impl Mechanism for Vmsplice {
    fn spec(&self) -> Spec {
        Spec::new("process/vmsplice")
            .implementation("vmsplice(2) into a pipe of 1 MiB, and read")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex, Pattern::FanIn, Pattern::RequestReply])
            .max_producers(None)
            .tier(Tier::Standard)
    }

    /// A message of up to a page is in one slot.
    fn supports(&self, case: &Case) -> Result<(), String> {
        keeps_whole(case)
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        let (_read, write) = enlarged().ok()?;
        Some((slots(&write).ok()? / pages(case.payload.len())) as u64)
    }
}

/// How many pages a message lies on.
fn pages(len: usize) -> usize {
    len.div_ceil(page_size())
}

/// How many pages a pipe holds.
fn slots(pipe: impl AsFd) -> Result<usize> {
    Ok(fcntl_getpipe_size(pipe).context("the size of a pipe")? / page_size())
}

/// A pipe, as large as it may be.
fn enlarged() -> Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe()?;
    // A user with too many large pipes keeps the usual size, which is enough.
    let _ = fcntl_setpipe_size(&write, SIZE);
    Ok((read.into(), write.into()))
}

impl Transport<Raw> for Vmsplice {
    type Tx = Giving;
    type Rx = Reading<PipeEnd>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let len = case.payload.len();
        let forward = || enlarged().map(|(read, write)| (write, Reading::new(PipeEnd::new(read), len)));
        let reply = || enlarged().and_then(|(read, write)| Ok((read, Giving::new(write, len)?)));
        let tx = |forward: OwnedFd| Giving::new(forward, len);
        let rx = |reply: OwnedFd| Ok(Reading::new(PipeEnd::new(reply), len));
        fd_passing::open(case, role, rendezvous, forward, reply, tx, rx)
    }
}

/// The sending end.
pub(super) struct Giving {
    pipe: OwnedFd,
    /// Places for messages, each beginning at a page. What is still in the pipe when this goes stays there untouched: pages
    /// that are unmapped are not used again before they have left it.
    memory: MmapMut,
    len: usize,
    /// From one place to the next.
    stride: usize,
    /// Where the next message goes.
    at: usize,
}

impl Giving {
    fn new(pipe: OwnedFd, len: usize) -> Result<Giving> {
        let places = places(slots(&pipe)?, pages(len));
        let stride = pages(len) * page_size();
        let memory = MmapOptions::new().len(places * stride).populate().map_anon();
        Ok(Giving { pipe, memory: memory.context("memory to send from")?, len, stride, at: 0 })
    }

    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        let message = &mut self.memory[self.at..self.at + self.len];
        source.fill(message);
        give(&self.pipe, message)?;
        self.at += self.stride;
        if self.at == self.memory.len() {
            self.at = 0;
        }
        Ok(())
    }
}

/// How many messages of so many pages the sender must have places for: while it fills one, all others together fill the
/// pipe.
fn places(slots: usize, pages: usize) -> usize {
    slots.div_ceil(pages) + 1
}

/// Puts the pages of a message into a pipe.
#[inline(always)]
#[allow(unsafe_code)]
fn give(pipe: &OwnedFd, message: &[u8]) -> io::Result<()> {
    let mut rest = message;
    while !rest.is_empty() {
        // SAFETY: the descriptor is a pipe's writing end, so nothing is written to the memory; nor is it given away.
        let given = retry_on_intr(|| unsafe { vmsplice(pipe, &[IoSliceRaw::from_slice(rest)], SpliceFlags::empty()) })?;
        if given == 0 {
            return Err(ErrorKind::WriteZero.into());
        }
        rest = &rest[given..];
    }
    Ok(())
}

impl Tx for Giving {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.send(source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_filled_again_only_when_its_message_has_left_the_pipe() {
        for slots in [1, 15, 16, 256] {
            for pages in [1, 2, 3, 16, 17, 300] {
                // What went in after the message that the next one is written over.
                assert!((places(slots, pages) - 1) * pages >= slots, "{slots} slots, {pages} pages");
            }
        }
    }
}
