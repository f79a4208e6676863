//! Statistics of scores: intervals, paired tests, corrections for several tests, power.
//!
//! Everything here is a pure function of numbers: no I/O, no clock, and random numbers only from a seed that the caller
//! gives, so results can be repeated bit for bit. A *share* is a fraction of items, a *cluster* a set of values that are
//! not independent (the steps of a task, the questions about one database, the seeds of one item).
//!
//! | question | function |
//! |---|---|
//! | interval of a share | [`wilson`], [`clopper_pearson`] |
//! | error of a mean | [`mean_and_error`], [`clustered_errors`] |
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
pub use bootstrap::{Bca, ClusterSum, bca, bca_of_all_resamples};
pub use decision::{NonInferiority, benjamini_hochberg, holm, non_inferiority};
pub use mean::{ClusteredErrors, clustered_errors, mean_and_error, welch};
pub(crate) use mean::{clustered_error, standard_error, student_interval};
pub use normal::{normal_cdf, normal_quantile, student_cdf, student_quantile};
pub use paired::{PairedDifference, Quantile, SidedShares, linearised, paired_ratio};
pub use permutation::{Permutation, sign_flip};
pub use power::{Variances, detectable, detectable_of_discordant, items_needed};
pub use proportion::{clopper_pearson, newcombe, pass_at_k, pass_hat_k, wilson};

/// Lower and upper limit of an interval.
pub type Limits = (f64, f64);

#[cfg(test)]
mod cases_tests;
#[cfg(test)]
mod coverage_tests;
#[cfg(test)]
mod property_tests;
