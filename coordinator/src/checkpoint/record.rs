//! Records of attempts, and the result of recording one.

use lumos_tasks::{Outcome, Telemetry, UnitId};
use serde::{Deserialize, Serialize};

/// One attempt at a unit and its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The unit.
    pub unit: UnitId,
    /// Position of its configuration in the manifest.
    pub configuration: u32,
    /// Position of the item in its data set.
    pub item: u64,
    /// The attempt, counted from 1.
    pub attempt: u32,
    /// The outcome of the attempt.
    pub outcome: Outcome,
    /// Data that depends on the schedule and the machine.
    pub telemetry: Telemetry,
}

/// Result of recording an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// The record settled its unit.
    First,
    /// A fault, kept under its attempt; the unit is still unsettled.
    FaultKept,
    /// Dropped: the unit was already settled, or this attempt's fault was already recorded.
    Duplicate,
}
