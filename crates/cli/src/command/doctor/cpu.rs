//! Processors: checks how many are available, how steadily they run, and what else uses them.

use std::path::Path;
use std::time::{Duration, Instant};

use estafette_measure::fingerprint::Fingerprint;
use estafette_measure::limits::{end_cpus, listed, pin_to};
use estafette_measure::run::MAX_STEAL;
use estafette_measure::usage::{Steal, Usage};

use super::cgroup;
use super::finding::Finding;
use super::read::read;

/// How long the processors are kept busy to detect competing load.
const PROBE_TIME: Duration = Duration::from_millis(500);

pub(super) fn findings(cpus: &[usize]) -> Vec<Finding> {
    let sys = |cpu: &usize, file: &str| read(&format!("/sys/devices/system/cpu/cpu{cpu}/{file}"));
    let online = read("/sys/devices/system/cpu/online").map_or(0, |list| listed(&list).len());
    let fingerprint = Fingerprint::take();
    let mut governors: Vec<_> = cpus.iter().filter_map(|cpu| sys(cpu, "cpufreq/scaling_governor")).collect();
    governors.sort();
    governors.dedup();
    // Read before the probe, because the probe is load too.
    let load = load(&read("/proc/loadavg").unwrap_or_default(), cpus.len());
    let probe = probe(cpus);
    let mut findings = vec![cores(cpus.len(), online), quota(cgroup::cpu_quota(), cpus.len())];
    if let [first, last] = end_cpus(cpus)[..] {
        let siblings = sys(&first, "topology/thread_siblings_list").unwrap_or_default();
        let socket = |cpu: usize| sys(&cpu, "topology/physical_package_id");
        findings.push(pair([first, last], &listed(&siblings), socket(first) != socket(last)));
    }
    findings.extend([load, share(probe.share, cpus.len()), steal(probe.steal), governor(&governors)]);
    findings.extend(turbo(
        read("/sys/devices/system/cpu/intel_pstate/no_turbo").as_deref(),
        read("/sys/devices/system/cpu/cpufreq/boost").as_deref(),
    ));
    let hypervisor =
        ["/sys/hypervisor/type", "/proc/device-tree/hypervisor"].iter().any(|path| Path::new(path).exists());
    let idle = read("/sys/devices/system/cpu/cpuidle/current_driver");
    findings.push(virtual_machine(fingerprint.virtual_machine || hypervisor, idle.as_deref()));
    findings.push(kernel(&fingerprint.kernel, read("/proc/version").as_deref()));
    findings
}

fn cores(usable: usize, online: usize) -> Finding {
    const WHAT: &str = "cores";
    match (usable, online) {
        (0 | 1, _) => Finding::warning(
            WHAT,
            "1 usable: both ends share it, and spinning mechanisms cannot be measured",
            "give Estafette two cores: look at `taskset -p $$`, the container's --cpuset-cpus, or the virtual machine",
        ),
        (usable, online) if usable < online => Finding::note(
            WHAT,
            format!("{usable} of {online} usable"),
            "an affinity or a cpuset excludes the others; they are not checked",
        ),
        _ => Finding::ok(WHAT, format!("{usable} usable")),
    }
}

fn quota(quota: Option<f64>, usable: usize) -> Finding {
    const WHAT: &str = "processor quota";
    match quota {
        None => Finding::ok(WHAT, "none visible"),
        Some(quota) if quota < usable as f64 => Finding::warning(
            WHAT,
            format!("{quota:.2} cores' worth of time on {usable} cores: when it is used up, the whole run stops"),
            "lift it (docker --cpus, systemd CPUQuota=, cpu.max) and limit the cores instead (--cpuset-cpus, AllowedCPUs=)",
        ),
        Some(quota) => Finding::ok(WHAT, format!("{quota:.2} cores' worth of time, no less than the {usable} cores")),
    }
}

/// Checks the two cores on which the ends of a case are placed.
fn pair([first, last]: [usize; 2], siblings_of_first: &[usize], sockets_differ: bool) -> Finding {
    const WHAT: &str = "pair of cores";
    let pair = format!("the ends run on CPUs {first} and {last}");
    if siblings_of_first.contains(&last) {
        return Finding::warning(
            WHAT,
            format!("{pair}, two threads of one core"),
            "they share caches and execution units: choose CPUs of two cores with `taskset -c`, see `lscpu -e`",
        );
    }
    if sockets_differ {
        return Finding::note(
            WHAT,
            format!("{pair}, in different sockets"),
            "figures depend on the link between them: choose CPUs of one socket with `taskset -c`, see `lscpu -e`",
        );
    }
    match siblings_of_first {
        [_, _, ..] => Finding::note(
            WHAT,
            format!("{pair}; each core runs several threads"),
            "load on the other thread slows this one: keep it idle, or boot with `nosmt`",
        ),
        _ => Finding::ok(WHAT, pair),
    }
}

/// Parses `/proc/loadavg`: `0.20 0.18 0.12 1/80 11206`.
fn load(text: &str, cores: usize) -> Finding {
    const WHAT: &str = "load average";
    let mut words = text.split_ascii_whitespace();
    let Some(load) = words.next().and_then(|word| word.parse::<f64>().ok()) else {
        return Finding::note(WHAT, "not visible", "check with `top` that nothing else runs");
    };
    let found = format!("{load:.2} over the last minute; {cores} core(s) usable");
    let remedy = "other programs run, or have just run: see `top`, and wait until they finish";
    if load >= cores as f64 / 2.0 {
        Finding::warning(WHAT, found, remedy)
    } else if load >= 0.3 {
        Finding::note(WHAT, found, remedy)
    } else {
        Finding::ok(WHAT, found)
    }
}

/// The result of keeping all usable cores busy.
struct BusyProbe {
    /// The share of their time that this process got, from 0 to 1.
    share: f64,
    /// The share of the machine's time that the hypervisor stole.
    steal: Option<f64>,
}

/// Keeps every usable core busy for a moment: steal and competing load only show on cores under
/// load.
fn probe(cpus: &[usize]) -> BusyProbe {
    let (began, steal, usage) = (Instant::now(), Steal::now(cpus), Usage::now());
    std::thread::scope(|scope| {
        for &cpu in cpus {
            let spin = move || {
                // If pinning fails, two threads share a core, and the share shows it.
                let _ = pin_to(cpu);
                while began.elapsed() < PROBE_TIME {
                    std::hint::spin_loop();
                }
            };
            // Without a thread the core stays idle.
            let _ = std::thread::Builder::new().spawn_scoped(scope, spin);
        }
    });
    let used = Usage::now().since(&usage).cpu_ns as f64;
    let steal = steal.and_then(|before| Some(Steal::now(cpus)?.since(&before)));
    BusyProbe { share: used / (began.elapsed().as_nanos() as f64 * cpus.len().max(1) as f64), steal }
}

fn share(share: f64, cores: usize) -> Finding {
    const WHAT: &str = "processor time";
    let found = format!("{:.1} % of {cores} core(s) kept busy for 0.5 s", share * 100.0);
    if share >= 0.98 {
        return Finding::ok(WHAT, found);
    }
    let remedy = "other programs, a quota or the hypervisor used the rest: see the lines around this one, and `top`";
    if share >= 0.90 { Finding::note(WHAT, found, remedy) } else { Finding::warning(WHAT, found, remedy) }
}

fn steal(part: Option<f64>) -> Finding {
    const WHAT: &str = "steal";
    let Some(part) = part else {
        return Finding::note(WHAT, "not visible", "stolen time cannot be distinguished from noise");
    };
    let found = format!("{:.1} % in that time", part * 100.0);
    if part > MAX_STEAL {
        let remedy = "instances with over 1 % are discarded: wait, or move to a host that is not overbooked";
        Finding::warning(WHAT, found, remedy)
    } else if part > 0.0 {
        Finding::note(WHAT, found, "the host has other guests: expect some instances to be discarded")
    } else {
        Finding::ok(WHAT, found)
    }
}

/// Checks the different governors of the usable cores.
fn governor(governors: &[String]) -> Finding {
    const WHAT: &str = "governor";
    match governors {
        [] => Finding::note(
            WHAT,
            "not visible",
            "the host or the firmware chooses the frequency: compare figures within a run only",
        ),
        [one] if one == "performance" => Finding::ok(WHAT, one.as_str()),
        some => Finding::note(
            WHAT,
            format!("{}: the frequency follows the load", some.join(", ")),
            "figures that include idle times get slower and less steady: `cpupower frequency-set -g performance`",
        ),
    }
}

/// Checks `no_turbo` of intel_pstate and `boost` of other drivers; `None` if neither is visible.
fn turbo(no_turbo: Option<&str>, boost: Option<&str>) -> Option<Finding> {
    const WHAT: &str = "turbo";
    let (on, switch) = match (no_turbo, boost) {
        (Some(off), _) => (off == "0", "echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo"),
        (None, Some(on)) => (on == "1", "echo 0 > /sys/devices/system/cpu/cpufreq/boost"),
        (None, None) => return None,
    };
    if !on {
        return Some(Finding::ok(WHAT, "off"));
    }
    let remedy =
        format!("the frequency depends on temperature and on the number of busy cores; for steadier figures: {switch}");
    Some(Finding::note(WHAT, "on", remedy))
}

fn virtual_machine(hypervisor: bool, idle_driver: Option<&str>) -> Finding {
    const WHAT: &str = "virtual machine";
    if !hypervisor {
        return Finding::ok(WHAT, "no sign of one");
    }
    let polls = match idle_driver {
        Some("haltpoll") => "; an idle core polls for a while (haltpoll) before it returns to the host",
        _ => "",
    };
    Finding::note(
        WHAT,
        format!("yes{polls}"),
        "waking an idle core may pass through the host: blocking is more expensive than on hardware, and the \
         host may move cores",
    )
}

/// Checks the release and the text of `/proc/version`.
fn kernel(release: &str, version: Option<&str>) -> Finding {
    const WHAT: &str = "kernel";
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version.is_some_and(|version| version.contains("PREEMPT_RT")) {
        let remedy = "it trades throughput for steady latency: its figures do not apply to other kernels";
        return Finding::note(WHAT, format!("{release}, real-time"), remedy);
    }
    if (1..5).contains(&major) {
        let remedy = format!("Linux {major}.{minor} is older than the tested versions: expect mechanisms to fail");
        return Finding::note(WHAT, release, remedy);
    }
    Finding::ok(WHAT, release)
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingVerdict::{Note, Ok, Warning};
    use super::*;

    #[test]
    fn cores_quotas_and_pairs() {
        assert_eq!(
            [cores(1, 8), cores(2, 8), cores(8, 8), cores(2, 0)].map(|found| found.verdict),
            [Warning, Note, Ok, Ok]
        );
        assert_eq!([None, Some(1.5), Some(2.0)].map(|some| quota(some, 2).verdict), [Ok, Warning, Ok]);
        assert_eq!(pair([0, 1], &[0], false).verdict, Ok);
        assert_eq!(pair([0, 1], &[], false).verdict, Ok);
        assert_eq!(pair([0, 1], &[0, 1], false).verdict, Warning);
        assert_eq!(pair([0, 3], &[0, 4], false).verdict, Note);
        assert_eq!(pair([0, 3], &[0], true).verdict, Note);
    }

    #[test]
    fn loads() {
        let of = |text| load(text, 4).verdict;
        assert_eq!(
            ["0.05 1 1 1/80 7", "0.50 0 0 1/80 7", "2.00 0 0 1/8 7", "", "x"].map(of),
            [Ok, Note, Warning, Note, Note]
        );
    }

    #[test]
    fn shares_and_steal() {
        assert_eq!([0.999, 0.95, 0.5].map(|part| share(part, 2).verdict), [Ok, Note, Warning]);
        assert_eq!(
            [Some(0.0), Some(0.005), Some(0.05), None].map(|part| steal(part).verdict),
            [Ok, Note, Warning, Note]
        );
        // The usage of the whole process, so it includes other tests.
        assert!(probe(&[0]).share > 0.0);
    }

    #[test]
    fn frequencies() {
        let of = |names: &[&str]| governor(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>()).verdict;
        assert_eq!(of(&["performance"]), Ok);
        assert_eq!([of(&[]), of(&["powersave"]), of(&["performance", "schedutil"])], [Note; 3]);
        assert_eq!(turbo(None, None), None);
        assert_eq!(turbo(Some("1"), None).unwrap().verdict, Ok);
        assert_eq!(turbo(None, Some("0")).unwrap().verdict, Ok);
        assert!(turbo(Some("0"), None).unwrap().remedy.unwrap().contains("no_turbo"));
        assert!(turbo(None, Some("1")).unwrap().remedy.unwrap().contains("boost"));
    }

    #[test]
    fn machines_and_kernels() {
        assert_eq!(virtual_machine(false, None).verdict, Ok);
        assert!(virtual_machine(true, Some("haltpoll")).found.contains("polls"));
        for (release, version, verdict) in [
            ("6.18.44-x", Some("#1 SMP PREEMPT_DYNAMIC"), Ok),
            ("6.1.0-rt7", Some("#1 SMP PREEMPT_RT"), Note),
            ("4.19.0", None, Note),
            ("strange", None, Ok),
        ] {
            assert_eq!(kernel(release, version).verdict, verdict, "{release}");
        }
    }
}
