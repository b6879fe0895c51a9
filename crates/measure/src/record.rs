//! Records: the saved results of a run. A record is versioned JSON with a published schema. It is
//! saved after every round.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use serde::{Deserialize, Serialize};

use crate::bound::Handling;
use crate::breach::Breach;
use crate::coordinator::FailureKind;
use crate::discarded::Discarded;
use crate::fingerprint::Fingerprint;
use crate::hosts::{ClockError, HostLoad};
use crate::laps::HeatRecord;
use crate::limits::{Limits, Link};
use crate::message::Faults;
use crate::pattern_figures::PatternFigures;
use crate::plan::{Entrant, Refusal};
use crate::spec::Spec;
use crate::stats::median;
use crate::window::Window;

pub use crate::hosts::peer_record::Peer;

/// The version of the format. A change that an older reader would misread raises it.
pub const VERSION: u32 = 4;
/// The value of [`Record::format`] in every record.
pub const FORMAT: &str = "estafette-record";
/// The maximum number of times that an instance is repeated immediately, because it was disturbed
/// from outside.
pub const REPEATS: usize = 2;
/// The maximum number of additional rounds for cells that still lack an instance. Their numbers
/// start at [`Record::rounds_planned`].
pub const MAKE_UP_ROUNDS: usize = 3;
/// The minimum number of common laps with which two instances are compared slice by slice.
pub const MIN_LAPS: usize = 8;
/// The maximum length of a record file in bytes. Longer files are not read.
const MAX_FILE: u64 = 256 << 20;
/// The maximum numbers of rounds, entrants and instances in a record that is read.
const MAX_ROUNDS: usize = 100_000;
const MAX_ENTRANTS: usize = 100_000;
const MAX_INSTANCES: usize = 10_000_000;

/// The results of a run so far.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Record {
    /// Always `estafette-record`.
    pub format: String,
    /// The format's version.
    pub version: u32,
    /// The version of the tool.
    pub tool: String,
    /// The build and the command line. `None` in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
    /// The start of the run, in the format of RFC 3339.
    pub started: String,
    /// The seed of the order and of the messages' contents.
    pub seed: u64,
    /// The window of each instance.
    pub window: Window,
    /// The length of the slices in which the mechanisms of a cell took turns, in nanoseconds.
    /// Slices of long messages are longer. Absent if each was measured in one piece.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice_ns: Option<u64>,
    /// Rounds that were planned.
    pub rounds_planned: usize,
    /// Rounds that were completed.
    pub rounds: usize,
    /// The machine.
    pub fingerprint: Fingerprint,
    /// The other host, if the ends of the mechanisms were on two: the consumers ran there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<Peer>,
    /// The bounds of the machine.
    pub limits: Option<Limits>,
    /// The part of the processor time that other processes used before the first round, from 0 to 1.
    /// `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_load: Option<f64>,
    /// The cost of filling and checking a message, for each payload of the run.
    pub handling: Vec<Handling>,
    /// The descriptions of the mechanisms.
    pub mechanisms: Vec<Spec>,
    /// The cases. Instances refer to them by their index in this list, from 0.
    pub entrants: Vec<Entrant>,
    /// The cases that could not run.
    pub refusals: Vec<Refusal>,
    /// The instances in the order in which they ran.
    pub instances: Vec<InstanceRecord>,
    /// The state of the machine around the laps of each heat. Empty in records of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heats: Vec<HeatRecord>,
}

/// What wrote a record, and how it was called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Provenance {
    /// The commit of the tool's sources. `None` if they were not built from a git repository.
    pub commit: Option<String>,
    /// The version of the compiler.
    pub compiler: String,
    /// The global allocator of the coordinator, and of the mechanisms whose names do not end with
    /// `@` and another allocator.
    pub allocator: String,
    /// The arguments of the command line, without the program.
    pub arguments: Vec<String>,
}

/// An instance and its outcome.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InstanceRecord {
    /// The round, from 0.
    pub round: usize,
    /// The index of its case in [`Record::entrants`].
    pub entrant: usize,
    /// The round trip of a cache line between the CPUs of the two ends, in nanoseconds. It is
    /// measured before each cell of a round. In a virtual machine a change shows that the host has
    /// moved the CPUs.
    #[serde(default)]
    pub line_ns: Option<f64>,
    /// The heat in which it took turns with others, numbered from 1. Absent if it was measured by
    /// itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heat: Option<usize>,
    /// The outcome.
    pub outcome: Outcome,
}

/// The result of one slice of a mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SliceFigure {
    /// The number of the lap within its heat. In each lap every instance of the heat has one slice.
    pub lap: u64,
    /// Nanoseconds per message, or the median round-trip time in nanoseconds.
    pub ns: f64,
}

/// The outcome of an instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It ran to its end.
    Measured(Box<Figures>),
    /// It failed and has no figures.
    Failed {
        /// The reason, for the user.
        why: String,
        /// The kind of failure. `None` in records of older versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<FailureKind>,
    },
}

/// The figures of an instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Figures {
    /// Messages that the consumer received within the window. In a ping-pong, round trips.
    pub messages: u64,
    /// The actual length of the window in nanoseconds.
    pub window_ns: u64,
    /// Latencies: the round-trip times of a ping-pong, or the times of an open loop.
    pub latency: Option<Latency>,
    /// Processor time of all children, brokers included, in nanoseconds per message.
    pub cpu_ns_per_message: Option<f64>,
    /// Processor time of the sending children in nanoseconds per message, if they are separate
    /// processes. In a ping-pong, of the side that sends requests.
    #[serde(default)]
    pub sender_cpu_ns: Option<f64>,
    /// Processor time of the receiving children in nanoseconds per message, if they are separate
    /// processes. In a ping-pong, of the side that replies.
    #[serde(default)]
    pub receiver_cpu_ns: Option<f64>,
    /// Context switches of all children per message.
    pub switches_per_message: Option<f64>,
    /// The messages received within the window from the producer with the fewest, as a part of the
    /// mean of all producers. 1 is fair. Only with several producers.
    #[serde(default)]
    pub fairness: Option<f64>,
    /// What only its pattern has.
    #[serde(flatten)]
    #[cfg_attr(test, schemars(with = "crate::pattern_figures::Fields"))]
    pub of_pattern: PatternFigures,
    /// By how many bytes the memory of all children together had grown at the end of the window
    /// since the mechanism was opened: anonymous and shared memory, without mapped files and
    /// without what the kernel keeps in pipes and sockets. It includes some hundred KiB of the
    /// instrument. `None` if it is unknown, as with a server that a mechanism starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Messages that the producers sent over the whole instance.
    pub offered: u64,
    /// Different messages received undamaged over the whole instance.
    pub delivered: u64,
    /// Messages lost within the window, for a mechanism that may lose messages. Before the window
    /// opens, its producers search for the highest rate at which at most one message in a thousand
    /// is lost. Messages lost during that search do not count.
    pub lost_in_window: u64,
    /// The faults of all messages over the whole instance.
    pub faults: Faults,
    /// The promise that the mechanism broke.
    pub breach: Option<Breach>,
    /// The part of the cores' time that the hypervisor took, from 0 to 1.
    pub steal: f64,
    /// How busy the other host was during the instance, if the ends were on two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_load: Option<HostLoad>,
    /// How wrong its latencies may be, if they are times from one host to the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_error: Option<ClockError>,
    /// Why the instance is discarded.
    #[serde(alias = "void")]
    pub discarded: Option<Discarded>,
    /// The result of each slice, except those of laps in which the machine changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<SliceFigure>,
    /// The result of the unpaused run before the slices, in nanoseconds per message or round trip.
    /// `None` if there was none, or if the machine changed during it.
    #[serde(default, alias = "long_turn_ns", skip_serializing_if = "Option::is_none")]
    pub unpaused_run_ns: Option<f64>,
    /// The slices that do not count, because pauses change the mechanism and its unpaused runs are
    /// compared. Not in records.
    #[serde(skip)]
    pub paused_slices: Vec<SliceFigure>,
}

/// The latencies of an instance in nanoseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Latency {
    /// Whether these are the times of an open loop, from when a message was due until it had
    /// arrived. Otherwise they are round-trip times.
    #[serde(default)]
    pub open_loop: bool,
    /// The number of round trips timed together. If it is over 1, each time is the mean of a batch.
    pub batch: u64,
    /// The shortest time.
    pub min_ns: u64,
    /// The arithmetic mean.
    pub mean_ns: f64,
    /// The standard deviation.
    pub stddev_ns: f64,
    /// The median.
    pub p50_ns: u64,
    /// The 99th percentile. `None` with fewer than [`Latency::MIN_FOR_P99`] times. In the
    /// percentiles of an open loop, lost messages count as the slowest: `None` if so many were lost
    /// that this one was.
    pub p99_ns: Option<u64>,
    /// The 99.9th percentile. `None` with fewer than [`Latency::MIN_FOR_P999`] times, or if that
    /// message was lost.
    pub p999_ns: Option<u64>,
    /// The longest time.
    pub max_ns: u64,
    /// All times: HdrHistogram, V2 format, deflated, base64.
    pub histogram: String,
}

/// Decompresses the contents of a file if they are compressed with gzip. Otherwise returns them as
/// they are.
///
/// # Errors
/// When the compressed data is damaged, or longer than `max_len` bytes when unpacked.
fn unpacked(bytes: Vec<u8>, max_len: u64) -> Result<Vec<u8>> {
    const GZIP: [u8; 2] = [0x1f, 0x8b];
    if !bytes.starts_with(&GZIP) {
        return Ok(bytes);
    }
    let mut content = Vec::new();
    let mut decoder = flate2::read::MultiGzDecoder::new(&*bytes).take(max_len + 1);
    decoder
        .read_to_end(&mut content)
        .context("its compressed data is damaged: run `estafette bench` again, or copy the file again")?;
    if content.len() as u64 > max_len {
        bail!("after decompression it is longer than the maximum of {} MiB", max_len >> 20);
    }
    Ok(content)
}

/// A quantile of messages of which some were lost, and count as the slowest. `None` if that message
/// was lost.
pub(crate) fn with_lost(arrived: &Histogram<u64>, lost: u64, quantile: f64) -> Option<u64> {
    let of_arrived = quantile * (1.0 + lost as f64 / arrived.len().max(1) as f64);
    (of_arrived <= 1.0).then(|| arrived.value_at_quantile(of_arrived))
}

impl Latency {
    /// The minimum number of times for a 99th percentile. Ten of them lie above it.
    pub const MIN_FOR_P99: u64 = 1_000;
    /// The minimum number of times for a 99.9th percentile.
    pub const MIN_FOR_P999: u64 = 10_000;

    /// All times. `None` if the histogram is damaged.
    pub(crate) fn times(&self) -> Option<Histogram<u64>> {
        let bytes = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, &self.histogram).ok()?;
        Deserializer::new().deserialize(&mut &bytes[..]).ok()
    }

    /// The 99th percentile, even of few times. Open loops are compared by it: it is inexact for a
    /// single instance, but there are several instances. The longest time if that message was lost.
    fn p99_or_estimate(&self, lost: u64) -> u64 {
        let of_histogram = || with_lost(&self.times()?, lost, 0.99);
        // Older records have the percentile of what arrived.
        self.p99_ns.filter(|_| lost == 0).or_else(of_histogram).unwrap_or(self.max_ns)
    }
}

impl Record {
    /// The limits of the link between the two hosts. `None` if all ends were on one host, or if
    /// they could not be measured.
    pub fn link(&self) -> Option<&Link> {
        self.peer.as_ref()?.link.as_ref()
    }

    /// Saves the record to `path`. Writes a temporary file and renames it, so that a reader never
    /// finds a partial record, even after an interrupt.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let temporary = path.with_extension("json.part");
        let write = || -> Result<()> {
            let mut file = std::io::BufWriter::new(File::create(&temporary)?);
            serde_json::to_writer(&mut file, self)?;
            file.write_all(b"\n")?;
            file.into_inner().map_err(|error| error.into_error())?.sync_all()?;
            Ok(fs::rename(&temporary, path)?)
        };
        write().with_context(|| format!("cannot write the record {}: choose another folder with --out", path.display()))
    }

    /// Reads a record from a file, which may be compressed with gzip.
    ///
    /// # Errors
    /// When the file cannot be read or is not a valid record, with what to do.
    pub fn load(path: &Path) -> Result<Record> {
        let what = || format!("cannot use {}", path.display());
        // The length of a device or a pipe is not known before it is read.
        let mut bytes = Vec::new();
        File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes)).with_context(|| {
            format!(
                "cannot use {}: name a record, a file .json or .json.gz that `estafette bench` wrote",
                path.display()
            )
        })?;
        if bytes.len() as u64 > MAX_FILE {
            bail!("cannot use {}: it is longer than the maximum of {} MiB", path.display(), MAX_FILE >> 20);
        }
        let text = unpacked(bytes, MAX_FILE)
            .and_then(|bytes| String::from_utf8(bytes).context("it is not UTF-8 text"))
            .with_context(what)?;
        Record::parse(&text).with_context(what)
    }

    /// Parses a record.
    ///
    /// # Errors
    /// When the text is not a valid record, with what to do.
    pub fn parse(text: &str) -> Result<Record> {
        /// The fields that every version has.
        #[derive(Deserialize)]
        struct Head {
            format: String,
            version: u32,
        }
        let head: Head = match serde_json::from_str(text) {
            Ok(head) => head,
            Err(_) if text.trim_start().is_empty() => bail!("it is empty: run `estafette bench` again"),
            Err(error) if error.is_eof() => {
                bail!("it is cut off at line {}, column {}: run `estafette bench` again", error.line(), error.column())
            }
            Err(error) => bail!("it is not a record of `estafette bench`: {error}"),
        };
        if head.format != FORMAT {
            bail!("it is not a record of `estafette bench`: its format is `{}`, not `{FORMAT}`", head.format);
        }
        if head.version > VERSION {
            bail!(
                "it was written by a newer Estafette (format {}, this one reads up to {VERSION}): update this one",
                head.version
            );
        }
        let record: Record =
            serde_json::from_str(text).map_err(|error| anyhow::anyhow!("the record is damaged: {error}"))?;
        record.check()?;
        // Its fields have the names of this version when it is written again.
        Ok(Record { version: VERSION, ..record })
    }

    /// Checks the invariants that readers rely on and the types do not express.
    fn check(&self) -> Result<()> {
        if self.entrants.len() > MAX_ENTRANTS || self.instances.len() > MAX_INSTANCES {
            bail!("the record is damaged: it has more entrants or instances than the maximum");
        }
        if self.rounds_planned > MAX_ROUNDS {
            bail!("the record is damaged: {} rounds are more than the maximum of {MAX_ROUNDS}", self.rounds_planned);
        }
        let mut attempts = HashMap::new();
        for (index, instance) in self.instances.iter().enumerate() {
            // Only discarded instances are repeated, at most `REPEATS` times. The anchor has one
            // instance in each heat.
            let attempt = attempts.entry((instance.round, instance.entrant, instance.heat)).or_insert(0);
            if *attempt > REPEATS {
                bail!("the record is damaged: instance {index} appears twice");
            }
            let discarded = matches!(&instance.outcome, Outcome::Measured(figures) if figures.discarded.is_some());
            *attempt += if discarded { 1 } else { REPEATS + 1 };
            if instance.entrant >= self.entrants.len() || instance.round >= self.rounds_planned + MAKE_UP_ROUNDS {
                bail!("the record is damaged: instance {index} refers to an entrant or a round that does not exist");
            }
            if let Outcome::Measured(figures) = &instance.outcome
                && (figures.window_ns == 0
                    || !(0.0..=1.0).contains(&figures.steal)
                    || !figures.peer_load.is_none_or(HostLoad::is_possible)
                    || !figures.clock_error.is_none_or(ClockError::is_possible))
            {
                bail!("the record is damaged: instance {index} has an impossible value");
            }
        }
        for entrant in &self.entrants {
            if self.spec(&entrant.case.mechanism).is_none() {
                bail!("the record is damaged: it does not describe {}", entrant.case.mechanism);
            }
        }
        Ok(())
    }

    /// The description of a mechanism, by its name.
    pub fn spec(&self, mechanism: &str) -> Option<&Spec> {
        self.mechanisms.iter().find(|spec| spec.name == mechanism)
    }
}

impl Figures {
    /// The share of messages lost within the window, from 0 to 1.
    pub fn share_lost(&self) -> f64 {
        let lost = self.lost_in_window as f64;
        lost / f64::max(self.messages as f64 + lost, 1.0)
    }

    /// The times at these quantiles, from 0 to 1. In an open loop, lost messages count as the
    /// slowest. `None` where fewer than ten messages lie above a quantile or that message was lost,
    /// and if the histogram is damaged or there is none.
    pub fn quantiles(&self, quantiles: &[f64]) -> Vec<Option<u64>> {
        const MIN_ABOVE: f64 = 10.0;
        let times = self.latency.as_ref().and_then(Latency::times);
        let lost = if self.latency.as_ref().is_some_and(|latency| latency.open_loop) { self.lost_in_window } else { 0 };
        let value = |quantile: &f64| {
            let times = times.as_ref()?;
            // A tenth more than the rounding error of 1 - quantile.
            let above = (times.len() as f64 + lost as f64) * (1.0 - quantile) + 0.1;
            with_lost(times, lost, *quantile).filter(|_| above >= MIN_ABOVE)
        };
        quantiles.iter().map(value).collect()
    }

    /// Messages or round trips per second.
    pub fn per_second(&self) -> f64 {
        self.messages as f64 * 1e9 / self.window_ns as f64
    }

    /// The metric by which mechanisms are compared, in nanoseconds. Lower is better.
    ///
    /// It is the median of the slices, if there are enough, or the result of the unpaused run, if
    /// there are none because pauses change the mechanism. Otherwise it is the median round trip,
    /// the 99th percentile of an open loop, the time to encode and decode, or the mean time per
    /// message.
    pub fn metric_ns(&self) -> f64 {
        if self.slices.len() >= MIN_LAPS {
            let slices: Vec<f64> = self.slices.iter().map(|slice| slice.ns).collect();
            if let Some(median) = median(&slices) {
                return median;
            }
        }
        if let Some(ns) = self.unpaused_run_ns.filter(|_| self.slices.is_empty()) {
            return ns;
        }
        self.whole_ns()
    }

    /// The metric of the whole window, in nanoseconds, also if it has slices.
    pub(crate) fn whole_ns(&self) -> f64 {
        match (&self.latency, self.of_pattern.codec()) {
            (Some(latency), _) if latency.open_loop => latency.p99_or_estimate(self.lost_in_window) as f64,
            (Some(latency), _) => latency.p50_ns as f64,
            (None, Some(codec)) => codec.encode_ns + codec.decode_ns,
            (None, None) => self.window_ns as f64 / self.messages as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn compressed_files_are_unpacked_and_others_are_unchanged() {
        assert_eq!(unpacked(b"{}".to_vec(), 9).unwrap(), b"{}");
        assert_eq!(unpacked(packed(b"{}"), 2).unwrap(), b"{}");
        let mut cut = packed(&[b'x'; 1000]);
        cut.truncate(cut.len() - 9);
        assert!(format!("{:#}", unpacked(cut, 2000).unwrap_err()).contains("damaged"));
    }

    #[test]
    fn a_file_that_unpacks_to_more_than_the_maximum_is_rejected() {
        let bomb = packed(&[0; 1001]);
        assert!(unpacked(bomb, 1000).unwrap_err().to_string().contains("longer than the maximum"));
    }
}
