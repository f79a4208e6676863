//! Decides which shards a worker pulls from, and when it switches the models it has loaded. The decision is a
//! pure function of the current state. The only information that it has about queued work is the [`PullHistory`]: the
//! results of recent pulls from each shard.
//!
//! Shards whose models are loaded are pulled first, by priority. Loading takes time, and pays off only if there is no
//! work without it: the models of another shard are loaded once every loaded shard has been empty for as long as the
//! loading takes. Two shards that receive units slowly in turn therefore cost one switch per waiting period instead of
//! one per unit.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lumos_tasks::fleet::ShardId;
use lumos_tasks::{ContentHash, ModelIdentity};

/// Minimum delay before a shard without work is pulled again.
const SOON: Duration = Duration::from_millis(250);

/// Time since the worker started.
pub(crate) type Moment = Duration;

/// Identity of a loaded model: content and compute dtype.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ModelKey {
    /// Hash of its content.
    pub(crate) content: ContentHash,
    /// Compute dtype, if it can be chosen.
    pub(crate) dtype: Option<String>,
}

impl From<&ModelIdentity> for ModelKey {
    fn from(identity: &ModelIdentity) -> Self {
        Self { content: identity.content.clone(), dtype: identity.dtype.clone() }
    }
}

/// State of a shard, as input of the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shard {
    /// Its id.
    pub(crate) id: ShardId,
    /// The models it needs, with their sizes in bytes.
    pub(crate) models: BTreeMap<ModelKey, u64>,
    /// Whether this worker cannot serve it: a model or tool is missing or differs, or the shard is not verified yet.
    pub(crate) refused: bool,
    /// The results of recent pulls from it.
    pub(crate) history: PullHistory,
}

/// State of the worker, as input of the policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Holding {
    /// Memory limit for models in bytes; `None` for no limit.
    pub(crate) memory: Option<u64>,
    /// Loaded models, with their sizes in bytes.
    pub(crate) loaded: BTreeMap<ModelKey, u64>,
    /// Models that the held units need.
    pub(crate) in_use: BTreeSet<ModelKey>,
    /// When models were last switched.
    pub(crate) last_switch: Option<Moment>,
}

/// Estimated cost of loading models, and the waiting times that depend on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PolicySettings {
    /// Loading speed in bytes per second.
    pub bytes_per_second: u64,
    /// Minimum loading time, for models of any size.
    pub least: Duration,
    /// Waiting time before a switch, as a multiple of the loading time.
    pub patience: f64,
    /// Maximum delay before a shard that is not loaded and had no work is pulled again. The delay grows with
    /// the time that the shard has been without work.
    pub dry_for: Duration,
    /// Maximum age of the last pull from a loaded shard for its result to count.
    pub fresh: Duration,
}

impl Default for PolicySettings {
    fn default() -> Self {
        Self {
            bytes_per_second: 500_000_000,
            least: Duration::from_millis(100),
            patience: 1.0,
            dry_for: Duration::from_secs(4),
            fresh: Duration::from_secs(15),
        }
    }
}

impl PolicySettings {
    /// Returns the estimated time to load `bytes` bytes.
    fn cost(&self, bytes: u64) -> Duration {
        let seconds = bytes as f64 / self.bytes_per_second.max(1) as f64;
        self.least + Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX / 4)
    }

    /// Returns how long loaded shards must have been without work before `bytes` bytes are loaded.
    pub(crate) fn patience(&self, bytes: u64) -> Duration {
        let seconds = self.cost(bytes).as_secs_f64() * self.patience.max(0.0);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX / 2)
    }
}

/// A switch of models. Executed only if the shard has work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Switch {
    /// The shard to switch to.
    pub(crate) to: ShardId,
    /// Models to unload first.
    pub(crate) unload: Vec<ModelKey>,
    /// Models to load then.
    pub(crate) load: Vec<ModelKey>,
}

/// Result of the policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    /// Shards to pull from, in this order.
    pub(crate) ask: Vec<ShardId>,
    /// The switch to execute if they have no work.
    pub(crate) switch: Option<Switch>,
}

/// Decides which shards to pull from, and whether to switch models.
pub(crate) fn decide(
    shards: &[Shard],
    holding: &Holding,
    now: Moment,
    settings: &PolicySettings,
) -> Decision {
    let (mut loaded, others): (Vec<&Shard>, Vec<&Shard>) =
        shards.iter().filter(|shard| holding.can_hold(shard)).partition(|shard| holding.has_loaded(shard));
    loaded.sort_by_key(|shard| order(shard));
    let quiet = quiet_for(&loaded, holding, now, settings);
    let switch = quiet.and_then(|quiet| choose(&others, shards, holding, now, quiet, settings));
    Decision { ask: loaded.iter().map(|shard| shard.id.clone()).collect(), switch }
}

fn order(shard: &Shard) -> (u8, ShardId) {
    (shard.id.priority, shard.id.clone())
}

/// Returns how long no loaded shard has had work, or `None` if one may have some.
fn quiet_for(
    loaded: &[&Shard],
    holding: &Holding,
    now: Moment,
    settings: &PolicySettings,
) -> Option<Duration> {
    let mut since = holding.last_switch;
    for shard in loaded {
        let PullHistory { last_work, dry_since, last_dry } = shard.history;
        // A worker without free slots has not pulled for a while, so the last result does not count.
        last_dry.filter(|last| now.saturating_sub(*last) <= settings.fresh)?;
        since = since.max(Some(dry_since?)).max(last_work);
    }
    Some(since.map_or(Duration::MAX, |since| now.saturating_sub(since)))
}

/// Returns the switch to the best shard that is due: by priority, then by the bytes to load.
fn choose(
    candidates: &[&Shard],
    shards: &[Shard],
    holding: &Holding,
    now: Moment,
    quiet: Duration,
    settings: &PolicySettings,
) -> Option<Switch> {
    let found_dry = |shard: &Shard| {
        let Some(last) = shard.history.last_dry else { return false };
        let dry = last.saturating_sub(shard.history.dry_since.unwrap_or(last));
        now.saturating_sub(last) < (dry / 4).max(SOON).min(settings.dry_for)
    };
    candidates
        .iter()
        .filter(|shard| !found_dry(shard))
        .filter(|shard| settings.patience(holding.missing_bytes(shard)) <= quiet)
        .filter_map(|shard| holding.plan(shard, shards).map(|switch| (shard, switch)))
        .min_by_key(|(shard, _)| (shard.id.priority, holding.missing_bytes(shard), shard.id.clone()))
        .map(|(_, switch)| switch)
}

impl Holding {
    /// Whether this worker could serve a shard if it served no other shard.
    fn can_hold(&self, shard: &Shard) -> bool {
        let bytes: u64 = shard.models.values().sum();
        !shard.refused && self.memory.is_none_or(|memory| bytes <= memory)
    }

    /// Whether all models of a shard are loaded.
    fn has_loaded(&self, shard: &Shard) -> bool {
        shard.models.keys().all(|model| self.loaded.contains_key(model))
    }

    fn missing<'a>(&self, shard: &'a Shard) -> impl Iterator<Item = (&'a ModelKey, &'a u64)> {
        shard.models.iter().filter(|(model, _)| !self.loaded.contains_key(model))
    }

    fn missing_bytes(&self, shard: &Shard) -> u64 {
        self.missing(shard).map(|(_, bytes)| bytes).sum()
    }

    /// Returns the switch to a shard, or `None` if models in use occupy the memory it needs.
    fn plan(&self, shard: &Shard, shards: &[Shard]) -> Option<Switch> {
        let load = self.missing(shard).map(|(model, _)| model.clone()).collect();
        let Some(memory) = self.memory else {
            return Some(Switch { to: shard.id.clone(), unload: Vec::new(), load });
        };
        let needed = self.loaded.values().sum::<u64>() + self.missing_bytes(shard);
        let mut excess = needed.saturating_sub(memory);
        let mut idle: Vec<(&ModelKey, u64)> = self
            .loaded
            .iter()
            .filter(|(model, _)| !self.in_use.contains(model) && !shard.models.contains_key(model))
            .map(|(model, bytes)| (model, *bytes))
            .collect();
        // Models that no shard needs are unloaded first, then the least recently needed, large before small.
        idle.sort_by_key(|(model, bytes)| (last_needed(model, shards), u64::MAX - bytes));
        let mut unload: Vec<(&ModelKey, u64)> = Vec::new();
        for (model, bytes) in idle {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(bytes);
            unload.push((model, bytes));
        }
        if excess > 0 {
            return None;
        }
        // A later, larger model may make it unnecessary to unload earlier ones.
        let mut spare = unload.iter().map(|(_, bytes)| bytes).sum::<u64>() - needed.saturating_sub(memory);
        unload.retain(|(_, bytes)| {
            let superfluous = *bytes <= spare;
            spare -= if superfluous { *bytes } else { 0 };
            !superfluous
        });
        let unload = unload.into_iter().map(|(model, _)| model.clone()).collect();
        Some(Switch { to: shard.id.clone(), unload, load })
    }
}

/// Returns when a model was last needed, or `None` if no servable shard needs it.
fn last_needed(model: &ModelKey, shards: &[Shard]) -> Option<Moment> {
    let needing = shards.iter().filter(|shard| !shard.refused && shard.models.contains_key(model));
    needing.map(|shard| shard.history.last_work.unwrap_or_default()).max()
}

/// Recent results of pulls from one shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PullHistory {
    /// When it last returned work.
    pub(crate) last_work: Option<Moment>,
    /// Start of the current series of pulls without work.
    pub(crate) dry_since: Option<Moment>,
    /// When it was last pulled without work.
    pub(crate) last_dry: Option<Moment>,
}

impl PullHistory {
    /// Records that the shard returned work.
    pub(crate) fn gave_work(&mut self, now: Moment) {
        *self = Self { last_work: Some(now), ..Self::default() };
    }

    /// Records that the shard had no work.
    pub(crate) fn was_dry(&mut self, now: Moment) {
        self.dry_since.get_or_insert(now);
        self.last_dry = Some(now);
    }
}
