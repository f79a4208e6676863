//! Results of recent pulls from each lane, the only information that the policy has about queued work.

use std::collections::BTreeMap;

use lumos_tasks::fleet::LaneId;

use super::policy::Moment;

/// Recent results of pulls from one lane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answers {
    /// When it last gave work.
    pub last_work: Option<Moment>,
    /// Since when it has had none whenever it was asked.
    pub dry_since: Option<Moment>,
    /// When it was last asked and had none.
    pub last_dry: Option<Moment>,
}

/// What all lanes answered.
#[derive(Debug, Clone, Default)]
pub struct History {
    lanes: BTreeMap<LaneId, Answers>,
}

impl History {
    /// A lane gave work.
    pub fn gave_work(&mut self, lane: &LaneId, now: Moment) {
        let answers = self.lanes.entry(lane.clone()).or_default();
        *answers = Answers { last_work: Some(now), ..Answers::default() };
    }

    /// A lane had none.
    pub fn was_dry(&mut self, lane: &LaneId, now: Moment) {
        let answers = self.lanes.entry(lane.clone()).or_default();
        answers.dry_since.get_or_insert(now);
        answers.last_dry = Some(now);
    }

    /// What a lane answered.
    pub fn of(&self, lane: &LaneId) -> Answers {
        self.lanes.get(lane).copied().unwrap_or_default()
    }

    /// Forgets lanes that are no more.
    pub fn keep_only(&mut self, known: impl Fn(&LaneId) -> bool) {
        self.lanes.retain(|lane, _| known(lane));
    }
}
