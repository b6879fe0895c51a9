//! Simulations with a known true effect: they check the coverage and the error rates of the
//! procedures.
//!
//! Seeds are fixed, so the tests are deterministic. If the exact rate is known, the simulated rate
//! may differ from it by at most [`TOLERANCE`] standard errors in *either* direction. To see the
//! figures, run `cargo test simulation -- --nocapture`.

use std::f64::consts::{PI, TAU};

use fastrand::Rng;

use super::sample::real;
use super::*;

/// The maximum difference between a simulated rate and the exact one, in binomial standard errors.
const TOLERANCE: f64 = 3.5;

/// A continuous distribution whose median is 0.
#[derive(Debug, Clone, Copy)]
enum Noise {
    Normal,
    /// Cauchy, which does not even have a mean.
    HeavyTailed,
    /// Log-normal, shifted to a median of 0.
    Skewed,
    /// 70 % near 0, 30 % near 5.
    Bimodal,
}

const NOISES: [Noise; 4] = [Noise::Normal, Noise::HeavyTailed, Noise::Skewed, Noise::Bimodal];

impl Noise {
    fn draw(self, rng: &mut Rng) -> f64 {
        match self {
            Self::Normal => normal(rng),
            Self::HeavyTailed => (PI * (rng.f64() - 0.5)).tan(),
            Self::Skewed => normal(rng).exp() - 1.0,
            // The median of the mixture is where the normal distribution function is 5/7: at
            // 0.565949 standard deviations.
            Self::Bimodal => 0.1 * (normal(rng) - 0.565_948_8) + if rng.f64() < 0.3 { 5.0 } else { 0.0 },
        }
    }

    fn draws(self, count: usize, rng: &mut Rng) -> Vec<f64> {
        (0..count).map(|_| self.draw(rng)).collect()
    }
}

/// A standard normal value (G. E. P. Box and M. E. Muller, 1958).
fn normal(rng: &mut Rng) -> f64 {
    (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (TAU * rng.f64()).cos()
}

/// A cell of `rounds` rounds with this noise, in which one mechanism is slower by exactly the
/// smallest difference that the cell says it detects. Returns whether that is decided.
fn finds_resolution(sd: f64, rounds: usize, rng: &mut Rng) -> bool {
    let mut pairs = || -> Vec<f64> { Noise::Normal.draws(rounds, rng).iter().map(|draw| draw * sd).collect() };
    let floor = noise_floor(&pairs());
    let threshold = Margins::default().decision_threshold(floor.unwrap()).unwrap();
    let widths: Vec<f64> = (0..5).map(|_| median_interval(&pairs(), CONFIDENCE).unwrap().half_width()).collect();
    let effect = threshold + crate::ranking::HALF_WIDTHS * median(&widths).unwrap();
    let pairs: Vec<f64> = pairs().iter().map(|pair| pair + effect).collect();
    verdict(median_interval(&pairs, CONFIDENCE).as_ref(), floor, Margins::default()) == Verdict::Faster
}

#[test]
fn a_difference_of_the_resolution_is_decided_in_four_of_five() {
    for (rounds, sd) in [9, 12, 27].into_iter().flat_map(|rounds| [0.02, 0.05, 0.15].map(|sd| (rounds, sd))) {
        let mut rng = Rng::with_seed(rounds as u64);
        let found = rate(2_000, || finds_resolution(sd, rounds, &mut rng));
        println!("{rounds} rounds, noise {:.0} %: found in {:.0} %", sd * 100.0, found * 100.0);
        assert!((0.76..0.90).contains(&found), "{rounds} rounds, {sd}: {found}");
    }
}

/// The share of trials that return `true`.
fn rate(trials: usize, mut trial: impl FnMut() -> bool) -> f64 {
    real((0..trials).filter(|_| trial()).count()) / real(trials)
}

fn assert_rate(what: &str, trials: usize, observed: f64, exact: f64) {
    let error = (exact * (1.0 - exact) / real(trials)).sqrt();
    println!("{what}: {:.2} %, exactly {:.2} %", observed * 100.0, exact * 100.0);
    assert!((observed - exact).abs() <= TOLERANCE * error, "{what}: {observed} against {exact} ± {TOLERANCE}·{error}");
}

#[test]
fn the_interval_of_the_median_has_its_stated_coverage() {
    const TRIALS: usize = 10_000;
    for (seed, noise) in (1..).zip(NOISES) {
        for (n, exact) in [(6, 0.968_75), (12, 0.961_425_781), (20, 0.958_610_535)] {
            let mut rng = Rng::with_seed(100 * seed + n as u64);
            let observed = rate(TRIALS, || {
                let interval = median_interval(&noise.draws(n, &mut rng), CONFIDENCE).unwrap();
                interval.low <= 0.0 && 0.0 <= interval.high
            });
            assert_rate(&format!("median, {noise:?}, n = {n}"), TRIALS, observed, exact);
            assert!(observed >= CONFIDENCE, "{noise:?}, n = {n}: {observed}");
        }
    }
}

#[test]
fn ties_only_raise_the_coverage() {
    const TRIALS: usize = 5_000;
    let mut rng = Rng::with_seed(900);
    let observed = rate(TRIALS, || {
        // Rounded, as by a coarse clock. The median of the rounded values is 0.
        let samples: Vec<f64> = Noise::Normal.draws(12, &mut rng).into_iter().map(f64::round).collect();
        let interval = median_interval(&samples, CONFIDENCE).unwrap();
        interval.low <= 0.0 && 0.0 <= interval.high
    });
    println!("median, rounded normal, n = 12: {:.2} %", observed * 100.0);
    assert!(observed > 0.9614, "{observed}");
}

#[test]
fn the_interval_of_the_shift_has_its_stated_coverage() {
    const SHIFT: f64 = 0.7;
    for (seed, noise) in (1..).zip(NOISES) {
        for (n, m, trials) in [(4, 4, 2_000), (6, 6, 2_000), (12, 12, 600), (8, 15, 600)] {
            let mut rng = Rng::with_seed(1_000 * seed + (n * m) as u64);
            let mut exact = 0.0;
            let observed = rate(trials, || {
                let a = noise.draws(n, &mut rng);
                let b: Vec<f64> = noise.draws(m, &mut rng).iter().map(|sample| sample + SHIFT).collect();
                let interval = shift_interval(&a, &b, CONFIDENCE).unwrap();
                exact = interval.coverage;
                interval.low <= SHIFT && SHIFT <= interval.high
            });
            assert_rate(&format!("shift, {noise:?}, {n} and {m}"), trials, observed, exact);
            assert!(exact >= CONFIDENCE);
        }
    }
}

#[test]
fn the_approximate_interval_of_the_shift_has_its_stated_coverage() {
    const TRIALS: usize = 500;
    let mut rng = Rng::with_seed(77);
    let observed = rate(TRIALS, || {
        let (a, b) = (Noise::Skewed.draws(61, &mut rng), Noise::Skewed.draws(61, &mut rng));
        let interval = shift_interval(&a, &b, CONFIDENCE).unwrap();
        assert!((0.95..0.951).contains(&interval.coverage), "the coverage has small steps here: {}", interval.coverage);
        interval.low <= 0.0 && 0.0 <= interval.high
    });
    assert_rate("shift, Skewed, 61 and 61", TRIALS, observed, 0.95);
}

/// The shares of the four verdicts, in the order faster, slower, equivalent, inconclusive.
#[derive(Debug, Clone, Copy)]
struct Shares([f64; 4]);

impl Shares {
    fn faster(self) -> f64 {
        self.0[0]
    }

    fn decided(self) -> f64 {
        self.0[0] + self.0[1]
    }
}

/// Simulates a cell `trials` times and returns the shares of its verdicts. `effect` is the true
/// ratio, `sd` the scale of the noise on the ln ratio. The floor comes from a control with the same
/// noise.
fn cell(noise: Noise, effect: f64, sd: f64, rounds: usize, trials: usize, seed: u64) -> Shares {
    let mut rng = Rng::with_seed(seed);
    let mut counts = [0.0; 4];
    for _ in 0..trials {
        let mut around = |centre: f64| -> Vec<f64> {
            noise.draws(rounds, &mut rng).into_iter().map(|draw| centre + sd * draw).collect()
        };
        let interval = median_interval(&around(effect.ln()), CONFIDENCE);
        let floor = noise_floor(&around(0.0));
        counts[verdict(interval.as_ref(), floor, Margins::default()) as usize] += 1.0 / real(trials);
    }
    Shares(counts)
}

#[test]
fn verdicts_by_effect_and_noise() {
    const TRIALS: usize = 1_000;
    println!("effect  noise rounds  faster slower equivalent inconclusive   (percent)");
    for (seed, sd) in (10_000..).step_by(1_000).zip([0.01, 0.03, 0.06]) {
        for rounds in [6, 12] {
            let mut before = 0.0;
            for (step, effect) in (0..).zip([1.0, 1.02, 1.05, 1.10, 1.20]) {
                let seed = seed + 100 * rounds as u64 + step;
                let shares = cell(Noise::Normal, effect, sd, rounds, TRIALS, seed);
                let [faster, slower, equivalent, inconclusive] = shares.0.map(|share| share * 100.0);
                println!(
                    "{:>5.0} % {:>4.0} % {rounds:>5} {faster:>8.1} {slower:>6.1} {equivalent:>10.1} {inconclusive:>12.1}",
                    (effect - 1.0) * 100.0,
                    sd * 100.0
                );
                if effect <= 1.02 {
                    assert!(shares.decided() <= 0.05, "effect {effect}, noise {sd}, {rounds} rounds: {shares:?}");
                }
                assert!(slower <= 1.0, "effect {effect}, noise {sd}, {rounds} rounds: {shares:?}");
                // A larger effect is found at least as often. The difference of 0.03 is for the
                // random errors of two independent simulations.
                assert!(shares.faster() >= before - 0.03, "effect {effect}, noise {sd}, {rounds} rounds: {shares:?}");
                before = shares.faster();
            }
        }
    }
}

/// The noise floor prevents almost all false findings in A/A cells. With the interval alone, 3.1 %
/// of the cells would have one at 6 rounds, if the noise is large compared with the 2 % margin.
#[test]
fn equal_mechanisms_are_almost_never_decided_under_any_noise() {
    for (seed, noise) in (20_000..).zip(NOISES) {
        for sd in [0.01, 0.06, 0.5] {
            let decided = cell(noise, 1.0, sd, 6, 2_000, seed).decided();
            println!("A/A, {noise:?}, scale {sd}: {:.2} % decided", decided * 100.0);
            assert!(decided <= 0.005, "{noise:?}, {sd}: {decided}");
        }
    }
}

/// In how many cells of 9 rounds "use X" is said of each candidate: it needs X to beat every other one. The
/// first candidate is faster by `lead`, as a ln ratio; the others are equal.
fn named(noise: Noise, candidates: usize, lead: f64, seed: u64) -> Vec<f64> {
    const ROUNDS: usize = 9;
    const SCALE: f64 = 0.03;
    const TRIALS: usize = 2_000;
    let mut rng = Rng::with_seed(seed);
    let mut counts = vec![0.0; candidates];
    let against = |a: &[f64], b: &[f64]| -> Vec<f64> { a.iter().zip(b).map(|(a, b)| a - b).collect() };
    for _ in 0..TRIALS {
        let mut times = |centre: f64| -> Vec<f64> {
            noise.draws(ROUNDS, &mut rng).into_iter().map(|draw| centre + SCALE * draw).collect()
        };
        let all: Vec<Vec<f64>> = (0..candidates).map(|at| times(if at == 0 { -lead } else { 0.0 })).collect();
        // The control is a second instance of the first mechanism.
        let floor = noise_floor(&against(&times(-lead), &all[0]));
        let beats = |one: usize, other: usize| {
            let interval = median_interval(&against(&all[one], &all[other]), CONFIDENCE);
            verdict(interval.as_ref(), floor, Margins::default()) == Verdict::Slower
        };
        let best = (0..candidates).find(|&one| (0..candidates).all(|other| other == one || beats(one, other)));
        best.into_iter().for_each(|best| counts[best] += 1.0 / real(TRIALS));
    }
    counts
}

#[test]
fn a_best_of_equals_is_seldom_named() {
    for (seed, noise) in (25_000..).step_by(100).zip(NOISES) {
        for candidates in [2, 3, 5, 10] {
            let named: f64 = named(noise, candidates, 0.0, seed + candidates as u64).iter().sum();
            println!("one of {candidates} equals, {noise:?}: named in {:.2} % of cells", named * 100.0);
            assert!(named <= 1.0 - CONFIDENCE, "{candidates} candidates, {noise:?}: {named}");
        }
    }
    let named = named(Noise::Normal, 5, 1.2_f64.ln(), 26_000);
    println!("one of 5 faster by 20 %, Normal: named in {:.1} % of cells", named[0] * 100.0);
    assert!(named[0] >= 0.95 && named[1..].iter().all(|named| *named == 0.0), "{named:?}");
}

#[test]
fn differences_are_found_with_enough_power() {
    let found = |effect, sd, rounds, seed| cell(Noise::Normal, effect, sd, rounds, 2_000, seed).faster();
    assert!(found(1.10, 0.03, 12, 31) >= 0.95, "10 % under 3 % of noise, 12 rounds");
    assert!(found(1.05, 0.01, 12, 32) >= 0.95, "5 % under 1 % of noise, 12 rounds");
    assert!(found(1.20, 0.06, 12, 33) >= 0.95, "20 % under 6 % of noise, 12 rounds");
    assert!(found(1.10, 0.01, 6, 34) >= 0.95, "10 % under 1 % of noise, 6 rounds");
    let equal = cell(Noise::Normal, 1.0, 0.01, 12, 2_000, 35);
    assert!(equal.0[2] >= 0.99, "no effect under 1 % of noise is equivalent: {equal:?}");
    let slower = cell(Noise::Normal, 1.0 / 1.10, 0.03, 12, 2_000, 36);
    assert!(slower.0[1] >= 0.95, "-10 % under 3 % of noise, 12 rounds: {slower:?}");
}

/// The maximum number of rounds of a cell in the profile `quick`.
const QUICK_ROUNDS: usize = 27;

/// Like [`cell`], as the profile `quick` measures it: 9 rounds, and more until differences of 3 %
/// show, up to [`QUICK_ROUNDS`]. Returns the mean number of rounds too.
fn refined_cell(noise: Noise, effect: f64, sd: f64, trials: usize, seed: u64) -> (Shares, f64) {
    let mut rng = Rng::with_seed(seed);
    let (mut counts, mut rounds) = ([0.0; 4], 0.0);
    for _ in 0..trials {
        let mut around = |centre: f64| -> Vec<f64> {
            noise.draws(QUICK_ROUNDS, &mut rng).into_iter().map(|draw| centre + sd * draw).collect()
        };
        let (ratios, control) = (around(effect.ln()), around(0.0));
        let judged = |n: usize| (median_interval(&ratios[..n], CONFIDENCE), noise_floor(&control[..n]));
        let is_precise = |n: &usize| {
            let (interval, floor) = judged(*n);
            let threshold = Margins::default().decision_threshold(floor.unwrap()).unwrap();
            threshold + crate::ranking::HALF_WIDTHS * interval.unwrap().half_width() <= 1.03_f64.ln()
        };
        let n = (9..QUICK_ROUNDS).find(is_precise).unwrap_or(QUICK_ROUNDS);
        let (interval, floor) = judged(n);
        counts[verdict(interval.as_ref(), floor, Margins::default()) as usize] += 1.0 / real(trials);
        rounds += real(n) / real(trials);
    }
    (Shares(counts), rounds)
}

/// The number of rounds depends on the width of the intervals, not on what they say. So it finds
/// more, and is not wrong more often.
#[test]
fn more_rounds_for_imprecise_cells_keep_the_error_rate_and_find_more() {
    const TRIALS: usize = 2_000;
    for (seed, noise) in (60_000..).step_by(100).zip(NOISES) {
        for (step, sd) in (0..).zip([0.005, 0.01, 0.02, 0.05]) {
            let decided = |effect, seed| refined_cell(noise, effect, sd, TRIALS, seed).0.decided();
            let (equal, margin) = (decided(1.0, seed + step), decided(1.02, seed + 10 + step));
            println!("{noise:?}, scale {sd}: {:.2} % of equals decided, {:.2} % at 2 %", equal * 100.0, margin * 100.0);
            assert!(equal <= 0.005, "{noise:?}, {sd}: {equal}");
            assert!(margin <= 0.05, "{noise:?}, {sd}: {margin}");
        }
    }
    let (found, rounds) = refined_cell(Noise::Normal, 1.10, 0.05, TRIALS, 61_000);
    let with_nine = cell(Noise::Normal, 1.10, 0.05, 9, TRIALS, 61_001);
    println!("10 % under 5 % of noise: found {found:?} in {rounds:.1} rounds, {with_nine:?} in 9");
    assert!(found.faster() >= 0.9 && with_nine.faster() < 0.8, "{found:?}, {with_nine:?}");
    let (_, rounds) = refined_cell(Noise::Normal, 1.10, 0.003, TRIALS, 61_002);
    assert!(rounds < 9.1, "a precise cell gets no more rounds: {rounds}");
}

/// If the true effect is exactly at a margin, the error rate is known. The verdict is wrong in half
/// of the cases in which the interval does not contain the true effect.
#[test]
fn error_rates_at_the_margins_are_exactly_as_stated() {
    const TRIALS: usize = 10_000;
    // Wide margins, so that no interval reaches the opposite margin or is "faster".
    let wide = Margins { decided: 9.0, equivalent: 0.5 };
    let cases: [(f64, Margins, Verdict); 4] = [
        (1.02, Margins::default(), Verdict::Faster),
        (1.0 / 1.02, Margins::default(), Verdict::Slower),
        (1.5, wide, Verdict::Equivalent),
        (1.0 / 1.5, wide, Verdict::Equivalent),
    ];
    for (n, coverage) in [(6, 0.968_75), (12, 0.961_425_781)] {
        for (seed, (effect, margins, wrong)) in (40_000..).zip(cases) {
            for noise in [Noise::Normal, Noise::Skewed] {
                let mut rng = Rng::with_seed(seed + 100 * n as u64 + 10 * noise as u64);
                let observed = rate(TRIALS, || {
                    let samples: Vec<f64> = noise.draws(n, &mut rng).iter().map(|z| effect.ln() + 0.01 * z).collect();
                    verdict(median_interval(&samples, CONFIDENCE).as_ref(), Some(0.0), margins) == wrong
                });
                let what = format!("{wrong} at {effect:.4}, {noise:?}, n = {n}");
                assert_rate(&what, TRIALS, observed, (1.0 - coverage) / 2.0);
            }
        }
    }
}

/// A comparison of 20 cells with 12 rounds, at alpha 5 %.
#[test]
fn a_family_of_tests_keeps_its_error_rate() {
    const TRIALS: usize = 1_000;
    let (mut any, mut any_uncorrected, mut found) = (0.0, 0.0, 0.0);
    let mut rng = Rng::with_seed(50_000);
    for _ in 0..TRIALS {
        let p_values: Vec<f64> = (0..20)
            .map(|cell| {
                let effect = if cell == 0 { -0.1 } else { 0.0 };
                let samples: Vec<f64> = Noise::Normal.draws(12, &mut rng).iter().map(|z| effect + 0.03 * z).collect();
                sign_test_p(&samples, 0.0)
            })
            .collect();
        let significant = holm(&p_values, 0.05);
        found += f64::from(u8::from(significant[0])) / real(TRIALS);
        any += f64::from(u8::from(significant[1..].contains(&true))) / real(TRIALS);
        any_uncorrected += f64::from(u8::from(p_values[1..].iter().any(|p| *p <= 0.05))) / real(TRIALS);
    }
    println!(
        "19 equal cells and one 10 % slower: found {:.1} %, any false finding {:.1} %, without correction {:.1} %",
        found * 100.0,
        any * 100.0,
        any_uncorrected * 100.0
    );
    assert!(found >= 0.95, "{found}");
    assert!(any <= 0.05, "{any}");
    assert!(any_uncorrected > 0.4, "without correction false findings are frequent: {any_uncorrected}");
}
