//! Finds records by the item's position or name, or by the first digits of the unit.

use lumos_tasks::{Item, UnitId};

use crate::checkpoint::{CheckpointError, CheckpointReader, Record};
use crate::manifest::{Manifest, PlannedConfiguration};
use crate::unit_view::unit_of;

/// A unit that was found.
#[derive(Debug)]
pub struct FoundUnit<'a> {
    /// Its configuration.
    pub configuration: &'a PlannedConfiguration,
    /// Its item.
    pub item: Item,
    /// Its identity.
    pub unit: UnitId,
    /// Its records: faults by attempt, then the outcome that settled it. Empty while it is outstanding.
    pub records: Vec<Record>,
}

/// Minimum number of digits that identify a unit.
const DIGITS: usize = 6;

/// Finds units, in the order of reports. `asked` is an item's position, an item's name, or at least the first
/// six digits of a unit's identity; the first interpretation with a match is used. `keeps` filters the
/// configurations.
///
/// # Errors
/// If the checkpoint or a record cannot be read.
pub fn find<'a>(
    manifest: &'a Manifest,
    checkpoint: &CheckpointReader,
    asked: &str,
    keeps: impl Fn(&PlannedConfiguration) -> bool,
) -> Result<Vec<FoundUnit<'a>>, CheckpointError> {
    let mut by_name = Vec::new();
    let mut by_unit = Vec::new();
    let mut by_position = Vec::new();
    let position: Option<u64> = asked.parse().ok();
    let digits = asked.len() >= DIGITS && asked.chars().all(|digit| digit.is_ascii_hexdigit());
    let asked_unit = asked.to_ascii_lowercase();
    for configuration in manifest.configurations.iter().filter(|one| keeps(one)) {
        let benchmark = &configuration.configuration.benchmark;
        if let Some(position) = position
            && let Some(item) = checkpoint.item(benchmark, position)?
        {
            let unit = unit_of(configuration, &item);
            by_position.push((configuration, item, unit));
            continue;
        }
        for item in checkpoint.items(benchmark) {
            let item = item?;
            if item.name.as_deref() == Some(asked) {
                let unit = unit_of(configuration, &item);
                by_name.push((configuration, item, unit));
            } else if digits {
                let unit = unit_of(configuration, &item);
                if unit.as_str().starts_with(&asked_unit) {
                    by_unit.push((configuration, item, unit));
                }
            }
        }
    }
    let places = [by_position, by_name, by_unit].into_iter().find(|places| !places.is_empty());
    places
        .unwrap_or_default()
        .into_iter()
        .map(|(configuration, item, unit)| {
            let records = checkpoint.records_of(&unit)?;
            Ok(FoundUnit { configuration, item, unit, records })
        })
        .collect()
}
