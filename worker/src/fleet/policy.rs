//! Decides which lanes a worker pulls from, and when it changes the models it has loaded. Pure: state goes in, a
//! decision comes out.
//!
//! Lanes whose models are loaded are pulled first, by priority. Loading takes time, and pays off only if there is no
//! work without it: the models of another lane are loaded once every loaded lane has been empty for as long as the
//! loading takes. Two lanes that receive units slowly in turn therefore cost one switch per waiting period instead of
//! one per unit.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lumos_tasks::fleet::LaneId;
use lumos_tasks::{ContentHash, ModelIdentity};

/// When a lane that has just run dry is asked again at the earliest.
const SOON: Duration = Duration::from_millis(250);

/// Time since the worker began.
pub type Moment = Duration;

/// What makes a loaded model the one it is: content, and the type it computes in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelKey {
    /// Hash of what is loaded.
    pub content: ContentHash,
    /// The type it computes in, where that can be chosen.
    pub dtype: Option<String>,
}

impl From<&ModelIdentity> for ModelKey {
    fn from(identity: &ModelIdentity) -> Self {
        Self { content: identity.content.clone(), dtype: identity.dtype.clone() }
    }
}

/// A lane, as the policy sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    /// Which it is.
    pub id: LaneId,
    /// The models it needs, and their bytes.
    pub models: BTreeMap<ModelKey, u64>,
    /// The tools it needs in addition to those that every worker has.
    pub tools: BTreeSet<String>,
    /// This worker cannot serve it: a model is not here, or is another.
    pub refused: bool,
    /// When it last gave work.
    pub last_work: Option<Moment>,
    /// Since when it has had none whenever it was asked.
    pub dry_since: Option<Moment>,
    /// When it was last asked and had none.
    pub last_dry: Option<Moment>,
}

/// What the worker holds and can hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holding {
    /// Bytes it may fill with models; `None` for no limit.
    pub memory: Option<u64>,
    /// Loaded models, and their bytes.
    pub loaded: BTreeMap<ModelKey, u64>,
    /// Models that episodes at hand need.
    pub in_use: BTreeSet<ModelKey>,
    /// Tools in addition to those that every worker has.
    pub tools: BTreeSet<String>,
    /// When models were last changed.
    pub last_switch: Option<Moment>,
}

/// What loading is reckoned to cost, and how much patience that gives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PolicySettings {
    /// Bytes loaded in a second.
    pub bytes_per_second: u64,
    /// What loading costs however small the model.
    pub least: Duration,
    /// Patience in load times.
    pub patience: f64,
    /// For how long at most a lane that is not loaded and had no work is left alone. It is asked often at
    /// first, and the more rarely the longer it has had none.
    pub dry_for: Duration,
    /// How recently a loaded lane must have been asked for its answer to count.
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
    /// Reckoned time to load so many bytes.
    pub fn cost(&self, bytes: u64) -> Duration {
        let seconds = bytes as f64 / self.bytes_per_second.max(1) as f64;
        self.least + Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX / 4)
    }

    /// For how long loaded lanes must have been dry before so many bytes are loaded.
    pub fn patience(&self, bytes: u64) -> Duration {
        let seconds = self.cost(bytes).as_secs_f64() * self.patience.max(0.0);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX / 2)
    }
}

/// A change of models. Made only if the lane turns out to have work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch {
    /// For which lane.
    pub to: LaneId,
    /// What must go first.
    pub unload: Vec<ModelKey>,
    /// What is loaded then.
    pub load: Vec<ModelKey>,
}

/// What is to be done now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// Lanes to ask for work, in this order.
    pub ask: Vec<LaneId>,
    /// What to do if they have none.
    pub switch: Option<Switch>,
}

/// Decides.
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

/// For how long no loaded lane has had work; `None` while one may have some.
fn quiet_for(
    loaded: &[&Lane],
    holding: &Holding,
    now: Moment,
    settings: &PolicySettings,
) -> Option<Duration> {
    let mut since = holding.last_switch;
    for lane in loaded {
        // A worker whose places were taken has not asked for long: what it heard then says nothing.
        lane.last_dry.filter(|last| now.saturating_sub(*last) <= settings.fresh)?;
        since = since.max(Some(lane.dry_since?)).max(lane.last_work);
    }
    Some(since.map_or(Duration::MAX, |since| now.saturating_sub(since)))
}

/// The lane to be loaded: the most urgent, then the cheapest, of those whose time has come.
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
    /// Whether a lane could be served if nothing else were.
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

    /// What loading a lane takes; `None` while models that are in use stand in its way.
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
        // What nobody needs goes first, then what was needed longest ago, large before small.
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
        // A later, larger one may have made earlier ones superfluous.
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

/// When a model was last needed: `None` if no lane names it.
fn last_needed(model: &ModelKey, lanes: &[Lane]) -> Option<Moment> {
    let needing = lanes.iter().filter(|lane| !lane.refused && lane.models.contains_key(model));
    needing.map(|lane| lane.last_work.unwrap_or_default()).max()
}
