//! What is recorded.

use lumos_tasks::{Outcome, Telemetry, UnitId};
use serde::{Deserialize, Serialize};

/// One attempt at one unit, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The unit.
    pub unit: UnitId,
    /// Which of the manifest's configurations it runs under.
    pub configuration: u32,
    /// The item's position in its data set.
    pub item: u64,
    /// The attempt, counted from 1.
    pub attempt: u32,
    /// What came of it.
    pub outcome: Outcome,
    /// Facts of the schedule.
    pub telemetry: Telemetry,
}

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// It settled its unit.
    First,
    /// A fault, kept under its attempt; the unit is still unsettled.
    FaultKept,
    /// Its unit was settled before, or this attempt's fault is there already; dropped.
    Duplicate,
}
