//! Records: what is saved of a run. Versioned JSON with a published schema, written whole after every round.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bound::Handling;
use crate::burst::Held;
use crate::codec::CodecFigures;
use crate::fingerprint::Fingerprint;
use crate::limits::Limits;
use crate::message::Faults;
use crate::plan::{Entrant, Refusal};
use crate::spec::Spec;
use crate::window::Window;

/// The version of the format. A change that an older reader would misread raises it.
pub const VERSION: u32 = 2;
/// What a file must say it is.
pub const FORMAT: &str = "estafette-record";
/// How often an instance that is discarded for no fault of its mechanism is measured again at once, beside the others of its
/// cell.
pub const REPEATS: usize = 2;
/// Cells that lack an instance even so are measured this many times more, at the most. Their rounds are numbered on from
/// [`Record::rounds_planned`].
pub const MAKE_UP_ROUNDS: usize = 3;
/// Instances that took turns are compared slice by slice if they have so many laps in common.
pub const FEWEST_LAPS: usize = 8;
/// The columns of the CSV table.
const COLUMNS: [&str; 39] = [
    "round",
    "mechanism",
    "control",
    "scope",
    "pattern",
    "payload_bytes",
    "payload",
    "producers",
    "capacity",
    "runtime",
    "wait",
    "place",
    "load",
    "effective_capacity",
    "calls_per_message",
    "line_ns",
    "messages",
    "window_ns",
    "per_second",
    "p50_ns",
    "p99_ns",
    "p999_ns",
    "cpu_ns_per_message",
    "sender_cpu_ns",
    "receiver_cpu_ns",
    "switches_per_message",
    "fairness",
    "encode_ns",
    "decode_ns",
    "encoded_bytes",
    "offered",
    "delivered",
    "lost",
    "duplicated",
    "reordered",
    "damaged",
    "steal",
    "discarded",
    "failed",
];
/// The longest file that is read.
const MAX_FILE: u64 = 256 << 20;
/// The most entrants, rounds and instances that are believed.
const MAX_ROUNDS: usize = 100_000;
const MAX_ENTRANTS: usize = 100_000;
const MAX_INSTANCES: usize = 10_000_000;

/// A run, as far as it got.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// Always `estafette-record`.
    pub format: String,
    /// The format's version.
    pub version: u32,
    /// The version of the tool.
    pub tool: String,
    /// When it began, RFC 3339.
    pub started: String,
    /// What decided the order and the messages.
    pub seed: u64,
    /// What each instance measured.
    pub window: Window,
    /// How long the slices were in which the mechanisms of a cell took turns, in nanoseconds; none where each was measured in one
    /// piece. Slices of long messages are longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice_ns: Option<u64>,
    /// Rounds that were planned.
    pub rounds_planned: usize,
    /// Rounds that were completed.
    pub rounds: usize,
    /// The machine.
    pub fingerprint: Fingerprint,
    /// What the machine allows at best.
    pub limits: Option<Limits>,
    /// What filling and checking costs by itself, for each payload of the run.
    pub handling: Vec<Handling>,
    /// What the mechanisms say of themselves.
    pub mechanisms: Vec<Spec>,
    /// The cases; instances name them by their place here, from 0.
    pub entrants: Vec<Entrant>,
    /// The cases that could not take part.
    pub refusals: Vec<Refusal>,
    /// The instances in the order in which they ran.
    pub instances: Vec<InstanceRecord>,
}

/// One instance.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct InstanceRecord {
    /// From 0.
    pub round: usize,
    /// The case's place in [`Record::entrants`].
    pub entrant: usize,
    /// The round trip of a cache line between the CPUs of the two ends, in nanoseconds, read before its cell's turn in this
    /// round: in a virtual machine it tells when the host has moved them.
    #[serde(default)]
    pub line_ns: Option<f64>,
    /// The heat in which it took turns with others, numbered from 1; none where it was measured by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heat: Option<usize>,
    /// What came of it.
    pub outcome: Outcome,
}

/// What a mechanism needed in one of its turns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SliceFigure {
    /// The turn's number within its heat; every other instance of the heat has had its own in between.
    pub lap: u64,
    /// Nanoseconds a message, or the median round trip.
    pub ns: f64,
}

/// What came of an instance.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It ran to its end.
    Measured(Box<Figures>),
    /// It gave nothing.
    Failed {
        /// Why, in words.
        why: String,
    },
}

/// What an instance measured.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Figures {
    /// Messages the consumer received within the window; in a ping-pong, round trips.
    pub messages: u64,
    /// The window's length as it was, in nanoseconds.
    pub window_ns: u64,
    /// Round-trip times, of a ping-pong.
    pub latency: Option<Latency>,
    /// Processor time of all children, brokers included, in nanoseconds a message.
    pub cpu_ns_per_message: Option<f64>,
    /// Processor time of the children that send, in nanoseconds a message; where they are processes of their own. In a
    /// ping-pong the side that asks.
    #[serde(default)]
    pub sender_cpu_ns: Option<f64>,
    /// The same of those that receive.
    #[serde(default)]
    pub receiver_cpu_ns: Option<f64>,
    /// Context switches of all children a message.
    pub switches_per_message: Option<f64>,
    /// The messages of the producer that got fewest through within the window, as a part of the mean; where there are
    /// several. 1 is fair.
    #[serde(default)]
    pub fairness: Option<f64>,
    /// Receives that were dropped while they waited, over the whole instance; in the pattern `cancel`.
    #[serde(default)]
    pub dropped_receives: u64,
    /// What a codec's message cost.
    #[serde(default)]
    pub codec: Option<CodecFigures>,
    /// What a burst took of memory.
    #[serde(default)]
    pub held: Option<Held>,
    /// Messages the producers sent over the whole instance.
    pub offered: u64,
    /// Different messages received whole over the whole instance.
    pub delivered: u64,
    /// Messages lost within the window, of a mechanism that may lose; its producers look for the highest rate at which
    /// it loses no more than one in a thousand before the window opens, and lose more meanwhile.
    pub lost_in_window: u64,
    /// What went wrong with messages over the whole instance.
    pub faults: Faults,
    /// What the mechanism broke of its promises.
    pub breach: Option<String>,
    /// The part of the time of the case's cores that the hypervisor took, from 0 to 1.
    pub steal: f64,
    /// Why its pairs are left out, on a signal declared beforehand.
    #[serde(alias = "void")]
    pub discarded: Option<String>,
    /// What it needed in each of its turns, but for those in which time was stolen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<SliceFigure>,
}

/// The round-trip times of an instance in nanoseconds.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// Whether these are times of an open loop, each from when a message was due until it had arrived; round trips
    /// otherwise.
    #[serde(default)]
    pub open_loop: bool,
    /// Round trips timed together; where over 1, the times are means of so many.
    pub batch: u64,
    /// The shortest.
    pub min_ns: u64,
    /// The arithmetic mean.
    pub mean_ns: f64,
    /// The standard deviation.
    pub stddev_ns: f64,
    /// The median.
    pub p50_ns: u64,
    /// Of 100, one took longer.
    pub p99_ns: u64,
    /// Of 1,000, one took longer.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// All of them: HdrHistogram, V2 format, deflated, base64.
    pub histogram: String,
}

/// The content of a file that is compressed with gzip, or else the file as it is; at most `longest` bytes.
fn unpacked(bytes: Vec<u8>, longest: u64) -> Result<Vec<u8>> {
    const GZIP: [u8; 2] = [0x1f, 0x8b];
    if !bytes.starts_with(&GZIP) {
        return Ok(bytes);
    }
    let mut content = Vec::new();
    let mut decoder = flate2::read::MultiGzDecoder::new(&*bytes).take(longest + 1);
    decoder.read_to_end(&mut content).context("it is compressed, and damaged")?;
    if content.len() as u64 > longest {
        bail!("unpacked, it is longer than any record ({} MiB)", longest >> 20);
    }
    Ok(content)
}

impl Record {
    /// Writes it to `path`: beside it first, then in its place, so that a reader or an interrupt finds it whole.
    ///
    /// # Errors
    /// Where the folder cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let beside = path.with_extension("json.part");
        let write = || -> Result<()> {
            let mut file = std::io::BufWriter::new(File::create(&beside)?);
            serde_json::to_writer(&mut file, self)?;
            file.write_all(b"\n")?;
            file.into_inner().map_err(|error| error.into_error())?.sync_all()?;
            Ok(fs::rename(&beside, path)?)
        };
        write().with_context(|| format!("cannot write the record {}: choose another folder with --out", path.display()))
    }

    /// Reads one from a file, which may be compressed with gzip.
    ///
    /// # Errors
    /// What is wrong with the file, and what to do about it.
    pub fn load(path: &Path) -> Result<Record> {
        let what = || format!("cannot use {}", path.display());
        let size = fs::metadata(path).with_context(what)?.len();
        if size > MAX_FILE {
            bail!("cannot use {}: it is longer than any record ({} MiB)", path.display(), size >> 20);
        }
        let bytes = fs::read(path).with_context(what)?;
        let text = unpacked(bytes, MAX_FILE).and_then(|bytes| Ok(String::from_utf8(bytes)?)).with_context(what)?;
        Record::parse(&text).with_context(what)
    }

    /// Reads one from text.
    ///
    /// # Errors
    /// What is wrong with it, and what to do about it.
    pub fn parse(text: &str) -> Result<Record> {
        /// The part that every version has.
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
        Ok(record)
    }

    /// Everything that a reader relies on and the types do not say.
    fn check(&self) -> Result<()> {
        if self.entrants.len() > MAX_ENTRANTS || self.instances.len() > MAX_INSTANCES {
            bail!("the record is damaged: it has more entrants or instances than any run");
        }
        if self.rounds_planned > MAX_ROUNDS {
            bail!("the record is damaged: {} rounds are more than any run has", self.rounds_planned);
        }
        let mut seen = HashMap::new();
        for (index, instance) in self.instances.iter().enumerate() {
            // Only one that is discarded was measured again.
            let repeats = seen.entry((instance.round, instance.entrant)).or_insert(0);
            if *repeats > REPEATS {
                bail!("the record is damaged: instance {index} is there twice");
            }
            let discarded = matches!(&instance.outcome, Outcome::Measured(figures) if figures.discarded.is_some());
            *repeats += if discarded { 1 } else { REPEATS + 1 };
            if instance.entrant >= self.entrants.len() || instance.round >= self.rounds_planned + MAKE_UP_ROUNDS {
                bail!("the record is damaged: instance {index} names an entrant or a round that does not exist");
            }
            if let Outcome::Measured(figures) = &instance.outcome
                && (figures.window_ns == 0 || !(0.0..=1.0).contains(&figures.steal))
            {
                bail!("the record is damaged: instance {index} has an impossible figure");
            }
        }
        for entrant in &self.entrants {
            if self.spec(&entrant.case.mechanism).is_none() {
                bail!("the record is damaged: it does not describe {}", entrant.case.mechanism);
            }
        }
        Ok(())
    }

    /// What a mechanism says of itself.
    pub fn spec(&self, mechanism: &str) -> Option<&Spec> {
        self.mechanisms.iter().find(|spec| spec.name == mechanism)
    }

    /// Its JSON Schema.
    pub fn schema() -> String {
        let schema = schemars::schema_for!(Record);
        let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
        text.push('\n');
        text
    }

    /// The instances as a table: one row each, times in nanoseconds.
    ///
    /// # Errors
    /// Where `out` cannot be written.
    pub fn csv(&self, out: impl Write) -> Result<()> {
        let mut table = csv::Writer::from_writer(out);
        table.write_record(COLUMNS)?;
        let optional = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        for instance in &self.instances {
            let Entrant { case, control, effective_capacity, calls } = &self.entrants[instance.entrant];
            let mut row: Vec<String> = vec![
                instance.round.to_string(),
                case.mechanism.clone(),
                control.to_string(),
                case.scope.to_string(),
                case.pattern.to_string(),
                case.payload.len().to_string(),
                case.payload.to_string(),
                case.producers.to_string(),
                case.capacity.to_string(),
                case.runtime.to_string(),
                case.wait.to_string(),
                case.place.to_string(),
                case.load.to_string(),
                effective_capacity.map_or(String::new(), |capacity| capacity.to_string()),
                optional(*calls),
                optional(instance.line_ns),
            ];
            match &instance.outcome {
                Outcome::Failed { why } => {
                    row.resize(COLUMNS.len() - 1, String::new());
                    row.push(why.clone());
                }
                Outcome::Measured(figures) => {
                    let time = |of: fn(&Latency) -> u64| {
                        figures.latency.as_ref().map_or(String::new(), |latency| of(latency).to_string())
                    };
                    let faults = figures.faults;
                    row.extend([
                        figures.messages.to_string(),
                        figures.window_ns.to_string(),
                        figures.per_second().to_string(),
                        time(|latency| latency.p50_ns),
                        time(|latency| latency.p99_ns),
                        time(|latency| latency.p999_ns),
                        optional(figures.cpu_ns_per_message),
                        optional(figures.sender_cpu_ns),
                        optional(figures.receiver_cpu_ns),
                        optional(figures.switches_per_message),
                        optional(figures.fairness),
                        optional(figures.codec.map(|codec| codec.encode_ns)),
                        optional(figures.codec.map(|codec| codec.decode_ns)),
                        optional(figures.codec.map(|codec| codec.encoded_bytes)),
                        figures.offered.to_string(),
                        figures.delivered.to_string(),
                        faults.lost.to_string(),
                        faults.duplicated.to_string(),
                        faults.reordered.to_string(),
                        faults.damaged.to_string(),
                        figures.steal.to_string(),
                        figures.discarded.clone().unwrap_or_default(),
                        String::new(),
                    ]);
                }
            }
            table.write_record(row)?;
        }
        table.flush()?;
        Ok(())
    }
}

impl Figures {
    /// Messages, or round trips, a second.
    pub fn per_second(&self) -> f64 {
        self.messages as f64 * 1e9 / self.window_ns as f64
    }

    /// The cell's metric in nanoseconds: the median round trip, the 99th percentile of an open loop, what a codec takes there
    /// and back, otherwise the time a message takes. Less is better each time. Where it took turns with others, the median of its
    /// turns.
    pub fn metric_ns(&self) -> f64 {
        if self.slices.len() >= FEWEST_LAPS {
            let mut slices: Vec<f64> = self.slices.iter().map(|slice| slice.ns).collect();
            let middle = slices.len() / 2;
            return *slices.select_nth_unstable_by(middle, f64::total_cmp).1;
        }
        match (&self.latency, &self.codec) {
            (Some(latency), _) if latency.open_loop => latency.p99_ns as f64,
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
    fn compressed_files_are_unpacked_and_others_left_alone() {
        assert_eq!(unpacked(b"{}".to_vec(), 9).unwrap(), b"{}");
        assert_eq!(unpacked(packed(b"{}"), 2).unwrap(), b"{}");
        let mut cut = packed(&[b'x'; 1000]);
        cut.truncate(cut.len() - 9);
        assert!(format!("{:#}", unpacked(cut, 2000).unwrap_err()).contains("damaged"));
    }

    #[test]
    fn a_file_that_unpacks_to_more_than_any_record_is_refused() {
        let bomb = packed(&[0; 1001]);
        assert!(unpacked(bomb, 1000).unwrap_err().to_string().contains("longer than any record"));
    }
}
