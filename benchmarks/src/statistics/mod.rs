//! Statistics of scores: intervals, paired tests, corrections for several tests, power.
//!
//! Everything here is a pure function of numbers: no I/O, no clock, and random numbers only from a seed that the caller
//! gives, so results can be repeated bit for bit. A *share* is a fraction of items, a *cluster* a set of values that are
//! not independent (the steps of a task, the questions about one database, the seeds of one item).
//!
//! | question | function |
//! |---|---|
//! | interval of a share | [`wilson`] |
//! | error and interval of a mean | [`mean_and_error`], [`student_interval`] |
//! | difference of two runs over the same items | [`PairedDifference`], [`paired_score`], [`mcnemar`], [`sign_flip`], [`bca`] |
//! | difference over different items | [`newcombe`], [`welch`] |
//! | several tests at once | [`holm`], [`benjamini_hochberg`] |
//! | several attempts per item | [`pass_at_k`], [`pass_hat_k`] |
//! | how many items are needed | [`detectable`], [`items_needed`] |
//! | not worse than a baseline | [`non_inferiority`] |
//!
//! `stat_cases.json` has values computed with SciPy and statsmodels, which the tests reproduce within 1e-9.

mod binary;
mod bootstrap;
mod decision;
mod mean;
mod normal;
mod paired;
mod permutation;
mod power;
mod proportion;

pub use binary::{McNemar, mcnemar, paired_score};
pub use bootstrap::{Bca, ClusterSum, bca};
pub use decision::{NonInferiority, benjamini_hochberg, holm, non_inferiority};
pub(crate) use mean::{clustered_error, standard_error};
pub use mean::{mean_and_error, student_interval, welch};
pub use normal::p_of_normal;
pub use paired::{PairedDifference, SidedShares, linearised, paired_ratio};
pub use permutation::{Permutation, sign_flip};
pub use power::{Variances, detectable, items_needed};
pub use proportion::{newcombe, pass_at_k, pass_hat_k, wilson};

/// Lower and upper limit of an interval.
pub type Limits = (f64, f64);

/// Level of intervals and of one-sided limits.
pub const LEVEL: f64 = 0.95;
/// Significance level of decisions and of the smallest detectable difference.
pub const ALPHA: f64 = 0.05;
/// Power with which a difference is to be detected.
pub const POWER: f64 = 0.8;

#[cfg(test)]
mod cases_tests;
#[cfg(test)]
mod coverage_tests;
#[cfg(test)]
mod property_tests;
