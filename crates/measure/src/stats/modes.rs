//! Finds mechanisms whose slices fall into two modes, such as a fast and a slow one.

use super::median;

/// The minimum number of slices in which modes are searched for.
const MIN_SLICES: usize = 40;
/// The minimum share of the slices in either mode.
const MIN_SHARE: f64 = 0.1;
/// The minimum ratio of the slow mode's median to the fast one's.
const MIN_RATIO: f64 = 1.5;
/// The minimum part of the variance that the two modes explain. Two halves of a normal distribution
/// explain 64 % of it, of a uniform one 75 %.
const MIN_EXPLAINED: f64 = 0.85;
/// The minimum share of an instance's slices in one mode, if the whole instance is in that mode.
const MIN_UNIFORM_SLICES: f64 = 0.9;
/// The minimum share of such instances, if modes belong to instances and not to slices.
const MIN_UNIFORM_INSTANCES: f64 = 0.9;

/// Two modes of a mechanism's slices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Modes {
    /// The median of the fast mode, in nanoseconds.
    pub fast_ns: f64,
    /// The median of the slow mode, in nanoseconds.
    pub slow_ns: f64,
    /// The share in the fast mode, from 0 to 1: of the instances or of the slices.
    pub fast_share: f64,
    /// What stays in one mode.
    pub level: ModeLevel,
}

/// What stays in one of two modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeLevel {
    /// An instance is fast or slow as a whole, as if it depended on its memory or its connection.
    Instance,
    /// An instance changes between the modes from slice to slice.
    Slice,
}

/// Splits the slices of a mechanism into two modes. `instances` has the nanoseconds of each slice.
/// `None` if there is one mode, or if there are fewer than 40 slices.
///
/// The threshold is the one with the largest variance between the two classes of the logarithms
/// (N. Otsu, "A threshold selection method from gray-level histograms", 1979). The classes are
/// modes if they explain 85 % of the variance, each has a tenth of the slices, and the slow median
/// is at least 1.5 times the fast one.
///
/// # Panics
/// If a value is not positive.
pub fn modes(instances: &[Vec<f64>]) -> Option<Modes> {
    let mut all: Vec<f64> = instances.iter().flatten().map(|ns| ns.ln()).collect();
    assert!(all.iter().all(|ln| ln.is_finite()), "a slice takes more than no time");
    all.sort_unstable_by(f64::total_cmp);
    if all.len() < MIN_SLICES {
        return None;
    }
    let fast = split(&all)?;
    let fast_share = fast as f64 / all.len() as f64;
    let [fast_ns, slow_ns] = [&all[..fast], &all[fast..]].map(|class| median(class).map(f64::exp));
    let (fast_ns, slow_ns) = (fast_ns?, slow_ns?);
    let is_bimodal = fast_share.min(1.0 - fast_share) >= MIN_SHARE && slow_ns / fast_ns >= MIN_RATIO;
    is_bimodal.then(|| {
        let (level, fast_share) = level(instances, all[fast], fast_share);
        Modes { fast_ns, slow_ns, fast_share, level }
    })
}

/// Returns how many of the sorted values are in the lower class. `None` if two classes explain too
/// little.
fn split(sorted: &[f64]) -> Option<usize> {
    let count = sorted.len() as f64;
    let mean = sorted.iter().sum::<f64>() / count;
    let variance = sorted.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    let mut below = 0.0;
    let mut best = (0, 0.0);
    for (at, value) in sorted.iter().enumerate().take(sorted.len() - 1) {
        below += value - mean;
        let share = (at + 1) as f64 / count;
        // The variance between the classes: share x (1 - share) x the squared difference of means.
        let between = (below / count).powi(2) / (share * (1.0 - share));
        if between > best.1 {
            best = (at + 1, between);
        }
    }
    (best.1 >= MIN_EXPLAINED * variance && best.0 > 0).then_some(best.0)
}

/// Returns what stays in one mode, and its share in the fast one. Slices whose logarithm is at
/// least `threshold` are slow. `fast_slices` is the share of the others.
fn level(instances: &[Vec<f64>], threshold: f64, fast_slices: f64) -> (ModeLevel, f64) {
    let slow_share =
        |slices: &Vec<f64>| slices.iter().filter(|ns| ns.ln() >= threshold).count() as f64 / slices.len() as f64;
    let slow: Vec<f64> = instances.iter().filter(|slices| !slices.is_empty()).map(slow_share).collect();
    let part = |of: &dyn Fn(f64) -> bool| slow.iter().filter(|share| of(**share)).count() as f64 / slow.len() as f64;
    match part(&|slow| slow.max(1.0 - slow) >= MIN_UNIFORM_SLICES) >= MIN_UNIFORM_INSTANCES {
        true => (ModeLevel::Instance, part(&|slow| slow < 0.5)),
        false => (ModeLevel::Slice, fast_slices),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nine instances of 24 slices; `ns` returns the time of a slice.
    fn instances(mut ns: impl FnMut(usize, usize) -> f64) -> Vec<Vec<f64>> {
        (0..9).map(|instance| (0..24).map(|slice| ns(instance, slice)).collect()).collect()
    }

    /// Approximately normal noise with a standard deviation of `sd`, as a factor.
    fn noise(random: &mut fastrand::Rng, sd: f64) -> f64 {
        (((0..12).map(|_| random.f64()).sum::<f64>() - 6.0) * sd).exp()
    }

    #[test]
    fn noise_is_one_mode() {
        for seed in 0..100 {
            let mut random = fastrand::Rng::with_seed(seed);
            assert_eq!(modes(&instances(|_, _| 100.0 * noise(&mut random, 0.5))), None, "normal, seed {seed}");
            assert_eq!(modes(&instances(|_, _| 1.0 + 9.0 * random.f64())), None, "uniform, seed {seed}");
            // A few slices are very slow.
            let rare = |random: &mut fastrand::Rng| if random.f64() < 0.05 { 9_000.0 } else { 100.0 };
            assert_eq!(modes(&instances(|_, _| rare(&mut random) * noise(&mut random, 0.1))), None, "seed {seed}");
        }
        assert_eq!(modes(&instances(|_, _| 5.0)), None, "no variance");
        assert_eq!(modes(&[vec![1.0, 9.0]]), None, "too few");
        assert_eq!(modes(&[]), None);
    }

    #[test]
    fn two_modes_are_found_and_attributed() {
        for seed in 0..100 {
            let mut random = fastrand::Rng::with_seed(seed);
            let found = modes(&instances(|instance, _| {
                let ns = if instance < 3 { 24.0 } else { 106.0 };
                ns * noise(&mut random, 0.1)
            }))
            .unwrap();
            assert_eq!(found.level, ModeLevel::Instance);
            assert!((found.fast_share - 1.0 / 3.0).abs() < 0.01, "{found:?}");
            assert!((found.fast_ns / 24.0 - 1.0).abs() < 0.1 && (found.slow_ns / 106.0 - 1.0).abs() < 0.1, "{found:?}");
            let found = modes(&instances(|_, _| {
                let ns = if random.f64() < 0.3 { 320.0 } else { 9_000.0 };
                ns * noise(&mut random, 0.1)
            }))
            .unwrap();
            assert_eq!(found.level, ModeLevel::Slice);
            assert!((found.fast_share - 0.3).abs() < 0.1, "{found:?}");
        }
        // A fast instance of a window by count has fewer slices. The share is that of the instances.
        let by_count = [vec![10.0; 10], vec![100.0; 40], vec![10.0; 10], vec![100.0; 40]];
        let found = modes(&by_count).unwrap();
        assert_eq!((found.level, found.fast_share), (ModeLevel::Instance, 0.5));
    }
}
