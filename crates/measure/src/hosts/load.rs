//! Watches how busy this host is, for the other one.

use serde::{Deserialize, Serialize};

use crate::other_load::OtherLoad;
use crate::usage::Steal;

/// How busy a host was, apart from the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostLoad {
    /// The part of the cores' time that the hypervisor took, from 0 to 1.
    pub steal: f64,
    /// The part of the cores' time that other processes used, from 0 to 1. `None` if it is unknown,
    /// or if too little time has passed.
    pub other_load: Option<f64>,
}

impl HostLoad {
    /// Whether the numbers are possible. They come from another host.
    pub(crate) fn is_possible(self) -> bool {
        [Some(self.steal), self.other_load].into_iter().flatten().all(|share| (0.0..=1.0).contains(&share))
    }
}

/// A reading of the counters of this host's cores.
#[derive(Debug)]
pub(super) struct LoadWatch {
    /// The cores whose stolen time counts, and its reading.
    used: Vec<usize>,
    steal: Option<Steal>,
    /// The cores on which other processes count, and their reading.
    cpus: Vec<usize>,
    others: Option<OtherLoad>,
}

impl LoadWatch {
    /// Reads the counters: stolen time of the cores `used`, other processes on `cpus`.
    pub(super) fn start(used: &[usize], cpus: &[usize]) -> LoadWatch {
        LoadWatch { used: used.to_vec(), steal: Steal::now(used), cpus: cpus.to_vec(), others: OtherLoad::watch(cpus) }
    }

    /// How busy this host was since the reading. The children of this process count as others until
    /// they have ended and were waited for.
    pub(super) fn load(&self) -> HostLoad {
        let steal = self.steal.as_ref().zip(Steal::now(&self.used)).map_or(0.0, |(before, now)| now.since(before));
        HostLoad { steal, other_load: self.others.and_then(|others| others.share(&self.cpus)) }
    }
}
