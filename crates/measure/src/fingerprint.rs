//! The machine as a record remembers it: enough to know whether two records may be compared.

use std::fs;

use rustix::system::uname;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits::available_cpus;

/// The facts about a machine that decide what it measures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fingerprint {
    /// The processor's own name for itself.
    pub cpu: String,
    /// `x86_64`, `aarch64`.
    pub architecture: String,
    /// Cores this run may use.
    pub cores: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The clock source of the kernel.
    pub clock_source: String,
    /// Whether a hypervisor is beneath.
    pub virtual_machine: bool,
    /// The frequency governor, where it can be seen.
    pub governor: Option<String>,
    /// The hash of the machine's own identifier, which itself is not recorded.
    pub machine: Option<String>,
}

impl Fingerprint {
    /// Of this machine.
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
            machine: read("/etc/machine-id")
                .filter(|id| !id.is_empty())
                .map(|id| format!("{:016x}", fnv(id.as_bytes()))),
        }
    }

    /// What keeps two records from being compared, in words: the facts that differ.
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
        if self.machine != other.machine {
            found.push(String::from("machine identifier"));
        }
        found
    }
}

/// FNV-1a: a name for the machine that does not give its identifier away at a glance. Not a secret.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_like_itself() {
        assert_eq!(Fingerprint::take().differences(&Fingerprint::take()), Vec::<String>::new());
    }

    #[test]
    fn another_machine_is_not() {
        let here = Fingerprint::take();
        let forward = Fingerprint { cores: here.cores + 1, cpu: String::from("Z80"), ..here.clone() };
        assert_eq!(here.differences(&forward).len(), 2);
    }
}
