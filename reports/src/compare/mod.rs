//! Comparison of runs, or of the configurations of one run, item by item (`lumos compare`).
//!
//! [`compare`] matches configurations of two [`Side`]s and pairs their items by content (`sides`), refuses what would
//! mislead ([`Refusal`]) and computes a [`Comparison`]: for every metric the difference b − a with interval and p
//! value, the items that changed between right and wrong, and the settings that differ (`settings`). It is a pure
//! function of [`RunTable`]s; [`Comparison::read_texts`] adds tasks and predictions from the checkpoints.

mod build;
mod model;
mod refusal;
mod render;
mod settings;
mod sides;
mod texts;
mod unpaired;

use std::path::PathBuf;

use crate::results::{Labels, RunTable, SettingsAxis};

pub use build::compare;
pub use model::{
    Comparison, FlipTexts, FlippedItem, NotCompared, PairComparison, RunReference, SettingDifference,
};
pub use refusal::{CompareError, Refusal};
pub use render::CompareFormat;
pub(crate) use render::comparison_page;
pub(crate) use sides::{GroupKey, match_groups};

/// One run of a comparison.
#[derive(Debug)]
pub struct Side {
    /// The run's name.
    pub name: String,
    /// The run's folder, as given.
    pub folder: PathBuf,
    /// Its scored units.
    pub table: RunTable,
}

/// What to compare.
#[derive(Debug, Clone, Default)]
pub struct CompareOptions {
    /// The axis along which the configurations of one run are compared; `None` for the only one that varies, and for
    /// several runs.
    pub by: Option<SettingsAxis>,
    /// Only configurations with these values.
    pub only: Vec<(SettingsAxis, String)>,
    /// Only this metric.
    pub metric: Option<String>,
    /// Whether runs over different items are compared without pairing.
    pub unpaired: bool,
    /// Names of models and runs for display.
    pub labels: Labels,
}

#[cfg(test)]
pub(crate) mod tests;
