//! Clocks: whether a reading is cheap, and whether all processes of a measurement read the same.

use std::fs;

use estafette_measure::clock::cost_ns;
use estafette_measure::fingerprint::Fingerprint;
use estafette_measure::units;

use super::{Finding, read};

/// Above this a reading is no longer the processor's own counter, only a page shared with the host.
const CHEAP_NS: f64 = 60.0;
/// Above this it is a system call.
const DEAR_NS: f64 = 150.0;

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
            "the cost of a reading, below, tells whether it is; `clocksource=tsc` on the kernel's command line is cheaper",
        ),
        "unknown" => Finding::note(WHAT, "not visible", "the cost of a reading, below, tells whether it is a good one"),
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
        format!("{}; what takes less than {} is timed in batches", units::duration(ns), units::duration(20.0 * ns));
    if ns <= CHEAP_NS {
        Finding::ok(WHAT, found)
    } else if ns <= DEAR_NS {
        Finding::note(WHAT, found, "dearer than a counter of the processor: keep it in mind for round trips under 1 us")
    } else {
        Finding::warning(WHAT, found, "that is a system call for each reading: see to the clock source")
    }
}

/// From the links in `/proc/PID/ns`: our time namespace, that of the children we start, and that of the first process.
fn namespaces(ours: Option<&str>, children: Option<&str>, first: Option<&str>) -> Finding {
    const WHAT: &str = "time namespace";
    match (ours, children, first) {
        (None, ..) => Finding::ok(WHAT, "none to be seen"),
        (Some(ours), Some(children), _) if ours != children => Finding::warning(
            WHAT,
            "the processes we start would read another clock than we do",
            "start Estafette inside the new namespace: `unshare --time --fork`",
        ),
        (Some(ours), _, Some(first)) if ours != first => Finding::note(
            WHAT,
            "not that of the first process",
            "all ends of a measurement share it; times of processes outside cannot be compared with ours",
        ),
        (.., Some(_)) => Finding::ok(WHAT, "that of the first process"),
        (.., None) => Finding::ok(WHAT, "one for all we start; that of the first process may not be read"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict::{Note, Ok, Warning};
    use super::*;

    #[test]
    fn sources_by_what_a_reading_costs() {
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
        assert_eq!(cost(20.0).found, "20.0 ns; what takes less than 400 ns is timed in batches");
    }

    #[test]
    fn namespaces_that_are_one_and_that_are_not() {
        let (one, other) = (Some("time:[4026531834]"), Some("time:[4026532000]"));
        assert_eq!(namespaces(None, None, None).verdict, Ok);
        assert_eq!(namespaces(one, one, one).verdict, Ok);
        assert_eq!(namespaces(one, one, None).verdict, Ok);
        assert_eq!(namespaces(one, None, None).verdict, Ok);
        assert_eq!(namespaces(one, one, other).verdict, Note);
        assert_eq!(namespaces(one, other, one).verdict, Warning);
    }
}
