//! How the engines of a worker share the memory of their devices.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lumos_engine::{Footprint, LoadOptions, free_memory};
use lumos_tasks::{Configuration, Device, ModelIdentity, Role, Swap};
use thiserror::Error;

use super::ModelBackend;
use super::arrangement::{Arrangement, DoesNotFit, Need, arrange, shares};
use super::engine::{EngineSettings, MemoryShare};
use super::error::LoadModelError;
use super::gate::{Gate, Load, Phased, Swapping};
use super::name::ModelName;
use super::registry::{Key, LoadedModel, Models};

/// What the cache of a small model may take however little its sequences need, as in the engine.
const SMALL_CACHE: u64 = 256 << 20;

/// Why models cannot be placed.
#[derive(Debug, Error)]
pub enum PlacingError {
    /// What a model needs cannot be found out.
    #[error(transparent)]
    Model(#[from] LoadModelError),
    /// The memory of a device is too small.
    #[error("on {device}: {source}")]
    Memory {
        /// The device.
        device: Device,
        /// What is too large.
        source: DoesNotFit,
    },
}

/// How the models of configurations are arranged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arranged {
    /// Devices on which models take turns.
    pub in_phases: Vec<Device>,
}

/// How the engines of a worker share limited memory.
#[derive(Default)]
pub(super) struct Placed {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    shares: HashMap<Key, MemoryShare>,
    /// Engines that take turns; the backend once it was asked for.
    phased: HashMap<Key, Option<Taking>>,
    gates: BTreeMap<Device, Arc<Gate<Key>>>,
}

/// An engine that takes turns.
struct Taking {
    identity: ModelIdentity,
    backend: Arc<Phased<Key>>,
}

impl Placed {
    /// The part of a limited memory that an engine gets.
    pub(super) fn share(&self, key: &Key) -> Option<MemoryShare> {
        self.lock().shares.get(key).copied()
    }

    /// The backend of an engine that takes turns; `None` for one that does not.
    pub(super) fn phased<L: Load + 'static>(
        &self,
        key: &Key,
        identity: &ModelIdentity,
        load: impl FnOnce() -> Arc<L>,
    ) -> Option<Arc<dyn ModelBackend>> {
        let mut state = self.lock();
        let State { phased, gates, .. } = &mut *state;
        let taking = phased.get_mut(key)?.get_or_insert_with(|| {
            let gate = gates.entry(key.2).or_insert_with(Gate::new);
            Taking { identity: identity.clone(), backend: Arc::new(gate.backend(key.clone(), load())) }
        });
        Some(Arc::clone(&taking.backend) as Arc<dyn ModelBackend>)
    }

    /// The engine that is loaded on each device whose models take turns.
    pub(super) fn listed(&self) -> Vec<LoadedModel> {
        let state = self.lock();
        let resident = state.gates.values().filter_map(|gate| gate.resident());
        resident
            .filter_map(|key| {
                let identity = state.phased.get(&key)?.as_ref()?.identity.clone();
                let bytes = state.shares.get(&key).map_or(0, |share| share.bytes - share.cache_bytes);
                Some(LoadedModel { identity, bytes })
            })
            .collect()
    }

    /// Forgets engines that take turns; whether there were any.
    pub(super) async fn unload(&self, same: impl Fn(&Key) -> bool) -> bool {
        let (found, gates) = {
            let mut state = self.lock();
            let found = state.phased.keys().any(&same);
            state.phased.retain(|key, _| !same(key));
            state.shares.retain(|key, _| !same(key));
            let resident = |gate: &&Arc<Gate<Key>>| gate.resident().is_some_and(|key| same(&key));
            (found, state.gates.values().filter(resident).cloned().collect::<Vec<_>>())
        };
        for gate in gates {
            gate.unload().await;
        }
        found
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An engine and what it needs.
struct Engine {
    key: Key,
    need: Need,
    footprint: Footprint,
    settings: EngineSettings,
}

impl Models {
    /// Arranges the engines of configurations in a memory of so many bytes on each device: together where they fit, in
    /// phases where only each of them does and `swap` allows it. Reads headers of files, and downloads what is not here, so
    /// it blocks. What was loaded before stays as it is.
    ///
    /// # Errors
    /// If the models do not fit, or what they need cannot be found out.
    pub fn arrange<'a>(
        &self,
        configurations: impl IntoIterator<Item = &'a Configuration>,
        memory: Option<u64>,
        swap: Swap,
    ) -> Result<Arranged, PlacingError> {
        if memory.is_none() && swap != Swap::Always {
            return Ok(Arranged::default());
        }
        let mut devices: BTreeMap<Device, Vec<Engine>> = BTreeMap::new();
        for configuration in configurations {
            for (role, identity) in &configuration.models {
                let key = self.key(identity, *role);
                let engines = devices.entry(key.2).or_default();
                if self.is_engine(identity)? && !engines.iter().any(|engine| engine.key == key) {
                    engines.push(self.measured(key, identity, *role, configuration)?);
                }
            }
        }
        let mut arranged = Arranged::default();
        for (device, engines) in devices {
            let needs: Vec<Need> = engines.iter().map(|engine| engine.need.clone()).collect();
            let arrangement =
                arrange(&needs, memory, swap).map_err(|source| PlacingError::Memory { device, source })?;
            let mut state = self.placed.lock();
            if let Some(memory) = memory {
                let shares = engines.iter().zip(shares(&needs, memory, arrangement));
                state.shares.extend(shares.map(|(engine, bytes)| (engine.key.clone(), engine.share(bytes))));
            }
            if arrangement == Arrangement::InPhases {
                arranged.in_phases.push(device);
                for engine in engines {
                    state.phased.entry(engine.key).or_default();
                }
            }
        }
        Ok(arranged)
    }

    /// What an engine needs.
    fn measured(
        &self,
        key: Key,
        identity: &ModelIdentity,
        role: Role,
        configuration: &Configuration,
    ) -> Result<Engine, PlacingError> {
        let load = self.engine_source(identity, role, configuration.formulation)?;
        let settings = self.engine_settings(identity, role)?;
        let failed = |message: String| LoadModelError::new(&identity.name, message);
        let source = load.source().map_err(|error| failed(error.to_string()))?;
        let footprint = Footprint::of(&source, settings.dtype).map_err(|error| failed(error.to_string()))?;
        let need = Need {
            name: format!("{role} {}", identity.name),
            weight_bytes: footprint.weight_bytes,
            cache_bytes: footprint.cache_bytes(1),
        };
        Ok(Engine { key, need, footprint, settings })
    }

    /// Bytes that a model takes: weights in their type, keys and values of one sequence of full length. `None` for one that no
    /// engine in this process computes. Blocks.
    ///
    /// # Errors
    /// If that cannot be found out.
    pub fn needed(
        &self,
        identity: &ModelIdentity,
        role: Role,
        configuration: &Configuration,
    ) -> Result<Option<u64>, PlacingError> {
        if !self.is_engine(identity)? {
            return Ok(None);
        }
        let key = self.key(identity, role);
        Ok(Some(self.measured(key, identity, role, configuration)?.need.bytes()))
    }

    /// Loads a model, or asks its server for it, so that what is wrong with it is said before anything runs. One that takes
    /// turns is not kept.
    ///
    /// # Errors
    /// If it cannot be loaded, or its server does not have it.
    pub async fn check(
        &self,
        identity: &ModelIdentity,
        role: Role,
        configuration: &Configuration,
    ) -> Result<(), LoadModelError> {
        if let ModelName::OpenAi(name) = self.name_of(identity)? {
            let checked = self.remote(name, identity).await?.check(role).await;
            if checked.is_err() {
                // It counts as loaded no longer, so that it is checked again before its next use.
                self.unload(identity).await;
            }
            return checked.map_err(|message| LoadModelError::new(&identity.name, message));
        }
        self.get(identity, role, configuration).await?;
        let key = self.key(identity, role);
        let taking = {
            let state = self.placed.lock();
            state.phased.get(&key).and_then(|taking| Some(Arc::clone(&taking.as_ref()?.backend)))
        };
        match taking {
            Some(backend) => {
                backend.check().await.map_err(|error| LoadModelError::new(&identity.name, error.to_string()))
            }
            None => Ok(()),
        }
    }

    /// When models that take turns last went on: an episode that waits for its turn does not hang while others have
    /// theirs. `None` where none take turns.
    pub(crate) fn went_on(&self) -> Option<tokio::time::Instant> {
        self.placed.lock().gates.values().map(|gate| gate.went_on()).max()
    }

    /// What swapping cost so far, on all devices.
    pub fn swapping(&self) -> Swapping {
        let mut sum = Swapping::default();
        for gate in self.placed.lock().gates.values() {
            sum += gate.swapping();
        }
        sum
    }
}

impl Engine {
    /// The engine's part of so many bytes: the cache takes what the weights leave, but no more than a full batch needs and
    /// half of what the machine has.
    fn share(&self, bytes: u64) -> MemoryShare {
        let batch = self.settings.batch_size.unwrap_or(LoadOptions::default().max_batch);
        let wanted = self.footprint.cache_bytes(batch).max(SMALL_CACHE);
        let machine = free_memory().map_or(u64::MAX, |free| free / 2);
        let left = bytes.saturating_sub(self.need.weight_bytes);
        let cache_bytes = left.min(wanted).min(machine.max(self.need.cache_bytes));
        MemoryShare { bytes: self.need.weight_bytes + cache_bytes, cache_bytes }
    }
}
