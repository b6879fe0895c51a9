//! A replacement of the host for unit tests of functions on the build machine.
//!
//! [`Harness`] delivers messages to a handler, [`sends_of`] runs a sender. Both record the messages
//! that are sent. The code under test is the same as in a pipeline, without WASM.
//!
//! ```
//! use estafette_guest::testing::{sends_of, Harness};
//!
//! let mut harness = Harness::new(|message, outputs| outputs.send(1, &message[..1])).topics(2);
//! harness.batch(&[b"one", b"two"]);
//! assert_eq!(harness.take_sent(), [(1, b"o".to_vec()), (1, b"t".to_vec())]);
//!
//! let sent = sends_of(|| estafette_guest::send(0, b"hello").unwrap());
//! assert_eq!(sent, [(0, b"hello".to_vec())]);
//! ```

use std::cell::RefCell;
use std::fmt;
use std::mem;

use crate::messages::HEADER;
use crate::{abi, outputs, Outgoing, Outputs};

/// The messages that a function sent: the index of the topic, and the bytes.
pub type Sent = Vec<(u32, Vec<u8>)>;

/// The host's side of the calls of one thread.
#[derive(Clone, Debug)]
struct Recorder {
    topics: u32,
    max_message: usize,
    has_stream: bool,
    sent: Sent,
    replies: Vec<Vec<u8>>,
}

impl Recorder {
    const NEW: Self =
        Self { topics: 1, max_message: 1024 * 1024, has_stream: true, sent: Vec::new(), replies: Vec::new() };

    /// The result code for a message, before it is sent.
    fn check(&self, topic: u32, data: &[u8]) -> i32 {
        match () {
            () if topic >= self.topics => 1,
            () if data.len() > self.max_message => 2,
            () => 0,
        }
    }
}

thread_local! {
    static RECORDER: RefCell<Recorder> = const { RefCell::new(Recorder::NEW) };
}

fn record<T>(act: impl FnOnce(&mut Recorder) -> T) -> T {
    RECORDER.with(|recorder| act(&mut recorder.borrow_mut()))
}

pub(crate) fn send(topic: u32, data: &[u8]) -> i32 {
    send_batch(&[Outgoing::new(topic, data)])
}

pub(crate) fn send_batch(list: &[Outgoing<'_>]) -> i32 {
    record(|recorder| {
        let refused = list.iter().map(|message| recorder.check(message.topic(), message.data()));
        if let Some(result) = refused.into_iter().find(|result| *result != 0) {
            return result;
        }
        recorder.sent.extend(list.iter().map(|message| (message.topic(), message.data().to_vec())));
        0
    })
}

pub(crate) fn reply(data: &[u8]) -> i32 {
    record(|recorder| {
        if !recorder.has_stream {
            return 1;
        }
        recorder.replies.push(data.to_vec());
        0
    })
}

/// Runs a sender, and returns the messages that it sent. The sender has one output topic.
pub fn sends_of(sender: impl FnOnce()) -> Sent {
    let outer = record(|recorder| mem::replace(recorder, Recorder::NEW));
    sender();
    record(|recorder| mem::replace(recorder, outer)).sent
}

/// Delivers messages to a handler, and records the messages that it sends.
///
/// The default is one output topic ([`topics`](Self::topics)), messages of up to 1 MiB
/// ([`max_message`](Self::max_message)), and an input stream that accepts replies.
pub struct Harness {
    handler: abi::BatchHandler,
    recorder: Recorder,
}

impl Harness {
    /// Creates a harness for a handler of messages, as for [`function!`](crate::function).
    pub fn new(handler: impl FnMut(&[u8], &mut Outputs<'_>) + 'static) -> Self {
        Self { handler: outputs::batch_handler(handler), recorder: Recorder::NEW }
    }

    /// Sets the number of output topics.
    #[must_use]
    pub fn topics(mut self, topics: u32) -> Self {
        self.recorder.topics = topics;
        self
    }

    /// Sets the length of the longest message in bytes.
    #[must_use]
    pub fn max_message(mut self, bytes: usize) -> Self {
        self.recorder.max_message = bytes;
        self
    }

    /// Refuses replies, as for a function whose input is a topic.
    #[must_use]
    pub fn without_stream(mut self) -> Self {
        self.recorder.has_stream = false;
        self
    }

    /// Delivers one message.
    ///
    /// # Panics
    /// If the handler panics, for example because it sends to a topic that does not exist.
    pub fn message(&mut self, message: &[u8]) {
        self.batch(&[message]);
    }

    /// Delivers several messages as one batch.
    ///
    /// # Panics
    /// If the handler panics, for example because it sends to a topic that does not exist.
    pub fn batch<M: AsRef<[u8]>>(&mut self, messages: &[M]) {
        let batch = records(messages.iter().map(AsRef::as_ref));
        let count = u32::try_from(messages.len()).expect("a batch has less than 2^32 messages");
        let outer = record(|recorder| mem::replace(recorder, self.recorder.clone()));
        (self.handler)(&batch, count);
        self.recorder = record(|recorder| mem::replace(recorder, outer));
    }

    /// Returns and clears the messages that were sent, in order.
    pub fn take_sent(&mut self) -> Sent {
        mem::take(&mut self.recorder.sent)
    }

    /// Returns and clears the replies, in order.
    pub fn take_replies(&mut self) -> Vec<Vec<u8>> {
        mem::take(&mut self.recorder.replies)
    }
}

impl fmt::Debug for Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness").field("recorder", &self.recorder).finish_non_exhaustive()
    }
}

/// Encodes messages as the records of a batch.
fn records<'a>(messages: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut batch = Vec::new();
    for message in messages {
        let length = u32::try_from(message.len()).expect("a message has less than 4 GiB");
        batch.extend_from_slice(&length.to_le_bytes());
        // A function must ignore these bytes, so they are not zero here.
        batch.extend_from_slice(&[0xEE; HEADER - 4]);
        batch.extend_from_slice(message);
        batch.resize(batch.len() + message.len().wrapping_neg() % HEADER, 0xEE);
    }
    batch
}
