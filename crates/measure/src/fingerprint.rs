//! The fingerprint of a machine in a record: it shows whether two records may be compared.

use std::{fmt, fs};

use rustix::system::uname;
use serde::{Deserialize, Serialize};

use crate::limits::available_cpus;

/// The properties of a machine that influence results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Fingerprint {
    /// The model name of the processor.
    pub cpu: String,
    /// The architecture, such as `x86_64` or `aarch64`.
    pub architecture: String,
    /// The number of cores that this run may use.
    pub cores: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The clock source of the kernel.
    pub clock_source: String,
    /// Whether the machine is virtual.
    pub virtual_machine: bool,
    /// The frequency governor, if it is known.
    pub governor: Option<String>,
    /// The congestion control of TCP connections, such as `cubic` or `bbr`, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_congestion_control: Option<String>,
    /// The hash of the machine's identifier. The identifier itself is not recorded.
    pub machine: Option<String>,
}

/// The machine in one line: processor, cores, kernel, whether it is virtual, and the congestion
/// control of TCP.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cores = if self.cores == 1 { "core" } else { "cores" };
        write!(f, "{}, {} {cores}, Linux {}", self.cpu, self.cores, self.kernel)?;
        if self.virtual_machine {
            f.write_str(", virtual machine")?;
        }
        match &self.tcp_congestion_control {
            Some(name) => write!(f, ", TCP with {name}"),
            None => Ok(()),
        }
    }
}

impl Fingerprint {
    /// The fingerprint of this machine.
    pub fn take() -> Fingerprint {
        let read = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = read("/proc/meminfo").and_then(|text| {
            let line = text.lines().next()?.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()?;
            Some(line / 1024)
        });
        let kernel = uname();
        Fingerprint {
            cpu: field("model name").or_else(|| field("CPU part")).unwrap_or_else(|| String::from("unknown")),
            architecture: std::env::consts::ARCH.to_owned(),
            cores: available_cpus().len(),
            memory_mib: memory.unwrap_or(0),
            kernel: kernel.release().to_string_lossy().into_owned(),
            clock_source: read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
                .unwrap_or_else(|| String::from("unknown")),
            virtual_machine: field("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            tcp_congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control"),
            machine: read("/etc/machine-id")
                .filter(|id| !id.is_empty())
                .map(|id| format!("{:016x}", fnv(id.as_bytes()))),
        }
    }

    /// Whether a congestion control sends packets at a rate that it estimates, also within a
    /// machine. There the estimate limits the rate, and needs a timer of the kernel for many
    /// packets.
    pub fn is_paced(congestion_control: &str) -> bool {
        congestion_control.starts_with("bbr")
    }

    /// The properties that differ, for the user. If there are any, the two records cannot be
    /// compared.
    pub fn differences(&self, other: &Fingerprint) -> Vec<String> {
        let facts = [
            ("processor", &self.cpu, &other.cpu),
            ("architecture", &self.architecture, &other.architecture),
            ("kernel", &self.kernel, &other.kernel),
            ("clock source", &self.clock_source, &other.clock_source),
        ];
        let mut found: Vec<_> = facts
            .into_iter()
            .filter(|(_, ours, theirs)| ours != theirs)
            .map(|(fact, ours, theirs)| format!("{fact}: {ours} / {theirs}"))
            .collect();
        if self.cores != other.cores {
            found.push(format!("cores: {} / {}", self.cores, other.cores));
        }
        if let (Some(ours), Some(theirs)) = (&self.tcp_congestion_control, &other.tcp_congestion_control)
            && ours != theirs
        {
            found.push(format!("TCP congestion control: {ours} / {theirs}"));
        }
        if self.machine != other.machine {
            found.push(String::from("machine identifier"));
        }
        found
    }
}

/// The FNV-1a hash. It hides the machine's identifier from casual readers, but it is not
/// cryptographic.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_does_not_differ_from_itself() {
        assert_eq!(Fingerprint::take().differences(&Fingerprint::take()), Vec::<String>::new());
    }

    #[test]
    fn two_changed_properties_are_two_differences() {
        let this = Fingerprint::take();
        let other = Fingerprint { cores: this.cores + 1, cpu: String::from("Z80"), ..this.clone() };
        assert_eq!(this.differences(&other).len(), 2);
    }

    #[test]
    fn the_congestion_control_differs_only_if_both_are_known() {
        let with =
            |name: Option<&str>| Fingerprint { tcp_congestion_control: name.map(str::to_owned), ..Fingerprint::take() };
        assert_eq!(with(Some("bbr")).differences(&with(Some("cubic"))), ["TCP congestion control: bbr / cubic"]);
        assert_eq!(with(Some("bbr")).differences(&with(None)), Vec::<String>::new());
    }
}
