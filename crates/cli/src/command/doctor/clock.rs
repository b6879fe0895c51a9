//! Clocks: checks whether a reading is cheap, and whether all processes of a measurement read the
//! same clock.

use std::fs;

use estafette_measure::clock::cost_ns;
use estafette_measure::fingerprint::Fingerprint;
use estafette_measure::units;

use super::finding::Finding;
use super::read::read;

/// Above this cost in nanoseconds, a reading does not use the processor's own counter, but still no
/// system call.
const CHEAP_NS: f64 = 60.0;
/// Above this cost in nanoseconds, a reading is a system call.
const EXPENSIVE_NS: f64 = 150.0;

pub(super) fn findings() -> Vec<Finding> {
    let available = read("/sys/devices/system/clocksource/clocksource0/available_clocksource");
    let namespace = |path: &str| Some(fs::read_link(path).ok()?.to_string_lossy().into_owned());
    vec![
        source(&Fingerprint::take().clock_source, &available.unwrap_or_default()),
        cost(cost_ns()),
        namespaces(
            namespace("/proc/self/ns/time").as_deref(),
            namespace("/proc/self/ns/time_for_children").as_deref(),
            namespace("/proc/1/ns/time").as_deref(),
        ),
    ]
}

fn source(current: &str, available: &str) -> Finding {
    const WHAT: &str = "clock source";
    match current {
        "tsc" | "arch_sys_counter" => Finding::ok(WHAT, format!("{current}, read without a system call")),
        "kvm-clock" | "hyperv_clocksource_tsc_page" => Finding::note(
            WHAT,
            format!("{current}, of the hypervisor; usually read without a system call"),
            "the cost of a reading, below, shows whether it is; `clocksource=tsc` on the kernel's command line is cheaper",
        ),
        "unknown" => Finding::note(WHAT, "not visible", "the cost of a reading, below, shows whether it is good"),
        _ if available.split_ascii_whitespace().any(|name| name == "tsc") => Finding::warning(
            WHAT,
            format!("{current}: each reading is a system call, or slower"),
            "as root: echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource",
        ),
        _ => Finding::warning(
            WHAT,
            format!("{current}: each reading is a system call, or slower"),
            "look in `dmesg` for why the kernel gave up the tsc; until then trust throughput, not short round trips",
        ),
    }
}

fn cost(ns: f64) -> Finding {
    const WHAT: &str = "clock reading";
    let found =
        format!("{}; operations under {} are timed in batches", units::duration(ns), units::duration(20.0 * ns));
    if ns <= CHEAP_NS {
        Finding::ok(WHAT, found)
    } else if ns <= EXPENSIVE_NS {
        Finding::note(WHAT, found, "slower than the processor's counter: consider it for round trips under 1 us")
    } else {
        Finding::warning(WHAT, found, "each reading is a system call: change the clock source")
    }
}

/// Checks the links in `/proc/PID/ns`: the time namespace of this process, that of its children,
/// and that of the first process.
fn namespaces(ours: Option<&str>, children: Option<&str>, first: Option<&str>) -> Finding {
    const WHAT: &str = "time namespace";
    match (ours, children, first) {
        (None, ..) => Finding::ok(WHAT, "none visible"),
        (Some(ours), Some(children), _) if ours != children => Finding::warning(
            WHAT,
            "processes started by Estafette would read another clock than it does",
            "start Estafette inside the new namespace: `unshare --time --fork`",
        ),
        (Some(ours), _, Some(first)) if ours != first => Finding::note(
            WHAT,
            "different from the first process's",
            "all ends of a measurement share it; times of other processes cannot be compared with theirs",
        ),
        (.., Some(_)) => Finding::ok(WHAT, "the same as the first process's"),
        (.., None) => Finding::ok(WHAT, "shared by all processes of a run; the first process's is not readable"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingVerdict::{Note, Ok, Warning};
    use super::*;

    #[test]
    fn clock_sources_by_the_cost_of_a_reading() {
        for (current, available, verdict) in [
            ("tsc", "tsc hpet", Ok),
            ("arch_sys_counter", "arch_sys_counter", Ok),
            ("kvm-clock", "kvm-clock tsc", Note),
            ("unknown", "", Note),
            ("hpet", "hpet acpi_pm", Warning),
            ("hpet", "tsc hpet", Warning),
        ] {
            assert_eq!(source(current, available).verdict, verdict, "{current}");
        }
        assert!(source("hpet", "tsc hpet").remedy.unwrap().contains("echo tsc"));
        assert!(!source("hpet", "not-tsc").remedy.unwrap().contains("echo tsc"));
    }

    #[test]
    fn costs() {
        assert_eq!([20.0, 90.0, 400.0].map(|ns| cost(ns).verdict), [Ok, Note, Warning]);
        assert_eq!(cost(20.0).found, "20.0 ns; operations under 400 ns are timed in batches");
    }

    #[test]
    fn equal_and_different_time_namespaces() {
        let (one, other) = (Some("time:[4026531834]"), Some("time:[4026532000]"));
        assert_eq!(namespaces(None, None, None).verdict, Ok);
        assert_eq!(namespaces(one, one, one).verdict, Ok);
        assert_eq!(namespaces(one, one, None).verdict, Ok);
        assert_eq!(namespaces(one, None, None).verdict, Ok);
        assert_eq!(namespaces(one, one, other).verdict, Note);
        assert_eq!(namespaces(one, other, one).verdict, Warning);
    }
}
