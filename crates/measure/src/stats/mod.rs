//! Statistics for small samples of ratios: confidence intervals, tests and verdicts.
//!
//! All procedures are distribution-free, and exact if possible. They use medians and order
//! statistics, assume no normal distribution and remove no outliers. Samples are small, because a
//! small machine allows few rounds. If a sample is too small for the requested confidence, a
//! procedure returns `None`. It never lowers the confidence.
//!
//! **Orientation and unit.** A sample is the natural logarithm of a ratio. The caller chooses its
//! sign so that a *positive* value means "B better than A". For a latency that is `ln(A/B)`, for a
//! throughput `ln(B/A)`. Swapping A and B only changes the sign, exactly, in every function here.
//!
//! | question | function |
//! |---|---|
//! | How much better is B, in paired rounds? | [`median_interval`] |
//! | How much better is B, in two separate records? | [`shift_interval`] |
//! | Does a mechanism have a fast and a slow mode? | [`modes()`] |
//! | How noisy is this cell? | [`noise_floor`], [`log_ratio_sd`] |
//! | Is B faster, slower or equivalent? | [`verdict()`] |
//! | Is B slower than A, in paired rounds? | [`signed_rank_above_p`] |
//! | How often does something happen? | [`share_interval`] |
//! | Which of many differences are significant? | [`sign_test_p`] or [`shift_test_p`], then [`holm()`] |

#![forbid(unsafe_code)]

mod floor;
mod holm;
mod interval;
mod modes;
mod rank_sum;
mod sample;
mod share;
mod sign;
mod signed_rank;
#[cfg(test)]
mod simulation;
mod unpaired;
mod verdict;

pub use floor::{log_ratio_sd, noise_floor};
pub use holm::holm;
pub use interval::{Interval, median_interval};
pub use modes::{ModeLevel, Modes, modes};
pub use sample::{mean, median};
pub use share::share_interval;
pub use sign::sign_test_p;
pub use signed_rank::signed_rank_above_p;
pub use unpaired::{shift_below_p, shift_interval, shift_test_p};
pub use verdict::{Margins, Verdict, verdict};

/// The minimum coverage of the intervals that verdicts are based on. [`noise_floor`] needs as many
/// samples as such an interval.
pub const CONFIDENCE: f64 = 0.95;
