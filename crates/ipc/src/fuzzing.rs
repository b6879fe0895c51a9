//! Fuzz targets for hostile peers: whatever a peer writes into shared memory may cause errors only.
//! An input is a list of words to be written into a file, with an operation of an honest end after
//! each. The tests run some hundred inputs; `fuzz/` searches for more.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::pwrite;

use crate::file::CONTROLS_AT;
use crate::group::{BellFile, Interrupt, Member, Publisher, Recovery, RingControl, RingFile};
use crate::{Options, ReceiverHandle, SenderHandle, WaitMode, channel};

/// A word to write, its offset, and the operation that follows.
struct Step {
    action: u8,
    at: u64,
    word: u64,
}

/// Parses steps of eleven bytes: an action, the offset in words, the word.
fn steps(input: &[u8]) -> impl Iterator<Item = Step> {
    input.as_chunks::<11>().0.iter().map(|&[action, low, high, a, b, c, d, e, f, g, h]| Step {
        action,
        at: u64::from(u16::from_le_bytes([low, high])) * 8,
        word: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
    })
}

fn write(file: BorrowedFd<'_>, from: usize, step: &Step) {
    let len = rustix::fs::fstat(file).map_or(0, |stat| stat.st_size as u64);
    // Within the file, which cannot grow. The header is not written, since it was validated before.
    let at = from as u64 + step.at % (len - from as u64);
    let _ = pwrite(file, &step.word.to_ne_bytes(), at / 8 * 8);
}

/// Both ends of a channel whose memory an attacker writes.
pub fn run_channel(input: &[u8]) {
    let options = Options::new().capacity(4096).wait(WaitMode::Spin).max_message(10_000);
    let Ok((sender, receiver)) = channel(&options) else { return };
    let ([memory, tx], [clone, rx]) = (sender.into_fds(), receiver.into_fds());
    let Ok(file) = memory.try_clone() else { return };
    let ends = (SenderHandle::from_fds([memory, tx]), ReceiverHandle::from_fds([clone, rx]));
    let (Ok(Ok(mut sender)), Ok(Ok(mut receiver))) = (ends.0.map(SenderHandle::open), ends.1.map(ReceiverHandle::open))
    else {
        return;
    };
    for step in steps(input) {
        write(file.as_fd(), CONTROLS_AT, &step);
        let len = usize::from(step.action) * 50;
        match step.action % 4 {
            0 | 1 => drop(sender.try_send(&vec![step.action; len])),
            2 => {
                let _ = receiver.try_recv().map(|message| message.map_or((), |message| message.release()));
            }
            _ => {
                if let Ok(Some(message)) = receiver.try_recv() {
                    drop(message);
                    if let Ok(batch) = receiver.recv_many(len) {
                        assert!(batch.iter().count() == batch.len());
                        batch.release();
                    }
                }
            }
        }
    }
}

/// All ends of a group's ring whose memory an attacker writes.
pub fn run_group(input: &[u8]) {
    let (Ok(ring), Ok(bell)) = (RingFile::create(4096, 2), BellFile::create()) else { return };
    let Ok(clone) = ring.try_clone() else { return };
    let interrupt = Interrupt::new();
    let open = |ring: &RingFile| Publisher::open(ring, &bell, WaitMode::Block, interrupt.clone());
    let (Ok(mut publisher), Ok(control)) = (open(&ring), RingControl::open(&ring, &bell)) else { return };
    let Ok(mut member) = Member::open(vec![clone], &bell, 0, WaitMode::Block, interrupt.clone()) else { return };
    let copying = ring.try_clone().map(|ring| Member::open(vec![ring], &bell, 1, WaitMode::Block, interrupt.clone()));
    let Ok(Ok(mut copying)) = copying.map(|member| member.map(Member::with_copies)) else { return };
    for step in steps(input) {
        write(ring.as_fd(), CONTROLS_AT, &step);
        match step.action % 8 {
            0..=2 => drop(publisher.try_send(&vec![1; usize::from(step.action) * 8])),
            3 => drop(publisher.send_dropping_oldest(&[2; 300])),
            4 | 5 => {
                let member = if step.action % 8 == 4 { &mut member } else { &mut copying };
                if let Ok(Some(claim)) = member.try_claim(usize::from(step.action) * 32, 9) {
                    assert!(claim.messages().count() == claim.count());
                    claim.progress(1);
                    if step.action < 64 { claim.ack_later() } else { claim.ack() }
                } else {
                    member.ack_oldest();
                }
            }
            6 => {
                let recovery = if step.action < 128 { Recovery::Return } else { Recovery::Discard };
                control.recover(usize::from(step.action / 8 % 2), recovery);
            }
            _ => {
                let _ = (control.depth(), control.is_drained(), open(&ring).map(drop));
            }
        }
    }
}

/// A file that begins with the input is an error, or a valid channel or ring.
pub fn run_header(input: &[u8]) {
    let overwrite = |file: BorrowedFd<'_>| {
        let _ = pwrite(file, &input[..input.len().min(CONTROLS_AT)], 0);
    };
    if let Ok((sender, _receiver)) = channel(&Options::new().capacity(4096)) {
        let fds = sender.into_fds();
        overwrite(fds[0].as_fd());
        drop(SenderHandle::from_fds(fds).map(|handle| handle.open().map(|mut sender| sender.try_send(input))));
    }
    if let Ok(ring) = RingFile::create(4096, 1) {
        overwrite(ring.as_fd());
        drop(RingFile::from_fd(ring.into_fd()));
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Steps with words that are close to valid ones.
    fn steps() -> impl Strategy<Value = Vec<u8>> {
        let word = prop_oneof![any::<u64>(), 0..64u64, (0..1024u64).prop_map(|word| word * 8), Just(u64::MAX)];
        let step = (any::<u8>(), prop_oneof![any::<u16>(), 0..256u16], word);
        vec(step, 0..60).prop_map(|steps| {
            let bytes =
                |(action, at, word): (u8, u16, u64)| [&[action][..], &at.to_le_bytes(), &word.to_le_bytes()].concat();
            steps.into_iter().flat_map(bytes).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

        #[test]
        fn a_channel_survives_any_words(input in steps()) {
            super::run_channel(&input);
        }

        #[test]
        fn a_group_survives_any_words(input in steps()) {
            super::run_group(&input);
        }

        #[test]
        fn any_header_is_an_error_or_valid(input: Vec<u8>) {
            super::run_header(&input);
        }
    }
}
