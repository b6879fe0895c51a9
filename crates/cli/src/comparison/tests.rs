//! Tests of the comparison with small, synthetic records.

use estafette_measure::case::{Load, Pattern, Payload, Place};
use estafette_measure::coordinator::FailureKind;
use estafette_measure::discarded::Discarded;
use estafette_measure::fingerprint::Fingerprint;
use estafette_measure::hosts::ClockError;
use estafette_measure::message::Faults;
use estafette_measure::pattern_figures::PatternFigures;
use estafette_measure::plan::Entrant;
use estafette_measure::record::{FORMAT, Figures, InstanceRecord, Latency, Peer, Provenance, VERSION};
use estafette_measure::spec::{Runtime, Scope, Wait};
use estafette_measure::window::Window;

use super::*;

const ROUNDS: usize = 6;

fn cell(pattern: Pattern) -> Cell {
    Cell {
        scope: Scope::Process,
        pattern,
        payload: Payload::Bytes(64),
        producers: 1,
        capacity: 1024,
        runtime: Runtime::Thread,
        wait: Wait::Block,
        place: Place::OtherCore,
        load: Load::Saturated,
    }
}

fn figures(pattern: Pattern, ns: u64) -> Figures {
    let latency = |ns| Latency {
        open_loop: false,
        batch: 1,
        min_ns: ns,
        mean_ns: ns as f64,
        stddev_ns: 0.0,
        p50_ns: ns,
        p99_ns: Some(ns),
        p999_ns: Some(ns),
        max_ns: ns,
        histogram: String::new(),
    };
    Figures {
        messages: 1_000,
        window_ns: ns * 1_000,
        latency: (pattern == Pattern::PingPong).then(|| latency(ns)),
        cpu_ns_per_message: None,
        sender_cpu_ns: None,
        receiver_cpu_ns: None,
        switches_per_message: None,
        offered: 1_000,
        delivered: 1_000,
        fairness: None,
        of_pattern: PatternFigures::None,
        memory: None,
        lost_in_window: 0,
        faults: Faults::default(),
        breach: None,
        steal: 0.0,
        peer_load: None,
        clock_error: None,
        discarded: None,
        slices: Vec::new(),
        unpaused_run_ns: None,
        paused_slices: Vec::new(),
    }
}

/// Returns a record with two cells. Both have `process/pipe` and `process/unix-stream`, the first
/// also has the reference ring; each cell has a control. All times of a case are within 1 %.
pub(crate) fn record() -> Record {
    changed("", 1.0)
}

/// Returns that record with the times of one mechanism multiplied by `factor`.
pub(crate) fn changed(mechanism: &str, factor: f64) -> Record {
    let mut entrants = Vec::new();
    for (pattern, names) in [
        (Pattern::PingPong, &["process/pipe", "process/unix-stream", "process/reference-ring"][..]),
        (Pattern::Stream, &["process/pipe", "process/unix-stream"]),
    ] {
        for (index, name) in names.iter().chain(names.first()).enumerate() {
            let case = Case { mechanism: (*name).to_owned(), cell: cell(pattern) };
            entrants.push(Entrant::new(case, index == names.len()));
        }
    }
    let mut instances = Vec::new();
    for round in 0..ROUNDS {
        for (index, entrant) in entrants.iter().enumerate() {
            let factor = if entrant.case.mechanism == mechanism { factor } else { 1.0 };
            let ns = (100_000.0 * factor) as u64 + 100 * ((round * 7 + index * 3) % 8) as u64;
            let outcome = Outcome::Measured(Box::new(figures(entrant.case.cell.pattern, ns)));
            instances.push(InstanceRecord { round, entrant: index, line_ns: None, heat: None, outcome });
        }
    }
    let mechanisms = ["process/pipe", "process/unix-stream", "process/reference-ring"].map(|name| {
        let standing = if name.contains("reference") { Standing::Reference } else { Standing::Candidate };
        Spec::new(name).standing(standing)
    });
    Record {
        format: FORMAT.to_owned(),
        version: VERSION,
        tool: String::from("0.1.0"),
        provenance: None,
        started: String::from("2026-01-01T00:00:00Z"),
        seed: 1,
        window: Window::Time { warmup_ns: 50_000_000, measure_ns: 100_000_000 },
        slice_ns: None,
        rounds_planned: ROUNDS,
        rounds: ROUNDS,
        fingerprint: Fingerprint::take(),
        peer: None,
        limits: None,
        other_load: None,
        handling: Vec::new(),
        mechanisms: mechanisms.to_vec(),
        entrants,
        refusals: Vec::new(),
        heats: Vec::new(),
        instances,
    }
}

fn compared(a: &Record, b: &Record) -> BTreeMap<(String, String), Compared> {
    let cases = Comparison::of(a, b, ["A", "B"]).unwrap().cases.into_iter();
    cases.map(|case| ((case.mechanism.clone(), case.cell.pattern.to_string()), case)).collect()
}

fn of<'a>(cases: &'a BTreeMap<(String, String), Compared>, mechanism: &str) -> &'a Compared {
    &cases[&(format!("process/{mechanism}"), String::from("ping-pong"))]
}

fn refused(a: &Record, b: &Record) -> String {
    format!("{:#}", Comparison::of(a, b, ["A", "B"]).unwrap_err())
}

/// Changes the figures of the mechanisms whose name ends with `mechanism`; all if it is empty.
fn change_figures(record: &mut Record, mechanism: &str, mut with: impl FnMut(usize, &mut Figures)) {
    for instance in &mut record.instances {
        let ours = record.entrants[instance.entrant].case.mechanism.ends_with(mechanism);
        if let Outcome::Measured(figures) = &mut instance.outcome
            && ours
        {
            with(instance.round, figures);
        }
    }
}

#[test]
fn a_record_is_equivalent_to_itself() {
    let cases = compared(&record(), &record());
    assert_eq!(cases.len(), 5, "controls are not compared");
    assert_eq!(cases.values().filter(|case| case.verdict == Some(Verdict::Equivalent)).count(), 4);
    assert!(of(&cases, "reference-ring").anchor && of(&cases, "reference-ring").verdict.is_none());
}

#[test]
fn a_better_case_is_faster_and_swapped_records_mirror_the_change() {
    let (base, better) = (record(), changed("process/unix-stream", 0.5));
    let cases = compared(&base, &better);
    assert_eq!(of(&cases, "unix-stream").verdict, Some(Verdict::Faster));
    assert_eq!(of(&cases, "pipe").verdict, Some(Verdict::Equivalent));
    let stream = &cases[&(String::from("process/unix-stream"), String::from("stream"))];
    assert_eq!(stream.verdict, Some(Verdict::Faster), "also in messages per second");
    let change = of(&cases, "unix-stream").change.unwrap();
    assert!((change.ratio() - 2.0).abs() < 0.03 && change.coverage >= 0.95, "{change:?}");

    let swapped = of(&compared(&better, &base), "unix-stream").change.unwrap();
    assert!((swapped.low + change.high).abs() < 1e-12 && (swapped.high + change.low).abs() < 1e-12, "A and B mirror");
}

#[test]
fn the_drift_of_the_machine_is_subtracted() {
    let mut slower = record();
    change_figures(&mut slower, "", |_, figures| {
        figures.window_ns = figures.window_ns * 13 / 10;
        if let Some(latency) = &mut figures.latency {
            latency.p50_ns = latency.p50_ns * 13 / 10;
        }
    });
    let cases = compared(&record(), &slower);
    assert_eq!(of(&cases, "pipe").verdict, Some(Verdict::Equivalent));
    let drift = Comparison::of(&record(), &slower, ["A", "B"]).unwrap().drift.unwrap();
    assert_eq!(drift.anchors, 1);
    assert!((drift.interval.ratio() - 1.0 / 1.3).abs() < 0.01, "{drift:?}");
    assert!(of(&cases, "pipe").change.unwrap().half_width() >= drift.interval.half_width(), "its uncertainty is added");
}

/// The record as an open loop, of which the pipe lost so many of 1,000 messages.
pub(crate) fn open_loop(lost: u64) -> Record {
    let mut record = record();
    record.entrants.iter_mut().for_each(|entrant| entrant.case.cell.load = Load::Rate(100_000));
    change_figures(&mut record, "/pipe", |_, figures| {
        (figures.messages, figures.lost_in_window) = (1_000 - lost, lost);
    });
    record
}

#[test]
fn a_mechanism_that_loses_too_much_in_one_record_is_worse_there() {
    let (kept, lossy) = (open_loop(0), open_loop(30));
    for (a, b, expected) in [(&kept, &lossy, Verdict::Slower), (&lossy, &kept, Verdict::Faster)] {
        let cases = compared(a, b);
        let pipe = of(&cases, "pipe");
        assert_eq!((pipe.verdict, pipe.change), (Some(expected), None), "nothing is known of what was lost");
        assert_eq!(of(&cases, "unix-stream").verdict, Some(Verdict::Equivalent));
    }
    for (a, b) in [(&lossy, &lossy), (&open_loop(9), &open_loop(12))] {
        assert_eq!(of(&compared(a, b), "pipe").verdict, Some(Verdict::Inconclusive), "both, or hardly more");
    }
    let [a, b] = super::words::figures(of(&compared(&kept, &lossy), "pipe"));
    assert!(a.ends_with("us") && b.starts_with("lost ") && b.ends_with(" %"), "{a} {b}");
    // What is lost at the highest rate of a stream does not count: it was searched for.
    let mut saturated = lossy.clone();
    saturated.entrants.iter_mut().for_each(|entrant| entrant.case.cell.load = Load::Saturated);
    assert_eq!(of(&compared(&record(), &saturated), "pipe").verdict, Some(Verdict::Equivalent));
}

#[test]
fn times_are_not_equivalent_or_slower_within_the_errors_of_two_clocks() {
    let between_clocks = |factor, max_ns| {
        let mut record = changed("process/pipe", factor);
        change_figures(&mut record, "", |_, figures| figures.clock_error = Some(ClockError { max_ns, drift_ns: 0 }));
        record
    };
    let verdict = |factor, max_ns| {
        let cases = compared(&between_clocks(1.0, max_ns), &between_clocks(factor, max_ns));
        of(&cases, "pipe").verdict
    };
    assert_eq!(verdict(1.0, 500), Some(Verdict::Equivalent), "1 % of the time");
    assert_eq!(verdict(1.0, 5_000), Some(Verdict::Inconclusive), "10 %: more than what counts as equal");
    assert_eq!(verdict(1.3, 5_000), Some(Verdict::Slower));
    assert_eq!(verdict(1.3, 20_000), Some(Verdict::Inconclusive), "40 %");
    assert_eq!(verdict(3.0, 200_000), Some(Verdict::Inconclusive), "nothing is known of a time that is shorter");
}

#[test]
fn a_reference_ring_of_another_version_is_no_anchor() {
    let mut b = record();
    b.mechanisms[2].version = String::from("0.2");
    let comparison = Comparison::of(&record(), &b, ["A", "B"]).unwrap();
    assert_eq!(comparison.drift, None);
    assert_eq!(comparison.cases.iter().filter(|case| case.anchor).count(), 0);
    assert_eq!(comparison.notes, ["process/reference-ring is kernel in A and 0.2 in B"]);
}

#[test]
fn discarded_and_failed_instances_are_left_out_and_counted() {
    let mut b = changed("process/pipe", 0.5);
    change_figures(&mut b, "/pipe", |round, figures| {
        if round == 0 {
            figures.discarded = Some(Discarded::StolenTime { share: 0.05 });
            figures.window_ns = 1;
        }
    });
    let failed = b.instances.iter_mut().find(|instance| instance.round == 1 && instance.entrant == 1).unwrap();
    failed.outcome = Outcome::Failed { why: String::from("it hung"), kind: Some(FailureKind::Hang) };
    let comparison = Comparison::of(&record(), &b, ["A", "B"]).unwrap();
    assert_eq!((comparison.a.left_out, comparison.b.left_out), (0, 3));
    let cases = compared(&record(), &b);
    assert!(of(&cases, "pipe").change.is_some());
    assert_eq!(of(&cases, "pipe").verdict, Some(Verdict::Inconclusive), "5 rounds of the control give no floor");
}

#[test]
fn too_few_instances_decide_nothing() {
    let mut b = changed("process/pipe", 0.2);
    b.instances.retain(|instance| instance.round < 2);
    b.rounds = 2;
    let cases = compared(&record(), &b);
    assert!(cases.values().all(|case| case.change.is_none() && case.verdict != Some(Verdict::Faster)));
    assert_eq!(Comparison::of(&record(), &b, ["A", "B"]).unwrap().drift, None);
    assert_eq!(Comparison::of(&record(), &b, ["A", "B"]).unwrap().notes, ["B was stopped after 2 of 6 rounds"]);
    b.instances.clear();
    assert!(compared(&record(), &b).values().all(|case| case.b_ns.is_none()));
}

#[test]
fn impossible_figures_decide_nothing() {
    let mut b = record();
    change_figures(&mut b, "/pipe", |round, figures| {
        figures.messages = if round == 2 { 0 } else { figures.messages };
        if let (Some(latency), 2) = (&mut figures.latency, round) {
            latency.p50_ns = 0;
        }
    });
    change_figures(&mut b, "/reference-ring", |_, figures| {
        figures.latency.iter_mut().for_each(|latency| latency.p50_ns = 0)
    });
    let comparison = Comparison::of(&record(), &b, ["A", "B"]).unwrap();
    assert_eq!(comparison.drift, None, "a case without figures is no anchor");
    for case in comparison.cases.iter().filter(|case| case.mechanism == "process/pipe") {
        assert_eq!((case.change, case.verdict), (None, Some(Verdict::Inconclusive)));
    }
    serde_json::to_string(&comparison).unwrap();
}

#[test]
fn records_of_different_machines_are_refused() {
    let mut b = record();
    b.fingerprint.cpu = String::from("Z80\u{1b}[2J");
    b.fingerprint.cores += 1;
    let error = refused(&record(), &b);
    assert!(error.contains("processor: ") && error.contains("cores: ") && error.contains("on one machine"), "{error}");
    assert!(!error.contains('\u{1b}'), "{error:?}");
}

#[test]
fn records_between_other_hosts_are_refused() {
    let fingerprint = Fingerprint::take();
    let address = String::from("tcp://box:1");
    let peer = Peer {
        address,
        tool: String::from("0.1.0"),
        commit: None,
        fingerprint,
        round_trip_ns: 1,
        link: None,
        other_load: None,
    };
    let between = || Record { peer: Some(peer.clone()), ..record() };
    Comparison::of(&between(), &between(), ["A", "B"]).unwrap();
    let error = refused(&between(), &record());
    assert!(error.contains("this one and tcp://box:1 / this one alone"), "{error}");
    let mut other = between();
    other.peer.as_mut().unwrap().fingerprint.kernel = String::from("1.0");
    let error = refused(&between(), &other);
    assert!(error.contains("of the other host: kernel: ") && error.contains("/ 1.0"), "{error}");
}

#[test]
fn records_with_different_windows_are_refused() {
    let mut b = record();
    b.window = Window::Count { warmup: 10, messages: 1_000_000 };
    let error = refused(&record(), &b);
    assert!(error.contains("100 ms after 50.0 ms / 1,000,000 messages after 10"), "{error}");
}

#[test]
fn records_without_a_case_in_common_are_refused() {
    let mut other_cells = record();
    other_cells.entrants.iter_mut().for_each(|entrant| entrant.case.cell.payload = Payload::U64);
    assert!(refused(&record(), &other_cells).contains("no cell in common"));

    let mut others = record();
    others.entrants.iter_mut().for_each(|entrant| entrant.case.mechanism.push('2'));
    others.mechanisms.iter_mut().for_each(|spec| spec.name.push('2'));
    assert!(refused(&record(), &others).contains("no mechanism"));

    let mut empty = record();
    empty.entrants.clear();
    empty.instances.clear();
    assert!(refused(&record(), &empty).contains("no cell in common"));
}

#[test]
fn records_that_claim_too_many_rounds_or_instances_are_refused() {
    let mut b = record();
    b.rounds_planned = usize::MAX;
    assert!(refused(&record(), &b).contains("more than 1000 rounds"));

    let mut b = record();
    let one = b.instances[0].clone();
    b.instances.extend(vec![one; (ROUNDS + MAKE_UP_ROUNDS) * (1 + REPEATS)]);
    assert!(refused(&record(), &b).contains("more instances of a case than rounds"));
}

#[test]
fn damaged_and_newer_files_are_refused() {
    let text = serde_json::to_string(&record()).unwrap();
    let error = |text: &str| format!("{:#}", Record::parse(text).unwrap_err());
    assert!(Comparison::of(&Record::parse(&text).unwrap(), &record(), ["A", "B"]).is_ok());
    assert!(error(&text[..text.len() / 2]).contains("cut off"));
    let newer = text.replacen(&format!("\"version\":{VERSION}"), &format!("\"version\":{}", VERSION + 1), 1);
    assert!(error(&newer).contains("newer Estafette"));
    assert!(error(&text.replacen("\"window_ns\":", "\"window_ns\":1e999,\"x\":", 1)).contains("damaged"));
    assert!(error(&text.replacen("\"entrant\":0", "\"entrant\":99", 1)).contains("damaged"));
}

#[test]
fn different_allocators_are_noted() {
    let with = |allocator: &str| {
        let mut record = record();
        record.provenance = Some(Provenance {
            commit: None,
            compiler: String::from("rustc"),
            allocator: allocator.to_owned(),
            arguments: Vec::new(),
        });
        record
    };
    let notes = |b: &str| Comparison::of(&with("system"), &with(b), ["A", "B"]).unwrap().notes;
    assert_eq!(notes("mimalloc"), ["A was measured with the allocator system, B with mimalloc"]);
    assert!(notes("system").is_empty());
}
