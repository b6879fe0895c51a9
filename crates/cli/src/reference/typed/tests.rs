//! Tests of the tables with small, synthetic records.

use estafette_measure::case::{Case, Payload};
use estafette_measure::fingerprint::Fingerprint;
use estafette_measure::pattern_figures::CodecFigures;
use estafette_measure::plan::Entrant;
use estafette_measure::ranking;
use estafette_measure::record::{FORMAT, VERSION};
use estafette_measure::spec::Spec;
use estafette_measure::suite::{Profile, Suite};
use serde_json::{Value, json};

use super::*;

/// Returns a record of one round, with an instance of each mechanism in each cell of its scope.
/// `figures` returns an instance's figures from its mechanism and its data size in bytes.
fn record(cells: Vec<Cell>, mechanisms: &[&str], figures: impl Fn(&str, usize) -> Value) -> Record {
    let runs = |cell: &Cell, name: &str| name.starts_with(&format!("{}/", cell.scope));
    let entrants: Vec<_> = cells
        .iter()
        .flat_map(|cell| mechanisms.iter().filter(|name| runs(cell, name)).map(|name| (cell.clone(), *name)))
        .map(|(cell, name)| Entrant::new(Case { mechanism: name.to_owned(), cell }, false))
        .collect();
    let instances = entrants.iter().enumerate().map(|(entrant, Entrant { case, .. })| {
        let mut measured = json!({
            "messages": 1000, "window_ns": 5_000_000, "latency": null, "cpu_ns_per_message": null, "switches_per_message": null,
            "offered": 1000, "delivered": 1000, "lost_in_window": 0, "breach": null, "steal": 0.0, "discarded": null,
            "faults": { "lost": 0, "duplicated": 0, "reordered": 0, "damaged": 0 },
        });
        let figures = figures(&case.mechanism, case.payload.len());
        measured.as_object_mut().unwrap().extend(figures.as_object().unwrap().clone());
        json!({ "round": 0, "entrant": entrant, "outcome": { "measured": measured } })
    });
    let value = json!({
        "format": FORMAT, "version": VERSION, "tool": "0", "started": "", "seed": 0, "rounds_planned": 1, "rounds": 1,
        "window": { "time": { "warmup_ns": 1, "measure_ns": 1 } }, "fingerprint": Fingerprint::take(), "limits": null,
        "handling": [], "mechanisms": mechanisms.iter().map(|name| Spec::new(name)).collect::<Vec<_>>(),
        "instances": instances.collect::<Vec<_>>(), "entrants": entrants, "refusals": [],
    });
    Record::parse(&value.to_string()).unwrap()
}

fn tables_of(record: &Record) -> String {
    tables(record, &ranking::rank(record))
}

fn cells(pattern: Pattern) -> Vec<Cell> {
    let all = Suite::IpcTyped.cells(Profile::Standard);
    all.into_iter().filter(|cell| cell.pattern == pattern).collect()
}

#[test]
fn a_stream_has_tables_for_the_time_and_for_the_processor_time_of_each_side() {
    let mechanisms = ["process/ipc-channel-0.13.plain", "process/ipc-channel-0.13.bytes", "process/x"];
    // The reference's figures, in microseconds per 1024 bytes. Half of the time is the sender's.
    let record = record(cells(Pattern::Stream), &mechanisms, |name, len| {
        let ns = if name.ends_with("plain") { 7.9644 } else { 1.4572 } * len as f64 / 1.024;
        json!({ "window_ns": (ns * 1000.0) as u64, "sender_cpu_ns": ns / 2.0 })
    });
    let text = tables_of(&record);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let time = "\
process · stream · block · other-core: time a message · throughput
                               1024                10240                51200               102400
ipc-channel-0.13
  plain          7.96 us  123 MiB/s   79.6 us  123 MiB/s    398 us  123 MiB/s    796 us  123 MiB/s
  bytes          1.46 us  670 MiB/s   14.6 us  670 MiB/s   72.9 us  670 MiB/s    146 us  670 MiB/s
x                1.46 us  670 MiB/s   14.6 us  670 MiB/s   72.9 us  670 MiB/s    146 us  670 MiB/s
";
    assert!(text.contains(time), "{text}");
    assert!(text.contains("at the sender") && text.contains("  plain          3.98 us  245 MiB/s"), "{text}");
    let receiver = text.split("at the receiver").nth(1).unwrap();
    assert!(receiver.contains("  plain                - "), "unknown is not zero: {receiver}");
}

#[test]
fn a_codec_has_tables_for_encoding_decoding_and_the_encoded_length() {
    let record = record(cells(Pattern::Codec), &["thread/a", "thread/a.serde-bytes"], |_, len| {
        let codec =
            CodecFigures { encode_ns: len as f64, decode_ns: 2.0 * len as f64, encoded_bytes: 1.5 * len as f64 };
        json!({ "codec": codec })
    });
    let text = tables_of(&record);
    for expected in [
        "thread · codec · same-core: encode · throughput",
        "a                1.02 us  954 MiB/s",
        "  serde-bytes    1.02 us  954 MiB/s",
        "a                2.05 us  477 MiB/s",
        "a                  1,536      1.50×",
    ] {
        assert!(text.contains(expected), "`{expected}` is not in {text}");
    }
}

#[test]
fn sizes_that_do_not_fit_in_one_table_are_split_over_several() {
    let cell = &cells(Pattern::Stream)[0];
    let sizes = (1..=6).map(|kib| Cell { payload: Payload::Message(kib << 10), ..cell.clone() });
    let text = tables_of(&record(sizes.collect(), &["process/x"], |_, _| json!({})));
    assert_eq!(text.matches("time a message").count(), 2, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn a_record_without_typed_messages_has_no_tables() {
    let cells = Suite::Ipc.cells(Profile::Quick);
    assert_eq!(tables_of(&record(cells, &["process/x"], |_, _| json!({}))), "");
}

#[test]
fn a_dot_in_a_version_does_not_split_the_name() {
    assert_eq!(parts("process/ipc-channel-0.13"), ("ipc-channel-0.13", None));
    assert_eq!(parts("process/ipc-channel-0.13.by-hand"), ("ipc-channel-0.13", Some("by-hand")));
    assert_eq!(parts("thread/rkyv-unchecked"), ("rkyv-unchecked", None));
}
