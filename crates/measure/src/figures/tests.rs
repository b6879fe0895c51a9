//! Tests of the figures of whole instances.

use serde_json::json;

use super::validity::empty_figures;
use super::*;
use crate::coordinator::FailureKind;
use crate::discarded::Discarded;
use crate::hosts::HostLoad;
use crate::protocol::{self, LatencyCounts};
use crate::record::MIN_LAPS;
use crate::slices::SliceCounts;

/// The case of a mechanism `x` with these values, which replace those of a spinning stream between
/// threads.
fn case(changes: serde_json::Value) -> Case {
    let mut cell = json!({
        "scope": "thread", "pattern": "stream", "payload": "u64", "producers": 1, "capacity": 1,
        "runtime": "thread", "wait": "spin", "place": "free",
    });
    for (name, value) in changes.as_object().unwrap() {
        cell[name] = value.clone();
    }
    let mechanism = format!("{}/x", cell["scope"].as_str().unwrap());
    serde_json::from_value(json!({"mechanism": mechanism, "cell": cell})).unwrap()
}

#[test]
fn fairness_is_the_slowest_producer_divided_by_the_mean() {
    let of = |shares: &[&[u64]]| fairness(true, shares.iter().copied());
    assert_eq!(of(&[&[10, 10]]), Some(1.0));
    assert_eq!(of(&[&[10, 30]]), Some(0.5));
    assert_eq!(of(&[&[0, 30, 30]]), Some(0.0));
    assert_eq!(of(&[&[10, 0], &[0, 10]]), Some(1.0), "two consumers together");
    assert_eq!((of(&[]), of(&[&[]]), of(&[&[0, 0]])), (None, None, None));
}

#[test]
fn memory_is_that_of_all_children_or_unknown() {
    let of = |parts: &[Option<u64>]| {
        let child = |memory: &Option<u64>| (Role::All, protocol::Report { memory: *memory, ..Default::default() });
        memory(&Measured { reports: parts.iter().map(child).collect(), ..Measured::default() })
    };
    assert_eq!(of(&[Some(5), Some(7)]), Some(12));
    assert_eq!(of(&[Some(5), None]), None, "a server of the mechanism is not measured");
    assert_eq!([of(&[]), of(&[Some(u64::MAX), Some(1)])], [None, None]);
}

#[test]
fn an_unpaused_run_with_stolen_time_does_not_count_but_its_slices_do() {
    let slice = |lap| SliceCounts { lap, ns: 1_000, messages: 10, p50_ns: None };
    let of = |is_unpaused_run_stolen| {
        let party = PartyReport {
            messages: 10 * (MIN_LAPS as u64 + 1),
            window_ns: 100_000,
            slices: (1..=MIN_LAPS as u64 + 1).map(slice).collect(),
            ..PartyReport::new(Role::Consumer(0))
        };
        let report = protocol::Report { parties: vec![party], ..Default::default() };
        let measured =
            Measured { reports: vec![(Role::Consumer(0), report)], is_unpaused_run_stolen, ..Measured::default() };
        let case = case(json!({}));
        let window = Window::Time { warmup_ns: 0, measure_ns: 100_000 };
        let figures = figures(&Spec::new("thread/x"), &case, window, &measured, Disturbance::default()).unwrap();
        (figures.unpaused_run_ns, figures.slices.len())
    };
    assert_eq!(of(false), (Some(100.0), MIN_LAPS));
    assert_eq!(of(true), (None, MIN_LAPS));
}

#[test]
fn an_instance_that_received_nothing_fails_unless_it_was_disturbed() {
    let case = case(json!({}));
    let window = Window::Time { warmup_ns: 0, measure_ns: 1_000 };
    let figures = |steal, other_load| {
        let measured = Measured { steal, ..Measured::default() };
        figures(&Spec::new("thread/x"), &case, window, &measured, Disturbance { other_load, ..Disturbance::default() })
    };
    assert_eq!(figures(0.0, Some(0.05)).unwrap_err().kind, FailureKind::Empty);
    assert_eq!(figures(0.0, None).unwrap_err().kind, FailureKind::Empty);
    assert_eq!(figures(0.0, Some(0.4)).unwrap().discarded, Some(Discarded::OtherLoad { share: 0.4 }));
    assert_eq!(figures(0.5, None).unwrap().discarded, Some(Discarded::StolenTime { share: 0.5 }));
}

#[test]
fn a_few_copies_that_are_not_one_message_are_none() {
    let case = case(json!({"scope": "process", "pattern": "pub-sub", "producers": 4, "wait": "block"}));
    let window = Window::Time { warmup_ns: 0, measure_ns: 1_000 };
    let messages = |of_each: [u64; 4]| {
        let report = |(index, messages)| {
            let role = Role::Consumer(index);
            let party = PartyReport { messages, window_ns: 1_000, ..PartyReport::new(role) };
            (role, protocol::Report { parties: vec![party], ..Default::default() })
        };
        let measured =
            Measured { reports: of_each.into_iter().enumerate().map(report).collect(), ..Measured::default() };
        figures(&Spec::new("process/x"), &case, window, &measured, Disturbance::default())
            .map(|figures| figures.messages)
    };
    assert_eq!(messages([2, 2, 2, 2]).unwrap(), 2);
    assert_eq!(messages([0, 3, 0, 0]).unwrap_err().kind, FailureKind::Empty);
}

#[test]
fn the_other_host_disturbs_as_this_one_does() {
    let case = case(json!({"scope": "network", "wait": "block", "place": "other-host"}));
    let window = Window::Time { warmup_ns: 0, measure_ns: 1_000 };
    let discarded = |messages, steal, other_load| {
        let party = PartyReport { messages, window_ns: 1_000, ..PartyReport::new(Role::Consumer(0)) };
        let report = protocol::Report { parties: vec![party], ..Default::default() };
        let measured = Measured {
            reports: vec![(Role::Consumer(0), report)],
            peer_load: Some(HostLoad { steal, other_load }),
            ..Measured::default()
        };
        figures(&Spec::new("network/x"), &case, window, &measured, Disturbance::default())
            .map(|figures| figures.discarded)
    };
    let stolen = Some(Discarded::StolenTimeOfPeer { share: 0.5 });
    assert_eq!(discarded(9, 0.0, Some(0.4)).unwrap(), None);
    assert_eq!(discarded(9, 0.5, None).unwrap(), stolen);
    assert_eq!(discarded(0, 0.5, Some(0.4)).unwrap(), stolen);
    assert_eq!(discarded(0, 0.0, Some(0.4)).unwrap(), Some(Discarded::OtherLoadOfPeer { share: 0.4 }));
    assert_eq!(discarded(0, 0.0, Some(0.05)).unwrap_err().kind, FailureKind::Empty);
}

#[test]
fn open_loops_are_compared_by_the_99th_percentile_even_of_few_samples() {
    let measured = |rest: u64| {
        let counts = vec![(100, 98), (2_000, rest)];
        let party = PartyReport {
            messages: 100,
            window_ns: 1_000,
            latency: Some(LatencyCounts { batch: 1, counts }),
            ..PartyReport::new(Role::Consumer(0))
        };
        let report = protocol::Report { parties: vec![party], ..Default::default() };
        Measured { reports: vec![(Role::Consumer(0), report)], ..Measured::default() }
    };
    let case = case(json!({"load": "1000/s"}));
    let window = Window::Time { warmup_ns: 0, measure_ns: 1_000 };
    for (rest, ns) in [(0, 100.0), (1, 2_000.0), (2, 2_000.0)] {
        let figures = figures(&Spec::new("thread/x"), &case, window, &measured(rest), Disturbance::default()).unwrap();
        assert_eq!(figures.latency.as_ref().and_then(|latency| latency.p99_ns), None);
        assert!((figures.metric_ns() / ns - 1.0).abs() < 0.001, "{rest}: {}", figures.metric_ns());
    }
}

#[test]
fn lost_messages_of_an_open_loop_are_the_slowest() {
    let counted = LatencyCounts { batch: 1, counts: vec![(100, 9_950), (1_000, 50)] };
    let of = |lost| latency_of(&counted, true, lost).unwrap();
    assert_eq!((of(0).p99_ns, of(0).p999_ns.map(|ns| ns / 900)), (Some(100), Some(1)));
    // Of 10,060 messages the slowest hundredth are 60 lost ones and 41 slow ones, the slowest thousandth lost ones.
    assert_eq!((of(60).p99_ns.map(|ns| ns / 900), of(60).p999_ns), (Some(1), None));
    assert_eq!((of(200).p50_ns, of(200).p99_ns), (100, None));
    let figures = Figures {
        latency: Some(of(200)),
        lost_in_window: 200,
        ..empty_figures(&Measured::default(), Discarded::StolenTime { share: 0.0 })
    };
    assert_eq!(figures.quantiles(&[0.5, 0.97, 0.99]), [Some(100), Some(100), None]);
}
