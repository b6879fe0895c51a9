//! Plays the host, so that functions can be unit tested on the machine they are built on.
//!
//! [`Harness`] delivers messages to a handler, [`sends_of`] runs a sender. Both record what is
//! sent. A message takes the way it takes in a pipeline, but for WASM.
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

/// What a function sent: the index of the topic, and the bytes.
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

    /// The result of sending one message, before it is sent.
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

/// Runs a sender and returns what it sent. It has one output topic.
pub fn sends_of(sender: impl FnOnce()) -> Sent {
    let outer = record(|recorder| mem::replace(recorder, Recorder::NEW));
    sender();
    record(|recorder| mem::replace(recorder, outer)).sent
}

/// Delivers messages to a handler and records what it sends.
///
/// It has one output topic unless [`topics`](Self::topics) says otherwise, messages of up to 1 MiB,
/// and a stream to answer on.
pub struct Harness {
    handler: abi::BatchHandler,
    recorder: Recorder,
}

impl Harness {
    /// A harness of what is done with each message, as [`function!`](crate::function) takes it.
    pub fn new(handler: impl FnMut(&[u8], &mut Outputs<'_>) + 'static) -> Self {
        Self { handler: outputs::batch_handler(handler), recorder: Recorder::NEW }
    }

    /// Sets the number of output topics.
    #[must_use]
    pub fn topics(mut self, topics: u32) -> Self {
        self.recorder.topics = topics;
        self
    }

    /// Sets how long a message may be.
    #[must_use]
    pub fn max_message(mut self, bytes: usize) -> Self {
        self.recorder.max_message = bytes;
        self
    }

    /// Refuses answers, as when the function is fed by a topic.
    #[must_use]
    pub fn without_stream(mut self) -> Self {
        self.recorder.has_stream = false;
        self
    }

    /// Delivers one message.
    ///
    /// # Panics
    /// When the handler does, as when it sends to a topic that does not exist.
    pub fn message(&mut self, message: &[u8]) {
        self.batch(&[message]);
    }

    /// Delivers several messages as one batch.
    ///
    /// # Panics
    /// When the handler does, as when it sends to a topic that does not exist.
    pub fn batch<M: AsRef<[u8]>>(&mut self, messages: &[M]) {
        let batch = records(messages.iter().map(AsRef::as_ref));
        let count = u32::try_from(messages.len()).expect("a batch has less than 2^32 messages");
        let outer = record(|recorder| mem::replace(recorder, self.recorder.clone()));
        (self.handler)(&batch, count);
        self.recorder = record(|recorder| mem::replace(recorder, outer));
    }

    /// Takes what was sent since the last call, in order: topics and bytes.
    pub fn take_sent(&mut self) -> Sent {
        mem::take(&mut self.recorder.sent)
    }

    /// Takes what was answered since the last call, in order.
    pub fn take_replies(&mut self) -> Vec<Vec<u8>> {
        mem::take(&mut self.recorder.replies)
    }
}

impl fmt::Debug for Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness").field("recorder", &self.recorder).finish_non_exhaustive()
    }
}

/// Lays messages out as the records of a batch.
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
