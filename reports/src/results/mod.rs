//! Scored units of a run, in memory: the basis of reports, comparisons, gates and exports.
//!
//! One pass over a checkpoint yields a [`RunTable`]: per benchmark its items, per configuration one row for every
//! planned item. Configurations that differ only in their seed form a group (`seeds`), whose figures are pooled by item
//! (`pooled`). `difference` compares two groups over the same items ([`MetricComparison`]), `matrix` all models and
//! settings of a run over its benchmarks, and `alias` shortens the names of models ([`Labels`]).

mod alias;
mod cause;
mod difference;
mod matrix;
mod pooled;
mod seeds;
mod table;

pub(crate) use alias::aliases;
pub use alias::{Labels, UnknownLabel};
pub(crate) use cause::Cause;
pub use difference::{Flips, MetricComparison};
pub(crate) use difference::{
    ItemPair, ItemShares, PairedItems, count_once, detectable_from, is_right, item_share, item_shares,
    settled,
};
pub(crate) use matrix::{Matrix, MatrixCell, MatrixColumn, MatrixRow, matrix, whole_matrix};
pub(crate) use pooled::{GroupFigure, group_figures, pooled, sum};
pub use seeds::SettingsAxis;
pub(crate) use seeds::{SeedGroup, seed_groups};
pub(crate) use table::{BenchmarkItems, TableBuilder, UnitRow, UnitState, benchmark};
pub use table::{RunTable, ScoreError};

#[cfg(test)]
pub(crate) mod tests;
