//! Results of recent pulls from each lane, the only information that the policy has about queued work.

use std::collections::BTreeMap;

use lumos_tasks::fleet::LaneId;

use super::policy::Moment;

/// Recent results of pulls from one lane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LaneHistory {
    /// When it last returned work.
    pub last_work: Option<Moment>,
    /// Start of the current series of pulls without work.
    pub dry_since: Option<Moment>,
    /// When it was last pulled without work.
    pub last_dry: Option<Moment>,
}

/// Results of recent pulls from all lanes.
#[derive(Debug, Clone, Default)]
pub struct PullHistory {
    lanes: BTreeMap<LaneId, LaneHistory>,
}

impl PullHistory {
    /// Records that a lane returned work.
    pub fn gave_work(&mut self, lane: &LaneId, now: Moment) {
        let answers = self.lanes.entry(lane.clone()).or_default();
        *answers = LaneHistory { last_work: Some(now), ..LaneHistory::default() };
    }

    /// Records that a lane had no work.
    pub fn was_dry(&mut self, lane: &LaneId, now: Moment) {
        let answers = self.lanes.entry(lane.clone()).or_default();
        answers.dry_since.get_or_insert(now);
        answers.last_dry = Some(now);
    }

    /// Returns the results of a lane.
    pub fn of(&self, lane: &LaneId) -> LaneHistory {
        self.lanes.get(lane).copied().unwrap_or_default()
    }

    /// Removes lanes that no longer exist.
    pub fn keep_only(&mut self, known: impl Fn(&LaneId) -> bool) {
        self.lanes.retain(|lane, _| known(lane));
    }
}
