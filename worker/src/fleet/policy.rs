//! Decides which lanes a worker pulls from, and when it switches the models it has loaded. The decision is a
//! pure function of the current state.
//!
//! Lanes whose models are loaded are pulled first, by priority. Loading takes time, and pays off only if there is no
//! work without it: the models of another lane are loaded once every loaded lane has been empty for as long as the
//! loading takes. Two lanes that receive units slowly in turn therefore cost one switch per waiting period instead of
//! one per unit.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lumos_tasks::fleet::LaneId;
use lumos_tasks::{ContentHash, ModelIdentity};

/// Minimum delay before a lane without work is pulled again.
const SOON: Duration = Duration::from_millis(250);

/// Time since the worker started.
pub type Moment = Duration;

/// Identity of a loaded model: content and compute dtype.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelKey {
    /// Hash of its content.
    pub content: ContentHash,
    /// Compute dtype, if it can be chosen.
    pub dtype: Option<String>,
}

impl From<&ModelIdentity> for ModelKey {
    fn from(identity: &ModelIdentity) -> Self {
        Self { content: identity.content.clone(), dtype: identity.dtype.clone() }
    }
}

/// State of a lane, as input of the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    /// Its id.
    pub id: LaneId,
    /// The models it needs, with their sizes in bytes.
    pub models: BTreeMap<ModelKey, u64>,
    /// The tools it needs in addition to those that every worker has.
    pub tools: BTreeSet<String>,
    /// Whether this worker cannot serve it: a model is missing or differs, or the lane is not verified yet.
    pub refused: bool,
    /// When it last returned work.
    pub last_work: Option<Moment>,
    /// Start of the current series of pulls without work.
    pub dry_since: Option<Moment>,
    /// When it was last pulled without work.
    pub last_dry: Option<Moment>,
}

/// State of the worker, as input of the policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holding {
    /// Memory limit for models in bytes; `None` for no limit.
    pub memory: Option<u64>,
    /// Loaded models, with their sizes in bytes.
    pub loaded: BTreeMap<ModelKey, u64>,
    /// Models that the held units need.
    pub in_use: BTreeSet<ModelKey>,
    /// Tools in addition to those that every worker has.
    pub tools: BTreeSet<String>,
    /// When models were last switched.
    pub last_switch: Option<Moment>,
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
    /// Maximum delay before a lane that is not loaded and had no work is pulled again. The delay grows with
    /// the time that the lane has been without work.
    pub dry_for: Duration,
    /// Maximum age of the last pull from a loaded lane for its result to count.
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
    pub fn cost(&self, bytes: u64) -> Duration {
        let seconds = bytes as f64 / self.bytes_per_second.max(1) as f64;
        self.least + Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX / 4)
    }

    /// Returns how long loaded lanes must have been without work before `bytes` bytes are loaded.
    pub fn patience(&self, bytes: u64) -> Duration {
        let seconds = self.cost(bytes).as_secs_f64() * self.patience.max(0.0);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX / 2)
    }
}

/// A switch of models. Executed only if the lane has work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch {
    /// The lane to switch to.
    pub to: LaneId,
    /// Models to unload first.
    pub unload: Vec<ModelKey>,
    /// Models to load then.
    pub load: Vec<ModelKey>,
}

/// Result of the policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// Lanes to pull from, in this order.
    pub ask: Vec<LaneId>,
    /// The switch to execute if they have no work.
    pub switch: Option<Switch>,
}

/// Decides which lanes to pull from, and whether to switch models.
pub fn decide(lanes: &[Lane], holding: &Holding, now: Moment, settings: &PolicySettings) -> Decision {
    let (mut loaded, others): (Vec<&Lane>, Vec<&Lane>) =
        lanes.iter().filter(|lane| holding.can_hold(lane)).partition(|lane| holding.has_loaded(lane));
    loaded.sort_by_key(|lane| order(lane));
    let quiet = quiet_for(&loaded, holding, now, settings);
    let switch = quiet.and_then(|quiet| choose(&others, lanes, holding, now, quiet, settings));
    Decision { ask: loaded.iter().map(|lane| lane.id.clone()).collect(), switch }
}

fn order(lane: &Lane) -> (u8, LaneId) {
    (lane.id.priority, lane.id.clone())
}

/// Returns how long no loaded lane has had work, or `None` if one may have some.
fn quiet_for(
    loaded: &[&Lane],
    holding: &Holding,
    now: Moment,
    settings: &PolicySettings,
) -> Option<Duration> {
    let mut since = holding.last_switch;
    for lane in loaded {
        // A worker without free slots has not pulled for a while, so the last result does not count.
        lane.last_dry.filter(|last| now.saturating_sub(*last) <= settings.fresh)?;
        since = since.max(Some(lane.dry_since?)).max(lane.last_work);
    }
    Some(since.map_or(Duration::MAX, |since| now.saturating_sub(since)))
}

/// Returns the switch to the best lane that is due: by priority, then by the bytes to load.
fn choose(
    candidates: &[&Lane],
    lanes: &[Lane],
    holding: &Holding,
    now: Moment,
    quiet: Duration,
    settings: &PolicySettings,
) -> Option<Switch> {
    let found_dry = |lane: &Lane| {
        let Some(last) = lane.last_dry else { return false };
        let dry = last.saturating_sub(lane.dry_since.unwrap_or(last));
        now.saturating_sub(last) < (dry / 4).max(SOON).min(settings.dry_for)
    };
    candidates
        .iter()
        .filter(|lane| !found_dry(lane))
        .filter(|lane| settings.patience(holding.missing_bytes(lane)) <= quiet)
        .filter_map(|lane| holding.plan(lane, lanes).map(|switch| (lane, switch)))
        .min_by_key(|(lane, _)| (lane.id.priority, holding.missing_bytes(lane), lane.id.clone()))
        .map(|(_, switch)| switch)
}

impl Holding {
    /// Whether this worker could serve a lane if it served no other lane.
    pub fn can_hold(&self, lane: &Lane) -> bool {
        let bytes: u64 = lane.models.values().sum();
        !lane.refused && lane.tools.is_subset(&self.tools) && self.memory.is_none_or(|memory| bytes <= memory)
    }

    /// Whether all models of a lane are loaded.
    pub fn has_loaded(&self, lane: &Lane) -> bool {
        lane.models.keys().all(|model| self.loaded.contains_key(model))
    }

    fn missing<'a>(&self, lane: &'a Lane) -> impl Iterator<Item = (&'a ModelKey, &'a u64)> {
        lane.models.iter().filter(|(model, _)| !self.loaded.contains_key(model))
    }

    fn missing_bytes(&self, lane: &Lane) -> u64 {
        self.missing(lane).map(|(_, bytes)| bytes).sum()
    }

    /// Returns the switch to a lane, or `None` if models in use occupy the memory it needs.
    fn plan(&self, lane: &Lane, lanes: &[Lane]) -> Option<Switch> {
        let load = self.missing(lane).map(|(model, _)| model.clone()).collect();
        let Some(memory) = self.memory else {
            return Some(Switch { to: lane.id.clone(), unload: Vec::new(), load });
        };
        let needed = self.loaded.values().sum::<u64>() + self.missing_bytes(lane);
        let mut excess = needed.saturating_sub(memory);
        let mut idle: Vec<(&ModelKey, u64)> = self
            .loaded
            .iter()
            .filter(|(model, _)| !self.in_use.contains(model) && !lane.models.contains_key(model))
            .map(|(model, bytes)| (model, *bytes))
            .collect();
        // Models that no lane needs are unloaded first, then the least recently needed, large before small.
        idle.sort_by_key(|(model, bytes)| (last_needed(model, lanes), u64::MAX - bytes));
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
        Some(Switch { to: lane.id.clone(), unload, load })
    }
}

/// Returns when a model was last needed, or `None` if no servable lane needs it.
fn last_needed(model: &ModelKey, lanes: &[Lane]) -> Option<Moment> {
    let needing = lanes.iter().filter(|lane| !lane.refused && lane.models.contains_key(model));
    needing.map(|lane| lane.last_work.unwrap_or_default()).max()
}
