//! How the engines of a worker share the memory of their devices.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytesize::ByteSize;
#[cfg(feature = "serve-model")]
use lumos_engine::ModelSource;
use lumos_engine::{DType, DeviceName, Footprint, LoadError, SMALL_CACHE, free_gpu_memory, free_memory};
use lumos_tasks::{BackendChoice, Configuration, Device, Formulation, ModelIdentity, Role, Swap};
use thiserror::Error;

use super::loaded::Key;
use super::loading::Blocking;
use super::{LoadedModel, ModelRegistry};
use crate::ModelBackend;
use crate::arrangement::{Arrangement, DoesNotFit, Need, arrange, listed, shares};
use crate::error::LoadModelError;
use crate::in_process::{self, InProcessModel};
use crate::name::ModelName;
use crate::settings::{EngineSettings, MemoryShare, device_name};
use crate::swap_lock::{Load, ModelSwapLock, SwappedModel, Swapping};

/// Errors of placing models.
#[derive(Debug, Error)]
pub enum PlacingError {
    /// The needs of a model cannot be determined.
    #[error(transparent)]
    Model(#[from] LoadModelError),
    /// A GPU cannot be used.
    #[error(transparent)]
    Device(#[from] LoadError),
    /// A device does not have enough memory.
    #[error("on {device}: {source}")]
    Memory {
        /// The device.
        device: Device,
        /// Which models do not fit.
        source: DoesNotFit,
    },
    /// The models of a server do not fit together in the free memory of their GPU.
    #[error(
        "the models need {} together ({}), but only {} of the memory of {device} is available; hint: stop other \
         programs on this GPU (`nvidia-smi` lists them), serve fewer or smaller models, or choose a smaller --dtype or \
         --batch-size",
        ByteSize(models.iter().map(Need::bytes).sum()), listed(models), ByteSize(*free)
    )]
    ServedModels {
        /// The GPU.
        device: DeviceName,
        /// The models.
        models: Vec<Need>,
        /// Bytes that they may use.
        free: u64,
    },
}

/// How the models of a set of configurations are arranged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arranged {
    /// Devices on which models are loaded in phases.
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
    /// Engines that are loaded in phases, with their backend once it was requested.
    phased: HashMap<Key, Option<Taking>>,
    gates: BTreeMap<Device, Arc<ModelSwapLock<Key>>>,
}

/// An engine that is loaded in phases.
struct Taking {
    identity: ModelIdentity,
    backend: Arc<SwappedModel<Key>>,
}

impl Placed {
    /// Returns an engine's share of a limited memory.
    pub(super) fn share(&self, key: &Key) -> Option<MemoryShare> {
        self.lock().shares.get(key).copied()
    }

    /// Returns the backend of an engine that is loaded in phases; `None` for any other engine.
    pub(super) fn phased<L: Load + 'static>(
        &self,
        key: &Key,
        identity: &ModelIdentity,
        load: impl FnOnce() -> Arc<L>,
    ) -> Option<Arc<dyn ModelBackend>> {
        let mut state = self.lock();
        let State { phased, gates, .. } = &mut *state;
        let taking = phased.get_mut(key)?.get_or_insert_with(|| {
            let gate = gates.entry(key.2).or_insert_with(ModelSwapLock::new);
            Taking { identity: identity.clone(), backend: Arc::new(gate.backend(key.clone(), load())) }
        });
        Some(Arc::clone(&taking.backend) as Arc<dyn ModelBackend>)
    }

    /// Lists the currently loaded engine of each device with phases.
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

    /// Removes engines that are loaded in phases. Waits for one that is being loaded.
    pub(super) async fn unload(&self, same: impl Fn(&Key) -> bool) {
        let gates = {
            let mut state = self.lock();
            state.phased.retain(|key, _| !same(key));
            state.shares.retain(|key, _| !same(key));
            let present = |gate: &&Arc<ModelSwapLock<Key>>| gate.present().is_some_and(|key| same(&key));
            state.gates.values().filter(present).cloned().collect::<Vec<_>>()
        };
        for gate in gates {
            gate.unload().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The settings of an engine and its memory needs.
struct Engine {
    need: Need,
    footprint: Footprint,
    settings: EngineSettings,
}

impl ModelRegistry {
    /// Arranges the engines of configurations in `memory` bytes on each device: together if they fit; in
    /// phases if each fits alone and `swap` allows it. On a GPU, `memory` is at most its free memory, which several
    /// engines also share without a limit: an engine allocates its KV cache when it is loaded. Blocks, because it reads file headers and downloads
    /// missing files. Models that are already loaded are not affected.
    ///
    /// # Errors
    /// If the models do not fit, or their needs cannot be determined.
    pub fn arrange<'a>(
        &self,
        configurations: impl IntoIterator<Item = &'a Configuration>,
        memory: Option<u64>,
        swap: Swap,
    ) -> Result<Arranged, PlacingError> {
        if memory.is_none() && swap != Swap::Always && !self.has_gpu() {
            return Ok(Arranged::default());
        }
        let mut arranged = Arranged::default();
        for (device, engines) in self.by_device(configurations)? {
            let memory = limit(device, memory, engines.len())?;
            let needs: Vec<Need> = engines.iter().map(|(_, engine)| engine.need.clone()).collect();
            let arrangement =
                arrange(&needs, memory, swap).map_err(|source| PlacingError::Memory { device, source })?;
            let mut state = self.placed.lock();
            if let Some(memory) = memory {
                let shares = engines.iter().zip(shares(&needs, memory, arrangement));
                state.shares.extend(shares.map(|((key, engine), bytes)| (key.clone(), engine.share(bytes))));
            }
            if arrangement == Arrangement::InPhases {
                arranged.in_phases.push(device);
                for (key, _) in engines {
                    state.phased.entry(key).or_default();
                }
            }
        }
        Ok(arranged)
    }

    /// Checks that [`ModelRegistry::arrange`] can arrange the engines of configurations in `memory` bytes on each device,
    /// whatever a GPU has free at the moment. Blocks in the same way.
    ///
    /// # Errors
    /// If the models do not fit, or their needs cannot be determined.
    pub fn check_memory<'a>(
        &self,
        configurations: impl IntoIterator<Item = &'a Configuration>,
        memory: u64,
        swap: Swap,
    ) -> Result<(), PlacingError> {
        for (device, engines) in self.by_device(configurations)? {
            let needs: Vec<Need> = engines.into_iter().map(|(_, engine)| engine.need).collect();
            arrange(&needs, Some(memory), swap).map_err(|source| PlacingError::Memory { device, source })?;
        }
        Ok(())
    }

    /// Whether a GPU computes the models of some roles. Blocks while its driver starts.
    pub fn has_gpu(&self) -> bool {
        let is_gpu = |device| EngineSettings { device, ..self.settings.engine }.is_on_gpu();
        self.settings.placement.devices().into_iter().any(is_gpu)
    }

    /// Determines the memory needs of the engines of configurations, by device.
    fn by_device<'a>(
        &self,
        configurations: impl IntoIterator<Item = &'a Configuration>,
    ) -> Result<BTreeMap<Device, Vec<(Key, Engine)>>, PlacingError> {
        let mut devices: BTreeMap<Device, Vec<(Key, Engine)>> = BTreeMap::new();
        for configuration in configurations {
            for (role, identity) in &configuration.models {
                let key = self.key(identity, *role);
                let engines = devices.entry(key.2).or_default();
                if self.is_engine(identity)? && !engines.iter().any(|(other, _)| *other == key) {
                    engines.push((key, self.measured(identity, *role, configuration)?));
                }
            }
        }
        Ok(devices)
    }

    /// Determines the memory needs of an engine.
    fn measured(
        &self,
        identity: &ModelIdentity,
        role: Role,
        configuration: &Configuration,
    ) -> Result<Engine, PlacingError> {
        let load = self.engine_source(identity, role, configuration.formulation)?;
        let settings = self.engine_settings(identity, role)?;
        let failed = |message: String| LoadModelError::new(&identity.name, message);
        let source = load.source().map_err(|error| failed(error.to_string()))?;
        let footprint =
            in_process::footprint(&source, &settings).map_err(|error| failed(error.to_string()))?;
        Ok(Engine::new(format!("{role} {}", identity.name), footprint, settings))
    }

    /// Returns the memory that a model needs in bytes: its weights in their data type, and the KV cache of
    /// one sequence of full length. `None` if no engine in this process runs the model. Blocks.
    ///
    /// # Errors
    /// If the need cannot be determined.
    pub fn needed(
        &self,
        identity: &ModelIdentity,
        role: Role,
        configuration: &Configuration,
    ) -> Result<Option<u64>, PlacingError> {
        if !self.is_engine(identity)? {
            return Ok(None);
        }
        Ok(Some(self.measured(identity, role, configuration)?.need.bytes()))
    }

    /// Loads another copy of a model with a backend and a maximum sequence length, which is not kept.
    ///
    /// # Errors
    /// If it cannot be loaded, or is not computed in this process.
    pub async fn load_with(
        &self,
        identity: &ModelIdentity,
        role: Role,
        formulation: Formulation,
        backend: BackendChoice,
        max_sequence_length: Option<usize>,
    ) -> Result<InProcessModel, LoadModelError> {
        let load = self.engine_source(identity, role, formulation)?;
        let settings = self.engine_settings(identity, role)?;
        let dtype = if backend == BackendChoice::CandleTransformers { DType::F32 } else { settings.dtype };
        let settings = EngineSettings { backend, dtype, max_sequence_length, ..settings };
        let loading = tokio::task::spawn_blocking(move || {
            Ok::<_, Blocking>(InProcessModel::load(load.source()?, &settings)?)
        });
        let loaded = loading.await.map_err(Blocking::from).and_then(|loaded| loaded);
        loaded.map_err(|error| LoadModelError {
            is_exhaustion: matches!(&error, Blocking::Load(error) if error.is_exhaustion()),
            ..LoadModelError::new(&identity.name, error.to_string())
        })
    }

    /// Loads a model, or queries its server for it, so that errors are reported before the run starts. A
    /// model that is loaded in phases is not kept.
    ///
    /// # Errors
    /// If the model cannot be loaded, or its server does not have it.
    pub async fn check(
        &self,
        identity: &ModelIdentity,
        role: Role,
        configuration: &Configuration,
    ) -> Result<(), LoadModelError> {
        if let ModelName::OpenAi(name) = self.name_of(identity)? {
            let checked = self.remote(name, identity).await?.check(role).await;
            if checked.is_err() {
                // It no longer counts as loaded, so that it is checked again before its next use.
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

    /// Time of the latest progress of models that are loaded in phases. An episode that waits for its model's
    /// phase is not stalled while other requests make progress. `None` if no models are loaded in phases.
    pub fn went_on(&self) -> Option<tokio::time::Instant> {
        self.placed.lock().gates.values().map(|gate| gate.went_on()).max()
    }

    /// Returns the total cost of swapping on all devices so far.
    pub fn swapping(&self) -> Swapping {
        let mut sum = Swapping::default();
        for gate in self.placed.lock().gates.values() {
            sum += gate.swapping();
        }
        sum
    }
}

/// Memory of a GPU that each engine's libraries take besides weights, buffers and cache, in bytes.
const LIBRARIES: u64 = 128 << 20;

/// The memory in which `engines` engines of a device are arranged; `None` for no limit.
fn limit(device: Device, memory: Option<u64>, engines: usize) -> Result<Option<u64>, LoadError> {
    let name = device_name(device).resolved();
    // A single engine without a limit takes what it finds when it is loaded.
    if name == DeviceName::Cpu || engines == 0 || (engines == 1 && memory.is_none()) {
        return Ok(memory);
    }
    let free = free_gpu_memory(name)?.saturating_sub(LIBRARIES * engines as u64);
    Ok(Some(memory.map_or(free, |memory| memory.min(free))))
}

/// Returns the settings for loading named models together: several models of a GPU share its free memory. Blocks.
///
/// # Errors
/// If they do not fit, or their needs cannot be determined.
#[cfg(feature = "serve-model")]
pub(crate) fn share_gpu(
    models: &[(String, ModelSource)],
    settings: EngineSettings,
) -> Result<Vec<EngineSettings>, PlacingError> {
    let Some(free) = limit(settings.device, None, models.len())? else {
        return Ok(vec![settings; models.len()]);
    };
    let options = settings.options();
    let mut engines = Vec::new();
    for (name, source) in models {
        engines.push(Engine::new(name.clone(), Footprint::of(source, &options)?, settings));
    }
    let needs: Vec<Need> = engines.iter().map(|engine| engine.need.clone()).collect();
    let device = options.device.resolved();
    let refused = |_| PlacingError::ServedModels { device, models: needs.clone(), free };
    let arrangement = arrange(&needs, Some(free), Swap::Never).map_err(refused)?;
    let shares = engines.iter().zip(shares(&needs, free, arrangement));
    let memory = shares.map(|(engine, bytes)| engine.share(bytes));
    Ok(memory.map(|share| EngineSettings { memory: Some(share), ..settings }).collect())
}

impl Engine {
    fn new(name: String, footprint: Footprint, settings: EngineSettings) -> Self {
        let need = Need {
            name,
            weight_bytes: footprint.weight_bytes + footprint.buffer_bytes,
            cache_bytes: footprint.cache_bytes(1),
        };
        Self { need, footprint, settings }
    }

    /// Returns the engine's share of `bytes`: the cache gets what the weights leave, but at most what a full
    /// batch needs and, on the CPU, at most half of the machine's free memory.
    fn share(&self, bytes: u64) -> MemoryShare {
        let options = self.settings.options();
        let wanted = self.footprint.cache_bytes(options.most_sequences()).max(SMALL_CACHE);
        let is_on_cpu = matches!(options.device.resolved(), DeviceName::Cpu);
        let machine = free_memory().filter(|_| is_on_cpu).map_or(u64::MAX, |free| free / 2);
        let left = bytes.saturating_sub(self.need.weight_bytes);
        let cache_bytes = left.min(wanted).min(machine.max(self.need.cache_bytes));
        MemoryShare { bytes: self.need.weight_bytes + cache_bytes, cache_bytes }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use async_trait::async_trait;
    use lumos_tasks::{Completion, ContentHash, Input, Request, Sampling, Stop};
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::ModelError;

    /// A model that takes 5 s to load, and its loader.
    struct Slow;

    #[async_trait]
    impl Load for Slow {
        async fn load(&self) -> Result<Arc<dyn ModelBackend>, String> {
            sleep(Duration::from_secs(5)).await;
            Ok(Arc::new(Self))
        }
    }

    #[async_trait]
    impl ModelBackend for Slow {
        async fn complete(&self, _: Request) -> Result<Completion, ModelError> {
            Ok(Completion::recorded("text"))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_engine_that_is_unloaded_while_it_loads_does_not_stay() {
        let placed = Placed::default();
        let key: Key = (ContentHash::of_bytes(b"weights"), None, Device::Cpu);
        let identity = ModelIdentity { name: "planner".to_owned(), content: key.0.clone(), dtype: None };
        placed.lock().phased.insert(key.clone(), None);
        let backend = placed.phased(&key, &identity, || Arc::new(Slow)).unwrap();
        let gate = Arc::clone(&placed.lock().gates[&Device::Cpu]);
        let request = Request {
            role: Role::Planner,
            input: Input::Raw(String::new()),
            stop: Stop::Newline,
            max_new_tokens: 1,
            sampling: Sampling::Greedy,
            seed: 0,
        };
        let cancelled = tokio::spawn(async move { backend.complete(request).await });
        sleep(Duration::from_secs(1)).await;
        cancelled.abort();
        assert!(cancelled.await.unwrap_err().is_cancelled());
        timeout(Duration::from_secs(60), placed.unload(|one| *one == key)).await.unwrap();
        sleep(Duration::from_secs(60)).await;
        assert_eq!((gate.present(), gate.swapping().loads), (None, 1));
    }

    /// The memory of the machine limits the caches on the CPU, and not those on a GPU.
    #[test]
    fn a_gpus_share_does_not_depend_on_the_machines_memory() {
        let Some(machine) = free_memory() else { return };
        let share = |device: Device| {
            let engine = Engine {
                need: Need { name: "planner".to_owned(), weight_bytes: 1000, cache_bytes: 1 },
                footprint: Footprint {
                    weight_bytes: 1000,
                    buffer_bytes: 0,
                    cache_bytes_per_token: machine,
                    context_length: 4096,
                },
                settings: EngineSettings { device, ..EngineSettings::default() },
            };
            engine.share(2 * machine)
        };
        let on_gpu = share(Device::Cuda(0));
        assert_eq!((on_gpu.bytes, on_gpu.cache_bytes), (2 * machine, 2 * machine - 1000));
        assert!(share(Device::Cpu).cache_bytes <= machine);
    }
}
