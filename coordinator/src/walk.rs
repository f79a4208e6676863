//! Going through a run in the order of reports: configuration by configuration, item by item.

use lumos_tasks::{EpisodeUnit, Item, UnitId};

use crate::checkpoint::{CheckpointError, CheckpointReader, Record};
use crate::manifest::{Manifest, PlannedConfiguration};

/// A unit and what is recorded of it.
#[derive(Debug)]
pub struct Visit<'a> {
    /// The configuration's position in the manifest.
    pub position: usize,
    /// The configuration.
    pub configuration: &'a PlannedConfiguration,
    /// The item.
    pub item: &'a Item,
    /// The unit.
    pub unit: UnitId,
    /// What is recorded.
    pub state: UnitState,
}

/// What is recorded of a unit.
#[derive(Debug, Clone, PartialEq)]
pub enum UnitState {
    /// Its outcome.
    Settled(Box<Record>),
    /// Only faults, the latest one here.
    Faulted(Box<Record>),
    /// Nothing.
    Outstanding,
}

impl UnitState {
    /// The state that records amount to; they come as [`CheckpointReader::records_of`] gives them.
    pub fn of(records: Vec<Record>) -> Self {
        match records.into_iter().next_back() {
            None => Self::Outstanding,
            Some(record) if record.outcome.is_fault() => Self::Faulted(Box::new(record)),
            Some(record) => Self::Settled(Box::new(record)),
        }
    }

    /// The record, where there is one.
    pub fn record(&self) -> Option<&Record> {
        match self {
            Self::Settled(record) | Self::Faulted(record) => Some(record),
            Self::Outstanding => None,
        }
    }
}

/// The identity of an item's unit under a configuration.
pub fn unit_of(configuration: &PlannedConfiguration, item: &Item) -> UnitId {
    EpisodeUnit::identity_of(&item.id, &configuration.identity)
}

/// Visits every planned unit. Nothing but one unit is held at a time.
///
/// # Errors
/// What reading the checkpoint or the visitor fails with.
pub fn walk<E: From<CheckpointError>>(
    manifest: &Manifest,
    checkpoint: &CheckpointReader,
    mut visit: impl FnMut(&Visit<'_>) -> Result<(), E>,
) -> Result<(), E> {
    for (position, configuration) in manifest.configurations.iter().enumerate() {
        for item in checkpoint.items(&configuration.configuration.benchmark) {
            let item = item?;
            let unit = unit_of(configuration, &item);
            let state = UnitState::of(checkpoint.records_of(&unit)?);
            visit(&Visit { position, configuration, item: &item, unit, state })?;
        }
    }
    Ok(())
}
