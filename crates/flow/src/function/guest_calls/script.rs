//! The script of a guest: four lists of steps, and the messages that the guest receives.
//!
//! | list | executed in (batched ABI) | executed in (reference's ABI) |
//! |---|---|---|
//! | [`START_SECTION`] | the start section | the start section |
//! | [`START`] | `_start` | `_start` |
//! | [`BUFFER`] | `estafette_buffer` | `buffer_pointer` |
//! | [`MESSAGE`] | `estafette_batch` | `on_message` |
//!
//! A call executes the steps of its list from where the last call ended, up to a step that ends the
//! call. The steps lie in the guest's memory, so the guest can overwrite them too.
//!
//! The memory contains: zeros below [`LIST`], where the guest keeps a list for `send_batch`; the
//! steps at [`STEPS`]; pseudo-random bytes at [`PATTERN`]; the guest's default buffer at
//! [`OFFERED`].

use crate::engine::inspect::Abi;

pub(super) const PAGE: u32 = 1 << 16;
/// The initial and the maximum memory of a guest, in pages.
pub(super) const PAGES: u32 = 20;
pub(super) const MAX_PAGES: u32 = 24;

pub(super) const LIST: u32 = 0x1000;
pub(super) const STEPS: u32 = 0x4000;
pub(super) const PATTERN: u32 = 0x8000;
pub(super) const PATTERN_END: u32 = 0x1_8000;
pub(super) const OFFERED: u32 = 0x2_0000;

pub(super) const START_SECTION: u32 = STEPS;
pub(super) const START: u32 = STEPS + LIST_BYTES;
pub(super) const BUFFER: u32 = STEPS + 2 * LIST_BYTES;
pub(super) const MESSAGE: u32 = STEPS + 3 * LIST_BYTES;
/// The sizes in bytes of a list of steps, and of a step: four words, which are the step's code and
/// three operands.
pub(super) const LIST_BYTES: u32 = 64 * STEP_BYTES;
pub(super) const STEP_BYTES: u32 = 16;

/// The kind of a step: its first byte. Any other byte means `End`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Step {
    /// Ends the call, and returns [`OFFERED`].
    End,
    /// Ends the call, and returns the first operand.
    Return,
    /// Topic, address, length.
    Send,
    /// Address of the list, number of messages.
    SendBatch,
    /// Address, length.
    Reply,
    Trap,
    /// Exit status.
    Exit,
    /// Pages.
    Grow,
    /// Address, word.
    Store,
    /// Address, byte, length.
    Fill,
    /// Address, length.
    Log,
    /// Topic, address, length: writes an entry of the list for `send_batch`. The second byte of the
    /// step is the entry's index.
    Entry,
}

impl Step {
    pub(super) fn from_byte(byte: u8) -> Step {
        use Step::{End, Entry, Exit, Fill, Grow, Log, Reply, Return, Send, SendBatch, Store, Trap};
        let all = [End, Return, Send, SendBatch, Reply, Trap, Exit, Grow, Store, Fill, Log, Entry];
        all.get(usize::from(byte)).copied().unwrap_or(End)
    }
}

/// The maximum message lengths of the topics and of the replies. Lengths close to them are
/// interesting.
pub(super) const MAX_MESSAGES: [usize; 4] = [1000, 5000, 900, 2000];

/// The lengths of the messages that a guest receives. The last two need a larger buffer, or fit
/// into none.
const LENGTHS: [usize; 8] = [0, 1, 8, 100, 4000, 70_000, 300_000, (1 << 20) + 1];

/// One run.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) abi: Abi,
    /// Whether the function has an input stream, to which it may reply.
    pub(super) has_stream: bool,
    /// The lengths of the messages of each delivery.
    pub(super) deliveries: Vec<Vec<usize>>,
    /// The four lists of steps, as they lie in memory.
    pub(super) steps: Vec<u8>,
}

impl Script {
    /// Decodes any bytes: eight for the kind of guest and its deliveries, then eleven for each
    /// step.
    pub(super) fn decode(input: &[u8]) -> Script {
        let (head, rest) = input.split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
        let [flags, deliveries @ ..] = *head;
        let abi = if flags & 1 == 0 { Abi::Batched } else { Abi::Reference };
        let deliveries = deliveries[..usize::from(flags >> 2 & 7)].iter().map(|byte| lengths(*byte)).collect();
        let mut lists = [const { Vec::new() }; 4];
        for step in rest.as_chunks::<11>().0 {
            // Few steps go into the first two lists, where a guest may not send.
            let list = match step[0] {
                0 => START_SECTION,
                1..=3 => BUFFER,
                4..=60 => START,
                _ => MESSAGE,
            };
            lists[((list - STEPS) / LIST_BYTES) as usize]
                .extend(words(step, abi, list == BUFFER).into_iter().flat_map(u32::to_le_bytes));
        }
        for list in &mut lists {
            list.resize(LIST_BYTES as usize, 0);
        }
        Script { abi, has_stream: flags & 2 != 0, deliveries, steps: lists.concat() }
    }

    /// Encodes the steps as text. The guest decodes its first argument.
    pub(super) fn argument(&self) -> String {
        let letters = |byte: &u8| [byte >> 4, byte & 15].map(|half| char::from(b'a' + half));
        self.steps.iter().flat_map(letters).collect()
    }
}

/// The lengths of the messages of a delivery. Long ones are rare.
fn lengths(byte: u8) -> Vec<usize> {
    let kinds = if byte >= 0xf0 { LENGTHS.len() } else { 6 };
    (0..1 + byte % 4).map(|at| LENGTHS[usize::from((byte >> 2) + at) % kinds]).collect()
}

/// Decodes a step of eleven bytes: the list, the code, and three operands of three bytes each. In
/// the list [`BUFFER`], most steps return an address.
fn words(step: &[u8; 11], abi: Abi, is_in_buffer: bool) -> [u32; 4] {
    let [_, code, operands @ ..] = *step;
    let [a, b, c] = [0, 3, 6].map(|at| (operands[at], u16::from_le_bytes([operands[at + 1], operands[at + 2]])));
    let (code, number) = (code % 32, u32::from(code / 32));
    let (step, operands) = match code {
        0..=24 if is_in_buffer => (Step::Return, [address(a), 0, 0]),
        0..=4 if abi == Abi::Batched => (Step::SendBatch, [list(a), count(b), 0]),
        0..=11 | 30 => (Step::Send, [topic(a), address(b), length(c)]),
        12..=14 => (Step::Reply, [address(a), length(b), 0]),
        15..=21 => (Step::Entry, [topic(a), address(b), length(c)]),
        // May write a topic into the list.
        22 | 23 => (Step::Store, [address(a), topic(b), 0]),
        24 => (Step::Fill, [address(a), u32::from(b.1), length(c)]),
        25 | 26 => (Step::Grow, [count(a), 0, 0]),
        27 => (Step::Log, [address(a), length(b).min(2 * MAX_PAGES * PAGE), 0]),
        28 => (Step::Return, [address(a), 0, 0]),
        29 if number == 0 => (Step::Trap, [0; 3]),
        29 if number == 1 => (Step::Exit, [u32::from(b.1 % 200), 0, 0]),
        _ => (Step::End, [0; 3]),
    };
    let [a, b, c] = operands;
    [step as u32 | number << 8, a, b, c]
}

// An error ends the run, so nearly all operands are valid.

fn topic((kind, value): (u8, u16)) -> u32 {
    match kind {
        0 => wild(value),
        1..=4 => 3,
        // More often the first topic, which blocks: its ring should be full sometimes.
        _ => u32::from(value % 4).saturating_sub(1),
    }
}

fn list((kind, value): (u8, u16)) -> u32 {
    match kind {
        0..=2 => address((kind, value)),
        3..=12 => LIST + u32::from(value % 100),
        _ => LIST + u32::from(value % 8) * 12,
    }
}

fn count((kind, value): (u8, u16)) -> u32 {
    match kind {
        0 => wild(value),
        1 => (1 << 20) + u32::from(value % 4),
        2..=8 => u32::from(value),
        _ => u32::from(value % 8),
    }
}

fn address((kind, value): (u8, u16)) -> u32 {
    match kind {
        0 => wild(value),
        // Close to the end of the memory, before or after it grows.
        1..=4 => near((PAGES + u32::from(value >> 8) % (MAX_PAGES - PAGES + 2)) * PAGE, value),
        5..=12 => STEPS + u32::from(value % 0x1000),
        13..=40 => LIST + u32::from(value % 100),
        41..=128 => OFFERED + u32::from(value / 8 * 8),
        _ => PATTERN + u32::from(value),
    }
}

fn length((kind, value): (u8, u16)) -> u32 {
    match kind {
        0 => wild(value),
        1 => u32::from(value),
        2..=9 => near(MAX_MESSAGES[usize::from(value >> 8) % 4] as u32, value % 8),
        10..=200 => u32::from(value % 900),
        _ => u32::from(value % 60),
    }
}

/// A number close to another: up to 128 less or 127 more.
fn near(number: u32, value: u16) -> u32 {
    number.wrapping_add_signed(i32::from(value as u8 as i8))
}

/// A number that is probably too large: close to the maximum, or around half of it.
fn wild(value: u16) -> u32 {
    match value % 4 {
        0 => u32::MAX - u32::from(value / 4),
        1 => (1 << 31) + u32::from(value / 4),
        _ => u32::from(value) << 16 | u32::from(value),
    }
}
