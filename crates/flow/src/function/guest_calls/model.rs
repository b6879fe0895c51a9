//! The model: predicts the messages, the log, the memory, and how each call ends. It uses simple
//! loops over a copy of the memory, as `docs/flow-abi.md` specifies it.

use std::ops::Range;

use super::script::{
    BUFFER, LIST, LIST_BYTES, MAX_MESSAGES, MAX_PAGES, MESSAGE, OFFERED, PAGE, PAGES, PATTERN, START, START_SECTION,
    STEP_BYTES, STEPS, Script, Step,
};
use crate::control::Overflow;
use crate::engine::inspect::Abi;

/// The maximum number of messages of one `send_batch`.
const MAX_SEND_BATCH: u32 = 1 << 20;
/// The sizes of the buffer of the reference's ABI, and of the first one of the batched ABI.
const REFERENCE_BUFFER: usize = 1 << 20;
const BATCH_BUFFER: usize = 256 << 10;

/// How a call fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It waits for space in a topic, and is stopped.
    Stopped,
    Exited(i32),
    /// For a reason that contains this text.
    Trapped(String),
}

fn trapped(reason: impl Into<String>) -> Fault {
    Fault::Trapped(reason.into())
}

fn out_of_bounds() -> Fault {
    trapped("out of bounds memory access")
}

/// The error results of the batched ABI's calls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refusal {
    NoSuchTopic = 1,
    TooLong = 2,
}

/// A topic, and the messages that its readers must get.
pub(super) struct Topic {
    max_message: usize,
    pub(super) overflow: Overflow,
    pub(super) groups: Vec<Group>,
}

/// A queue group that reads a topic.
pub(super) struct Group {
    pub(super) capacity: usize,
    used: usize,
    /// The messages sent since the last read. With `drop-oldest`, only the newest of them may be
    /// left.
    pub(super) messages: Vec<Vec<u8>>,
}

impl Topic {
    pub(super) fn new(at: usize, overflow: Overflow, capacities: &[usize]) -> Topic {
        let group = |capacity: &usize| Group { capacity: *capacity, used: 0, messages: Vec::new() };
        Topic { max_message: MAX_MESSAGES[at], overflow, groups: capacities.iter().map(group).collect() }
    }
}

pub(super) struct Model {
    abi: Abi,
    pub(super) memory: Vec<u8>,
    /// The topics that the guest can send to. The last one is for the replies.
    pub(super) topics: Vec<Topic>,
    has_stream: bool,
    may_call: bool,
    /// The next step of each list.
    next: [u32; 4],
    /// The range of the guest's buffer.
    buffer: Option<Range<usize>>,
    pub(super) log: Vec<u8>,
    /// The number of messages sent or dropped, their bytes, and the number dropped.
    pub(super) sent: [u64; 3],
}

impl Model {
    pub(super) fn new(script: &Script, topics: Vec<Topic>, pattern: &[u8]) -> Model {
        let mut memory = vec![0; (PAGES * PAGE) as usize];
        memory[PATTERN as usize..][..pattern.len()].copy_from_slice(pattern);
        memory[STEPS as usize..][..script.steps.len()].copy_from_slice(&script.steps);
        Model {
            abi: script.abi,
            memory,
            topics,
            has_stream: script.has_stream,
            may_call: false,
            next: [START_SECTION, START, BUFFER, MESSAGE],
            buffer: None,
            log: Vec::new(),
            sent: [0; 3],
        }
    }

    /// Instantiates the module.
    pub(super) fn load(&mut self) -> Result<(), Fault> {
        self.call(START_SECTION)?;
        self.may_call = true;
        Ok(())
    }

    /// Runs `_start`, and `buffer_pointer` in the reference's ABI.
    pub(super) fn start(&mut self) -> Result<(), Fault> {
        match self.call(START) {
            Ok(_) | Err(Fault::Exited(0)) => {}
            Err(fault) => return Err(fault),
        }
        if self.abi == Abi::Reference {
            let address = self.call(BUFFER)? as usize;
            let end = address + REFERENCE_BUFFER;
            if address == 0 || end > self.memory.len() {
                return Err(trapped("`buffer_pointer` returned"));
            }
            self.buffer = Some(address..end);
        }
        Ok(())
    }

    /// Delivers one message in one call.
    pub(super) fn deliver_message(&mut self, message: &[u8]) -> Result<(), Fault> {
        let buffer = self.buffer.clone().expect("the function has started");
        if message.len() > buffer.len() {
            return Err(trapped("does not fit its buffer"));
        }
        self.memory[buffer][..message.len()].copy_from_slice(message);
        self.call(MESSAGE).map(drop)
    }

    /// Delivers a batch in one call. May first request a larger buffer from the guest.
    pub(super) fn deliver_batch(&mut self, records: &[u8]) -> Result<(), Fault> {
        if self.buffer.as_ref().is_none_or(|buffer| buffer.len() < records.len()) {
            let capacity = records.len().max(BATCH_BUFFER).next_power_of_two();
            self.may_call = false;
            let address = self.call(BUFFER)? as usize;
            self.may_call = true;
            let end = address + capacity;
            if address == 0 || !address.is_multiple_of(8) || end > self.memory.len() {
                return Err(trapped("`estafette_buffer` returned"));
            }
            self.buffer = Some(address..end);
        }
        let buffer = self.buffer.clone().expect("there is one by now");
        self.memory[buffer][..records.len()].copy_from_slice(records);
        self.call(MESSAGE).map(drop)
    }

    /// Runs a call: executes the steps of its list.
    fn call(&mut self, list: u32) -> Result<u32, Fault> {
        let at = ((list - STEPS) / LIST_BYTES) as usize;
        while self.next[at] < list + LIST_BYTES {
            let step = self.next[at];
            let [code, a, b, c] = [0, 4, 8, 12].map(|word| self.word(step + word));
            let result = match Step::from_byte(code as u8) {
                Step::End => {
                    self.next[at] += STEP_BYTES;
                    return Ok(OFFERED);
                }
                Step::Return => {
                    self.next[at] += STEP_BYTES;
                    return Ok(a);
                }
                other => self.take(other, code >> 8 & 0xff, [a, b, c])?,
            };
            self.store(step, result)?;
            self.next[at] += STEP_BYTES;
        }
        Ok(OFFERED)
    }

    /// Executes a step that does not end the call. `number` is the index of an entry.
    fn take(&mut self, step: Step, number: u32, [a, b, c]: [u32; 3]) -> Result<u32, Fault> {
        match step {
            Step::Send => self.send(a, b, c),
            Step::SendBatch => self.send_batch(a, b),
            Step::Reply => self.reply(a, b),
            Step::Grow => Ok(self.grow(a)),
            Step::Log => self.log(a, b),
            Step::Trap => Err(trapped("unreachable")),
            Step::Exit if a < 126 => Err(Fault::Exited(a as i32)),
            Step::Exit => Err(trapped("invalid exit status")),
            Step::Store => self.store(a, b),
            Step::Fill => {
                let range = self.range(a, c).ok_or_else(out_of_bounds)?;
                self.memory[range].fill(b as u8);
                Ok(0)
            }
            Step::Entry => {
                for (at, word) in (0..).step_by(4).zip([a, b, c]) {
                    self.store(LIST + 12 * number + at, word)?;
                }
                Ok(0)
            }
            Step::End | Step::Return => unreachable!("they end the call"),
        }
    }

    fn send(&mut self, topic: u32, address: u32, len: u32) -> Result<u32, Fault> {
        let import = if self.abi == Abi::Batched { "send" } else { "send_message_to_topic_idx" };
        self.check_time(import)?;
        let message = self.passed(import, address, len)?;
        let refusal = self.check(topic, message.len());
        match (self.abi, refusal) {
            (_, None) => self.send_all(&[(topic as usize, message)]),
            (Abi::Reference, Some(Refusal::NoSuchTopic)) => Err(trapped("which it does not have")),
            (Abi::Reference, Some(Refusal::TooLong)) => Err(trapped("more than the topic's `max_message`")),
            (_, Some(refusal)) => Ok(refusal as u32),
        }
    }

    fn reply(&mut self, address: u32, len: u32) -> Result<u32, Fault> {
        let import = if self.abi == Abi::Batched { "reply" } else { "send_websocket_message" };
        self.check_time(import)?;
        let message = self.passed(import, address, len)?;
        let answers = self.topics.len() - 1;
        match self.abi {
            Abi::Reference if !self.has_stream => Err(trapped("but it has no input stream")),
            Abi::Reference if message.len() > self.topics[answers].max_message => Err(trapped("too long")),
            _ if !self.has_stream => Ok(Refusal::NoSuchTopic as u32),
            _ if message.len() > self.topics[answers].max_message => Ok(Refusal::TooLong as u32),
            _ => self.send_all(&[(answers, message)]),
        }
    }

    fn send_batch(&mut self, list: u32, count: u32) -> Result<u32, Fault> {
        if self.abi == Abi::Reference {
            return Err(trapped("unreachable"));
        }
        self.check_time("send_batch")?;
        if count > MAX_SEND_BATCH {
            return Err(trapped("to `send_batch` at once; the most is"));
        }
        self.passed("send_batch", list, count * 12)?;
        let mut messages = Vec::new();
        for entry in (0..count).map(|at| list + 12 * at) {
            let [topic, address, len] = [0, 4, 8].map(|word| self.word(entry + word));
            let message = self.passed("send_batch", address, len)?;
            if let Some(refusal) = self.check(topic, message.len()) {
                return Ok(refusal as u32);
            }
            messages.push((topic as usize, message));
        }
        self.send_all(&messages)
    }

    /// Sends messages to their topics. If the call is stopped, none of them is counted.
    fn send_all(&mut self, messages: &[(usize, Range<usize>)]) -> Result<u32, Fault> {
        for run in messages.chunk_by(|a, b| a.0 == b.0) {
            self.publish(run[0].0, run.iter().map(|(_, message)| message.clone()).collect())?;
        }
        let bytes: usize = messages.iter().map(|(_, message)| message.len()).sum();
        self.sent[0] += messages.len() as u64;
        self.sent[1] += bytes as u64;
        Ok(0)
    }

    fn check_time(&self, import: &str) -> Result<(), Fault> {
        if self.may_call { Ok(()) } else { Err(trapped(format!("it called `{import}` from its start section"))) }
    }

    /// The range that the guest passes to the host.
    fn passed(&self, import: &str, address: u32, len: u32) -> Result<Range<usize>, Fault> {
        let outside = || trapped(format!("it passed {len} bytes at {address:#x} to `{import}`, outside of its memory"));
        self.range(address, len).ok_or_else(outside)
    }

    /// Checks topic and length. The function can send to all topics except the last, which is for
    /// replies.
    fn check(&self, topic: u32, len: usize) -> Option<Refusal> {
        match self.topics[..self.topics.len() - 1].get(topic as usize) {
            None => Some(Refusal::NoSuchTopic),
            Some(topic) if len > topic.max_message => Some(Refusal::TooLong),
            Some(_) => None,
        }
    }

    /// Publishes the messages to every group, as far as there is space.
    fn publish(&mut self, topic: usize, messages: Vec<Range<usize>>) -> Result<(), Fault> {
        let Topic { overflow, groups, .. } = &mut self.topics[topic];
        let (mut dropped, mut is_stopped) = (0, false);
        for group in groups {
            for message in &messages {
                let record = (8 + message.len()).next_multiple_of(8);
                if *overflow != Overflow::DropOldest && group.used + record > group.capacity {
                    if *overflow == Overflow::Block {
                        is_stopped = true;
                        break;
                    }
                    dropped += 1;
                    continue;
                }
                group.used += record;
                group.messages.push(self.memory[message.clone()].to_vec());
            }
        }
        if is_stopped {
            return Err(Fault::Stopped);
        }
        self.sent[2] += dropped;
        Ok(())
    }

    /// Returns and clears the messages that the groups of each topic must get.
    pub(super) fn read_topics(&mut self) -> Vec<Vec<Vec<Vec<u8>>>> {
        let read = |group: &mut Group| {
            group.used = 0;
            std::mem::take(&mut group.messages)
        };
        self.topics.iter_mut().map(|topic| topic.groups.iter_mut().map(read).collect()).collect()
    }

    fn grow(&mut self, pages: u32) -> u32 {
        let old = self.memory.len() as u32 / PAGE;
        match old.checked_add(pages).filter(|new| *new <= MAX_PAGES) {
            None => u32::MAX,
            Some(new) => {
                self.memory.resize((new * PAGE) as usize, 0);
                old
            }
        }
    }

    /// Prints: `fd_write` with one buffer, described at address 16. It writes the length to address
    /// 24.
    fn log(&mut self, address: u32, len: u32) -> Result<u32, Fault> {
        self.store(16, address)?;
        self.store(20, len)?;
        if len > 0 {
            let printed = self.range(address, len).ok_or_else(|| trapped("Pointer"))?;
            self.log.extend_from_slice(&self.memory[printed]);
        }
        self.store(24, len)
    }

    fn word(&self, address: u32) -> u32 {
        let bytes = self.memory[address as usize..].first_chunk().expect("it lies in memory");
        u32::from_le_bytes(*bytes)
    }

    fn store(&mut self, address: u32, word: u32) -> Result<u32, Fault> {
        let range = self.range(address, 4).ok_or_else(out_of_bounds)?;
        self.memory[range].copy_from_slice(&word.to_le_bytes());
        Ok(0)
    }

    fn range(&self, address: u32, len: u32) -> Option<Range<usize>> {
        let range = address as usize..address as usize + len as usize;
        (range.end <= self.memory.len()).then_some(range)
    }
}
