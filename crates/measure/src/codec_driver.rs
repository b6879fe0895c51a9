//! Codecs: measures the cost of encoding a message to bytes and decoding it, in one thread and
//! without a transport.
//!
//! Messages are made before the clock is read. They are in the cache, as in a program that has just
//! filled them. Making them is not timed, because it is the same for every codec.
//!
//! The timed encoding writes to buffers that are reused. The time of decoding includes
//! reading every byte of the result and dropping it. Otherwise a codec that only borrows from the
//! encoded bytes would have done no work. `thread/limit-copy` shows the cost of copying and reading
//! alone.
//!
//! Each timed batch has several different messages. So the cost of reading the clock is a small
//! part of the time, and the branch predictor cannot learn a single message. The result is the
//! median batch, because an interrupted batch would distort a mean. A batch lasts some
//! microseconds.

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

use crate::case::{Case, Role};
use crate::clock::now_ns;
use crate::context::Ctx;
use crate::latency_counts::histogram;
use crate::limits::pin_to;
use crate::message::{Generator, Verifier};
use crate::pattern_figures::{CodecFigures, PatternFigures};
use crate::protocol::{PartyReport, Report};
use crate::spec::Spec;
use crate::window::Meter;

/// The total data of a batch in bytes. Together with the encoded messages it fits in a core's
/// private cache.
const BATCH_BYTES: usize = 64 * 1024;
/// The maximum number of messages in a batch.
const MAX_MESSAGES: usize = 1024;

/// A way to serialize messages. Each instance has one, with any state that it keeps between
/// messages.
pub trait Codec: Default + 'static {
    /// The type of a message before it is encoded.
    type Message;
    /// The buffer for an encoded message.
    type Encoded: Default + AsRef<[u8]>;

    /// The description: a mechanism with [`Pattern::Codec`](crate::Pattern::Codec).
    fn spec() -> Spec;

    /// Makes the next message and writes every byte of it. Not timed.
    fn make(source: &mut Generator) -> Self::Message;

    /// Encodes a message. Overwrites the contents of `out`.
    ///
    /// # Errors
    /// When the message cannot be encoded.
    fn encode(&mut self, message: &Self::Message, out: &mut Self::Encoded) -> Result<()>;

    /// Decodes a message and passes all of it to `verifier`.
    ///
    /// # Errors
    /// When the bytes are not a valid message.
    fn decode(&mut self, encoded: &Self::Encoded, verifier: &mut Verifier) -> Result<()>;
}

/// A codec without its type.
pub(crate) struct Coding {
    pub(crate) spec: Spec,
    pub(crate) run: fn(&Case, &mut Ctx) -> Result<Report>,
}

impl Coding {
    pub(crate) fn of<C: Codec>() -> Coding {
        Coding { spec: C::spec(), run: run::<C> }
    }
}

/// A message and the buffer for its encoding.
struct Slot<C: Codec> {
    message: C::Message,
    encoded: C::Encoded,
}

/// The batches within the window.
struct Batches {
    messages: u64,
    encoded_bytes: u64,
    /// The time of each batch, in nanoseconds.
    encode_ns: Histogram<u64>,
    decode_ns: Histogram<u64>,
}

impl Batches {
    fn new() -> Result<Batches> {
        Ok(Batches { messages: 0, encoded_bytes: 0, encode_ns: histogram()?, decode_ns: histogram()? })
    }

    fn add<C: Codec>(&mut self, slots: &[Slot<C>], encode_ns: u64, decode_ns: u64) {
        self.messages += slots.len() as u64;
        self.encoded_bytes += slots.iter().map(|slot| slot.encoded.as_ref().len() as u64).sum::<u64>();
        self.encode_ns.saturating_record(encode_ns);
        self.decode_ns.saturating_record(decode_ns);
    }

    /// The cost of one message of a batch of `count`. `None` without batches.
    fn figures(&self, count: usize) -> Option<CodecFigures> {
        let per_message = |times: &Histogram<u64>| times.value_at_quantile(0.5) as f64 / count as f64;
        (self.messages > 0).then(|| CodecFigures {
            encode_ns: per_message(&self.encode_ns),
            decode_ns: per_message(&self.decode_ns),
            encoded_bytes: self.encoded_bytes as f64 / self.messages as f64,
        })
    }
}

fn run<C: Codec>(case: &Case, ctx: &mut Ctx) -> Result<Report> {
    if let Some(cpu) = ctx.cpus.first().copied().flatten() {
        pin_to(cpu).with_context(|| format!("pinning to core {cpu}"))?;
    }
    let len = case.payload.len();
    let count = (BATCH_BYTES / len).clamp(1, MAX_MESSAGES);
    let mut codec = C::default();
    let (mut source, mut verifier) = (
        Generator::new(ctx.seed, 0, len).with_secret(ctx.secret),
        Verifier::new(ctx.seed, 1, len).with_secret(ctx.secret),
    );
    let slot = |source: &mut Generator| Slot::<C> { message: C::make(source), encoded: C::Encoded::default() };
    let mut meter = Meter::new(ctx.window, ctx.rendezvous.wait_at_barrier()?, false, ctx.pauses.clone());
    let mut slots: Vec<Slot<C>> = (0..count).map(|_| slot(&mut source)).collect();
    let mut batches = Batches::new()?;
    loop {
        let began_ns = now_ns();
        encode(&mut codec, &mut slots).context("encoding")?;
        let encoded_ns = now_ns();
        decode(&mut codec, &slots, &mut verifier).context("decoding")?;
        let decoded_ns = now_ns();
        if meter.is_open() {
            batches.add(&slots, encoded_ns - began_ns, decoded_ns - encoded_ns);
        }
        meter.check_clock_at(decoded_ns, source.made());
        if meter.is_closed() {
            break;
        }
        slots.iter_mut().for_each(|slot| slot.message = C::make(&mut source));
    }
    let sent = source.made();
    source.end();
    let mut last = [slot(&mut source)];
    encode(&mut codec, &mut last).context("encoding the end mark")?;
    decode(&mut codec, &last, &mut verifier).context("decoding the end mark")?;
    let (_, window_ns, _) = meter.result();
    let (received, faults) = verifier.finish();
    Ok(Report {
        parties: vec![
            PartyReport { sent, ..PartyReport::new(Role::Producer(0)) },
            PartyReport {
                received,
                faults,
                messages: batches.messages,
                window_ns,
                longest_stall_ns: meter.longest_stall_ns(),
                of_pattern: batches.figures(count).map_or(PatternFigures::None, PatternFigures::Codec),
                ..PartyReport::new(Role::Consumer(0))
            },
        ],
        ..Report::default()
    })
}

#[inline(never)]
fn encode<C: Codec>(codec: &mut C, slots: &mut [Slot<C>]) -> Result<()> {
    slots.iter_mut().try_for_each(|slot| codec.encode(&slot.message, &mut slot.encoded))
}

#[inline(never)]
fn decode<C: Codec>(codec: &mut C, slots: &[Slot<C>], verifier: &mut Verifier) -> Result<()> {
    slots.iter().try_for_each(|slot| codec.decode(&slot.encoded, verifier))
}
