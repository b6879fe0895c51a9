//! The statistics: what may be said of a handful of ratios, and how surely.
//!
//! Everything here is distribution-free and exact where it can be: medians and order statistics, no assumption of
//! normality, no outlier removed. Few replications are the rule on a small machine, so a procedure that cannot keep
//! its promise with the samples at hand returns `None` instead of a narrower promise.
//!
//! **Orientation and unit.** A sample is the natural logarithm of a ratio. The caller orients it so that a *positive*
//! value means "B better than A" (for a latency that is `ln(A/B)`, for a throughput `ln(B/A)`). In this unit swapping
//! A and B only changes the sign, which every function here respects exactly.
//!
//! | question | answer |
//! |---|---|
//! | how much better is B, in paired rounds? | [`median_interval`] |
//! | how much better is B, in two separate records? | [`shift_interval`] |
//! | how noisy is this cell? | [`noise_floor`], [`log_ratio_sd`] |
//! | so what is said? | [`verdict()`] |
//! | and when much is said at once? | [`sign_test_p`] or [`shift_test_p`], then [`holm()`] |

#![forbid(unsafe_code)]

mod floor;
mod holm;
mod interval;
mod rank_sum;
mod sample;
mod sign;
#[cfg(test)]
mod simulation;
mod unpaired;
mod verdict;

pub use floor::{log_ratio_sd, noise_floor};
pub use holm::holm;
pub use interval::{Interval, median_interval};
pub use sample::{mean, median};
pub use sign::sign_test_p;
pub use unpaired::{shift_interval, shift_test_p};
pub use verdict::{Margins, Verdict, verdict};

/// The least coverage of the intervals on which verdicts rest, and of the interval behind [`noise_floor`].
pub const CONFIDENCE: f64 = 0.95;
