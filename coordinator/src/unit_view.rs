//! Iteration over a run's units in the order of reports: by configuration, then by item.
//!
//! [`for_each_unit()`] passes every planned unit to a visitor as a [`UnitView`] with its recorded [`UnitState`]. Reports,
//! samples and rescoring are built on it.

use lumos_tasks::{EpisodeUnit, Item, UnitId};

use crate::checkpoint::{CheckpointError, CheckpointReader, Record};
use crate::manifest::{Manifest, PlannedConfiguration};

/// A unit and its recorded state.
#[derive(Debug)]
pub struct UnitView<'a> {
    /// Position of the configuration in the manifest.
    pub position: usize,
    /// The configuration.
    pub configuration: &'a PlannedConfiguration,
    /// The item.
    pub item: &'a Item,
    /// The unit.
    pub unit: UnitId,
    /// The recorded state.
    pub state: UnitState,
}

/// Recorded state of a unit.
#[derive(Debug, Clone, PartialEq)]
pub enum UnitState {
    /// The outcome that settled it.
    Settled(Box<Record>),
    /// Only faults were recorded; contains the latest one.
    Faulted(Box<Record>),
    /// No record.
    Outstanding,
}

impl UnitState {
    /// Determines the state from the records, in the order of [`CheckpointReader::records_of`].
    pub fn of(records: Vec<Record>) -> Self {
        match records.into_iter().next_back() {
            None => Self::Outstanding,
            Some(record) if record.outcome.is_fault() => Self::Faulted(Box::new(record)),
            Some(record) => Self::Settled(Box::new(record)),
        }
    }

    /// Returns the record, if there is one.
    pub fn record(&self) -> Option<&Record> {
        match self {
            Self::Settled(record) | Self::Faulted(record) => Some(record),
            Self::Outstanding => None,
        }
    }
}

/// Returns the identity of an item's unit under a configuration.
pub fn unit_of(configuration: &PlannedConfiguration, item: &Item) -> UnitId {
    EpisodeUnit::identity_of(&item.id, &configuration.identity)
}

/// Calls the visitor for every planned unit. Holds one unit in memory at a time.
///
/// # Errors
/// Errors of reading the checkpoint, and errors of the visitor.
pub fn for_each_unit<E: From<CheckpointError>>(
    manifest: &Manifest,
    checkpoint: &CheckpointReader,
    mut visit: impl FnMut(&UnitView<'_>) -> Result<(), E>,
) -> Result<(), E> {
    for (position, configuration) in manifest.configurations.iter().enumerate() {
        for item in checkpoint.items(&configuration.configuration.benchmark) {
            let item = item?;
            let unit = unit_of(configuration, &item);
            let state = UnitState::of(checkpoint.records_of(&unit)?);
            visit(&UnitView { position, configuration, item: &item, unit, state })?;
        }
    }
    Ok(())
}
