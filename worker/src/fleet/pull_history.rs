//! Results of recent pulls from each shard, the only information that the policy has about queued work.

use std::collections::BTreeMap;

use lumos_tasks::fleet::ShardId;

use super::policy::Moment;

/// Recent results of pulls from one shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ShardHistory {
    /// When it last returned work.
    pub last_work: Option<Moment>,
    /// Start of the current series of pulls without work.
    pub dry_since: Option<Moment>,
    /// When it was last pulled without work.
    pub last_dry: Option<Moment>,
}

/// Results of recent pulls from all shards.
#[derive(Debug, Clone, Default)]
pub struct PullHistory {
    shards: BTreeMap<ShardId, ShardHistory>,
}

impl PullHistory {
    /// Records that a shard returned work.
    pub fn gave_work(&mut self, shard: &ShardId, now: Moment) {
        let answers = self.shards.entry(shard.clone()).or_default();
        *answers = ShardHistory { last_work: Some(now), ..ShardHistory::default() };
    }

    /// Records that a shard had no work.
    pub fn was_dry(&mut self, shard: &ShardId, now: Moment) {
        let answers = self.shards.entry(shard.clone()).or_default();
        answers.dry_since.get_or_insert(now);
        answers.last_dry = Some(now);
    }

    /// Returns the results of a shard.
    pub fn of(&self, shard: &ShardId) -> ShardHistory {
        self.shards.get(shard).copied().unwrap_or_default()
    }

    /// Removes shards that no longer exist.
    pub fn keep_only(&mut self, known: impl Fn(&ShardId) -> bool) {
        self.shards.retain(|shard, _| known(shard));
    }
}
