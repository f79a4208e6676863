//! Checks whether this worker can serve a shard: its models and tools must be available on this host and
//! identical to those that the run was planned with. The check runs once per shard, on a blocking thread,
//! because hashing weights takes long. Refused shards are checked again later, and those whose files had changed when a
//! model was loaded. What was found is kept for later runs, within limits, because runs choose the names of models.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lumos_models::{IdentifyError, LoadModelError, ModelRegistry};
use lumos_tasks::{
    Configuration, ContentHash, Formulation, ModelIdentity, Role, RunToken, Swap, ToolBackend,
};
use lumos_tools::ToolSets;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::catalogue::{Catalogue, KnownShard};
use super::notice_limits::{LONGEST_REFUSAL, cut};
use super::policy::ModelKey;

/// Delay before a refused shard is verified again.
const AGAIN: Duration = Duration::from_secs(60);
/// Size in bytes of the models found on this host above which those that no shard needs are forgotten. They are
/// hashed again for a later run.
const FOUND_BYTES: usize = 1 << 20;
/// Number of models of servers above which those that no shard needs are unloaded, with the clients of their servers.
const SERVER_MODELS: usize = 64;
/// Maximum length in bytes of a model's name in a warning.
const LONGEST_NAME: usize = 200;

/// A model that a shard needs, with a name under which it was found on this host.
#[derive(Debug, Clone)]
pub(crate) struct ShardModel {
    /// Its identity.
    pub(crate) identity: ModelIdentity,
    /// A role it serves.
    pub(crate) role: Role,
    /// A configuration that names it.
    pub(crate) configuration: Arc<Configuration>,
    /// Size in memory in bytes if memory is limited, otherwise the size of its stored weights.
    pub(crate) bytes: u64,
}

impl ShardModel {
    /// Returns its configuration without the other models, whose names in it may be unknown on this host.
    pub(crate) fn alone(&self) -> Configuration {
        let key = ModelKey::from(&self.identity);
        let mut configuration = (*self.configuration).clone();
        configuration.models.retain(|_, identity| ModelKey::from(&*identity) == key);
        configuration
    }
}

/// The requirements of a shard, all available on this host.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// Its models.
    pub(crate) models: Vec<ShardModel>,
    /// Their keys. If they are a group, its key.
    pub(crate) keys: Arc<BTreeSet<ModelKey>>,
    /// Key of all models together if they share the whole memory, which is limited. They are then loaded and unloaded as
    /// one.
    pub(crate) group: Option<ModelKey>,
}

/// Whether a shard can be served.
#[derive(Debug, Clone)]
pub(crate) enum ShardVerdict {
    /// It can be served.
    Fits(Arc<Needs>),
    /// It cannot be served, with the reason for messages: at most [`LONGEST_REFUSAL`] bytes.
    Refused(String),
}

impl ShardVerdict {
    fn refused(why: &str) -> Self {
        Self::Refused(cut(why, LONGEST_REFUSAL))
    }
}

struct Judged {
    /// What was verified. Another run of the shard may use other names for its models.
    looked_at: Looked,
    verdict: ShardVerdict,
    at: Instant,
}

/// The models of a shard by name, role, formulation and content.
type Looked = BTreeSet<(String, Role, Formulation, ContentHash)>;

/// The name of a model, with its role, formulation and planned content if they affect the result.
type Asked = (String, Option<(Role, Formulation, ContentHash)>);

/// Verifies shards on this host, and keeps the verdicts.
pub(crate) struct Eligibility {
    models: Arc<ModelRegistry>,
    tools: Arc<ToolSets>,
    /// The memory for models in bytes, and whether they may be swapped; `None` for no limit.
    memory: Option<(u64, Swap)>,
    judged: Mutex<BTreeMap<RunToken, Judged>>,
    /// Content and size in bytes of the models found on this host. Each is hashed once, and again when its files change.
    found: Mutex<BTreeMap<Asked, (ContentHash, u64)>>,
    /// The shard that is being verified.
    looking: Mutex<Option<Verification>>,
    changed: watch::Sender<u64>,
}

/// A verification in progress.
#[derive(Debug, Clone)]
struct Verification {
    since: Instant,
    /// Names of the models.
    models: Vec<String>,
}

impl Eligibility {
    /// Creates an instance without verdicts. `memory` is the memory for models in bytes, and whether they may
    /// be swapped.
    pub(crate) fn new(models: Arc<ModelRegistry>, tools: Arc<ToolSets>, memory: Option<(u64, Swap)>) -> Self {
        let (judged, found, looking, changed) = Default::default();
        Self { models, tools, memory, judged, found, looking, changed }
    }

    /// Returns the verdict for shards with these needs, or `None` if they were not verified yet.
    pub(crate) fn of(&self, needs: &RunToken) -> Option<ShardVerdict> {
        self.judged().get(needs).map(|judged| judged.verdict.clone())
    }

    /// Returns the reasons for refused shards, for messages.
    pub(crate) fn refusals(&self) -> Vec<String> {
        let judged = self.judged();
        let refusals = judged.values().filter_map(|judged| match &judged.verdict {
            ShardVerdict::Refused(message) => Some(message.clone()),
            ShardVerdict::Fits(_) => None,
        });
        refusals.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Refuses a shard whose model failed to load. It is verified again later.
    pub(crate) fn refuse(&self, needs: &RunToken, error: &LoadModelError) {
        let why = cut(&error.to_string(), LONGEST_REFUSAL);
        tracing::warn!("{why}");
        if let Some(judged) = self.judged().get_mut(needs) {
            judged.verdict = ShardVerdict::Refused(why);
            judged.at = Instant::now();
        }
        self.changed.send_modify(|count| *count += 1);
    }

    /// Returns how long the current verification of a shard has taken, with the names of its models. The shard may be
    /// servable afterwards.
    pub(crate) fn looking_for(&self) -> Option<(Duration, Vec<String>)> {
        self.looking().as_ref().map(|looking| (looking.since.elapsed(), looking.models.clone()))
    }

    /// Returns a counter that is incremented with every change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Verifies the shards of a catalogue as they appear, until `stop` is cancelled.
    pub(crate) async fn follow(self: Arc<Self>, catalogue: Arc<Catalogue>, stop: CancellationToken) {
        let mut changes = catalogue.changes();
        let verifying = async {
            loop {
                changes.mark_unchanged();
                let shards = catalogue.shards();
                self.judged().retain(|needs, _| shards.iter().any(|shard| shard.id.needs == *needs));
                self.forget_unneeded(&shards).await;
                for shard in shards.iter() {
                    self.verify(shard).await;
                }
                tokio::select! {
                    changed = changes.changed() => if changed.is_err() { break },
                    () = tokio::time::sleep(AGAIN / 2) => {}
                }
            }
        };
        stop.run_until_cancelled(verifying).await;
    }

    /// Forgets models that no shard needs, if there are many: what was found on this host, and models of servers.
    pub(crate) async fn forget_unneeded(&self, shards: &[KnownShard]) {
        let configurations = shards.iter().flat_map(|shard| shard.configurations.iter());
        let needed: Vec<&ModelIdentity> = configurations.flat_map(|one| one.models.values()).collect();
        {
            let mut found = self.found();
            let bytes: usize = found.keys().map(|(name, _)| size_of::<Asked>() + name.len()).sum();
            if bytes > FOUND_BYTES {
                let names: BTreeSet<&str> = needed.iter().map(|model| model.name.as_str()).collect();
                found.retain(|(name, _), _| names.contains(name.as_str()));
            }
        }
        let contents: BTreeSet<&ContentHash> = needed.iter().map(|model| &model.content).collect();
        let mut unneeded = self.models.list().await;
        // Models of servers take no memory here. Others stay loaded for later runs, within the memory limit.
        unneeded.retain(|model| model.bytes == 0 && !contents.contains(&model.identity.content));
        if unneeded.len() > SERVER_MODELS {
            for model in unneeded {
                self.models.unload(&model.identity).await;
            }
        }
    }

    /// Verifies a shard, unless its verdict is still valid. Has no time limit: `WorkerParts::watch` warns when it takes
    /// long.
    pub(crate) async fn verify(self: &Arc<Self>, shard: &KnownShard) {
        let looked_at = looked_at(&shard.configurations);
        let mut before = None;
        if let Some(judged) = self.judged().get(&shard.id.needs) {
            let has_changed = looked_at.iter().any(|(.., content)| self.models.has_changed(content));
            let fits = matches!(judged.verdict, ShardVerdict::Fits(_)) && !has_changed;
            if judged.looked_at == looked_at && (fits || judged.at.elapsed() < AGAIN) {
                return;
            }
            before = Some(judged.verdict.clone());
        }
        let needs = shard.id.needs.clone();
        let (this, configurations) = (Arc::clone(self), Arc::clone(&shard.configurations));
        let names: BTreeSet<&str> = looked_at.iter().map(|(name, ..)| name.as_str()).collect();
        let models = names.into_iter().map(|name| cut(name, LONGEST_NAME)).collect();
        *self.looking() = Some(Verification { since: Instant::now(), models });
        let verdict = match tokio::task::spawn_blocking(move || this.judge(&configurations)).await {
            Ok(Ok(fits)) => ShardVerdict::Fits(Arc::new(fits)),
            Ok(Err(message)) => ShardVerdict::refused(&message),
            Err(error) => ShardVerdict::refused(&format!("failed to verify the models of a shard: {error}")),
        };
        *self.looking() = None;
        if let ShardVerdict::Refused(message) = &verdict
            && !matches!(&before, Some(ShardVerdict::Refused(before)) if before == message)
        {
            tracing::warn!(shard = %needs, "{message}");
        }
        self.judged().insert(needs, Judged { looked_at, verdict, at: Instant::now() });
        self.changed.send_modify(|count| *count += 1);
    }

    /// Locates all models and tools of a shard's configurations. Blocks.
    fn judge(&self, configurations: &[Arc<Configuration>]) -> Result<Needs, String> {
        let mut needs: BTreeMap<ModelKey, Result<ShardModel, String>> = BTreeMap::new();
        // Each once: the configurations of a shard have the same tools, whose files are hashed.
        let tools: BTreeSet<&ToolBackend> = configurations.iter().flat_map(|one| &one.tools).collect();
        tools.into_iter().try_for_each(|backend| self.tools.verify(backend))?;
        for configuration in configurations {
            for (role, identity) in &configuration.models {
                // Any name under which the required content is found is sufficient.
                let key = ModelKey::from(identity);
                if !matches!(needs.get(&key), Some(Ok(_))) {
                    needs.insert(key, self.locate(identity, *role, configuration));
                }
            }
        }
        let keys: BTreeSet<ModelKey> = needs.keys().cloned().collect();
        let models: Vec<ShardModel> = needs.into_values().collect::<Result<_, _>>()?;
        if let Some((memory, swap)) = self.memory {
            let configurations: Vec<Configuration> = models.iter().map(ShardModel::alone).collect();
            let fit = self.models.check_memory(&configurations, memory, swap);
            fit.map_err(|error| error.to_string())?;
        }
        // The memory of a GPU is always limited, and an engine takes what it finds there.
        let is_group =
            models.iter().any(|model| model.bytes > 0) && (self.memory.is_some() || self.models.has_gpu());
        let group = is_group.then(|| ModelKey {
            content: ContentHash::of_json(
                &keys.iter().map(|key| (&key.content, &key.dtype)).collect::<Vec<_>>(),
            ),
            dtype: None,
        });
        let keys = Arc::new(group.clone().map_or(keys, |group| BTreeSet::from([group])));
        Ok(Needs { models, keys, group })
    }

    fn locate(
        &self,
        identity: &ModelIdentity,
        role: Role,
        configuration: &Arc<Configuration>,
    ) -> Result<ShardModel, String> {
        let formulation = configuration.formulation;
        let use_matters = identity.name.starts_with("builtin:");
        let asked =
            (identity.name.clone(), use_matters.then(|| (role, formulation, identity.content.clone())));
        let known = self.found().get(&asked).cloned();
        let is_unchanged =
            |content: &ContentHash| self.models.is_unchanged(&identity.name, role, formulation, content);
        let (content, bytes) = match known.filter(|(content, _)| is_unchanged(content)) {
            Some(found) => found,
            None => {
                let identified = self.models.identify_planned(identity, role, formulation).map_err(
                    |error| match error {
                        error @ IdentifyError::NotAllowed { .. } => error.to_string(),
                        error => format!("model `{}` not available on this host: {error}", identity.name),
                    },
                )?;
                let needed = || self.models.needed(identity, role, configuration);
                let bytes = self.memory.map_or(Ok(None), |_| needed()).map_err(|error| error.to_string())?;
                let found =
                    (identified.identity.content.clone(), bytes.unwrap_or_else(|| identified.bytes()));
                self.found().insert(asked, found.clone());
                found
            }
        };
        if content != identity.content {
            return Err(format!(
                "model `{}` on this host differs from the model that the run was planned with: different \
                 files; hint: copy the files that the run was planned with, or pass their location with \
                 `lumos worker --model-at <PLANNED=LOCAL>`",
                identity.name
            ));
        }
        self.models.engine_settings(identity, role).map_err(|error| error.to_string())?;
        Ok(ShardModel { identity: identity.clone(), role, configuration: Arc::clone(configuration), bytes })
    }

    fn judged(&self) -> MutexGuard<'_, BTreeMap<RunToken, Judged>> {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn looking(&self) -> MutexGuard<'_, Option<Verification>> {
        self.looking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn found(&self) -> MutexGuard<'_, BTreeMap<Asked, (ContentHash, u64)>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn looked_at(configurations: &[Arc<Configuration>]) -> Looked {
    let models_of = |configuration: &Arc<Configuration>| {
        let formulation = configuration.formulation;
        let models = configuration.models.clone().into_iter();
        models.map(move |(role, model)| (model.name, role, formulation, model.content))
    };
    configurations.iter().flat_map(models_of).collect()
}
