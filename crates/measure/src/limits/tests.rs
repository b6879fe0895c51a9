//! Tests that hold on any machine, even a busy one. None of them checks a speed.

use std::time::{Duration, Instant};

use super::*;

const SHORT: Duration = Duration::from_millis(100);
/// Longer than all quantities with their full grace time, on a machine that is several times
/// overloaded.
const PATIENCE: Duration = Duration::from_secs(60);

fn measured(cpus: &[usize]) -> Limits {
    measure(cpus, SHORT, &mut |_| Ok(())).unwrap()
}

fn rows_of(limits: &Limits, name: &str) -> Vec<LimitRow> {
    limits.rows().into_iter().filter(|row| row.name == name).collect()
}

fn two_cpus() -> Option<[usize; 2]> {
    available_cpus().first_chunk().copied()
}

#[test]
fn every_figure_is_finite_and_costs_are_positive() {
    let limits = measured(&available_cpus());
    for row in limits.rows() {
        assert!(row.value.is_finite(), "{row:?}");
        // There may be no gap, and a sleep may end on time.
        if !row.name.starts_with("scheduler gaps") && !row.name.starts_with("timer") {
            assert!(row.value > 0.0, "{row:?}");
        }
    }
}

#[test]
fn compound_operations_take_longer_than_their_parts() {
    let limits = measured(&available_cpus());
    let Limits { clock, kernel, futex, timer, scheduler, .. } = &limits;
    // A wake and a switch are several system calls; a loop iteration is a cycle or two.
    assert!(clock.empty_loop_ns < kernel.syscall_ns);
    assert!(futex.same_core.round_trip_ns > kernel.syscall_ns);
    assert!(timer.p50_ns <= timer.p99_ns && timer.p99_ns <= timer.max_ns);
    assert!(timer.sleeps > 0);
    assert!(scheduler.longest_gap_ns <= scheduler.watched_ns);
    if let Some(line) = &limits.cache_line {
        assert!(line.fastest_round_trip_ns <= line.round_trip_ns);
        assert!(line.round_trip_ns > clock.empty_loop_ns);
    }
}

#[test]
fn one_cpu_has_no_figures_across_cores() {
    let home = available_cpus()[0];
    for cpus in [&[home][..], &[home, home]] {
        let limits = measured(cpus);
        assert_eq!(limits.cpus, [home]);
        assert_eq!(limits.cache_line, None);
        assert_eq!(limits.futex.other_core_idle, None);
        assert_eq!(limits.futex.other_core_busy, None);
        assert!(limits.copy.iter().all(|copy| copy.cross_core_bytes_per_s.is_none()));
        assert!(limits.copy.iter().all(|copy| copy.cross_core_ahead_bytes.is_none()));
        assert!(!limits.rows().iter().any(|row| row.name.contains("across")));
    }
}

#[test]
fn two_cpus_have_all_figures() {
    let Some(cpus) = two_cpus() else { return };
    let limits = measured(&cpus);
    assert_eq!(limits.cpus, cpus);
    assert_eq!(limits.cache_line.as_ref().unwrap().readings_ns.len(), copy::SIZES.len() + 2);
    assert!(limits.futex.other_core_idle.is_some() && limits.futex.other_core_busy.is_some());
    assert_eq!(rows_of(&limits, "copy across cores").len(), copy::SIZES.len());
    let sizes: Vec<_> = limits.copy.iter().map(|copy| copy.size_bytes as usize).collect();
    assert_eq!(sizes, copy::SIZES);
    let is_whole = |copy: &CopyBandwidth| copy.cross_core_ahead_bytes.is_some_and(|ahead| ahead % copy.size_bytes == 0);
    assert!(limits.copy.iter().all(is_whole), "{:?}", limits.copy);
}

#[test]
fn measure_returns_in_bounded_time_and_does_not_pin_the_caller() {
    let cpus = available_cpus();
    let start = Instant::now();
    for budget in [Duration::ZERO, SHORT] {
        measure(&cpus, budget, &mut |_| Ok(())).unwrap();
    }
    assert!(start.elapsed() < PATIENCE);
    assert_eq!(available_cpus(), cpus);
}

#[test]
fn progress_names_each_kind_once() {
    let mut names = Vec::new();
    let mut progress = |name: &str| {
        names.push(name.to_owned());
        Ok(())
    };
    measure(&available_cpus(), SHORT, &mut progress).unwrap();
    names.dedup();
    let distinct: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(names.len(), distinct.len(), "{names:?}");
    assert_eq!(names[0], "clock");
}

#[test]
fn an_error_of_progress_ends_the_measurement() {
    for last in ["clock", "cache line and copying", "scheduler jitter"] {
        let mut latest = String::new();
        let mut stop = |name: &str| {
            latest = name.to_owned();
            if name == last { Err(anyhow::anyhow!("enough")) } else { Ok(()) }
        };
        assert_eq!(measure(&available_cpus(), SHORT, &mut stop).unwrap_err().to_string(), "enough");
        assert_eq!(latest, last);
    }
}

#[test]
fn the_error_names_a_missing_cpu() {
    let none = measure(&[], SHORT, &mut |_| Ok(())).unwrap_err();
    assert!(format!("{none:#}").contains("name at least one"), "{none:#}");

    let nowhere = measure(&[usize::MAX], SHORT, &mut |_| Ok(())).unwrap_err();
    assert!(format!("{nowhere:#}").contains("cannot pin a thread to CPU"), "{nowhere:#}");
}

#[test]
fn limits_round_trip_through_json() {
    for cpus in [available_cpus(), vec![available_cpus()[0]]] {
        let limits = measured(&cpus);
        let text = serde_json::to_string(&limits).unwrap();
        let read: Limits = serde_json::from_str(&text).unwrap();
        assert_eq!(limits.rows().len(), read.rows().len());
        for (was, is) in limits.rows().into_iter().zip(read.rows()) {
            // Parsing decimals may lose the last bit.
            assert!((was.value - is.value).abs() <= was.value.abs() * 1e-12, "{was:?} {is:?}");
            assert_eq!((was.name, was.unit, was.note), (is.name, is.unit, is.note));
        }
    }
}

#[test]
fn the_schema_describes_every_field() {
    let schema = serde_json::to_value(schemars::schema_for!(Limits)).unwrap();
    let saved = serde_json::to_value(measured(&available_cpus())).unwrap();
    for field in saved.as_object().unwrap().keys() {
        assert!(schema["properties"][field]["description"].is_string(), "{field}");
    }
}
