//! Iteration over a run's units in the order of reports: by configuration, then by item.
//!
//! [`for_each_unit()`] passes every planned unit to a visitor as a [`UnitView`] with its record. Reports, samples
//! and judging are built on it. [`CheckpointReader::for_each_settled`] is the form for settled units only.

use lumos_tasks::{Item, UnitId, WorkUnit};

use crate::checkpoint::{CheckpointError, CheckpointReader, Record};
use crate::manifest::{Manifest, PlannedConfiguration};

/// A unit and its record.
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
    /// The record that settled it, otherwise that of its latest fault; `None` if nothing is recorded.
    pub record: Option<Record>,
    /// Its earlier records, faults by attempt.
    pub earlier: Vec<Record>,
}

impl UnitView<'_> {
    /// Returns the record that settled the unit.
    pub fn settled(&self) -> Option<&Record> {
        self.record.as_ref().filter(|record| !record.outcome.is_fault())
    }
}

/// Returns the identity of an item's unit under a configuration.
pub fn unit_of(configuration: &PlannedConfiguration, item: &Item) -> UnitId {
    WorkUnit::identity_of(&item.id, &configuration.identity)
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
    let mut configurations = manifest.configurations.iter().enumerate();
    configurations.try_for_each(|(position, configuration)| {
        for_each_unit_of(position, configuration, checkpoint, &mut visit)
    })
}

/// Calls the visitor for every planned unit of the configuration at a position of the manifest.
///
/// # Errors
/// Errors of reading the checkpoint, and errors of the visitor.
pub fn for_each_unit_of<E: From<CheckpointError>>(
    position: usize,
    configuration: &PlannedConfiguration,
    checkpoint: &CheckpointReader,
    mut visit: impl FnMut(&UnitView<'_>) -> Result<(), E>,
) -> Result<(), E> {
    for item in checkpoint.items(&configuration.configuration.benchmark) {
        let item = item?;
        if !configuration.has_item(item.index) {
            break;
        }
        let unit = unit_of(configuration, &item);
        let mut earlier = checkpoint.records_of(&unit)?;
        let record = earlier.pop();
        visit(&UnitView { position, configuration, item: &item, unit, record, earlier })?;
    }
    Ok(())
}

impl CheckpointReader {
    /// Calls the visitor for every settled unit of a run, in the order of reports, with its configuration, its
    /// item and its record. Holds one unit in memory at a time.
    ///
    /// # Errors
    /// Errors of reading the checkpoint, and errors of the visitor.
    pub fn for_each_settled<E: From<CheckpointError>>(
        &self,
        manifest: &Manifest,
        mut visit: impl FnMut(&PlannedConfiguration, &Item, &Record) -> Result<(), E>,
    ) -> Result<(), E> {
        for_each_unit(manifest, self, |view| match view.settled() {
            Some(record) => visit(view.configuration, view.item, record),
            None => Ok(()),
        })
    }
}
