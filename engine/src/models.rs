//! [`EngineRegistry`]: a registry that shares one engine between all roles that use the same weights.
//!
//! Models are compared by content: weights, shape and tokenizer, together with the device and the weight
//! type. The registry does not keep engines alive; a model is unloaded when its last handle is dropped.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;

use crate::device::DeviceName;
use crate::engine::{Engine, Inner, check};
use crate::error::LoadError;
use crate::load::{self, Opened, WeightFile};
use crate::memory::MemoryBudget;
use crate::options::{DType, LoadOptions, ModelSource};
use crate::random::RandomShape;

/// A registry of engines. It does not keep them alive: a model is unloaded when its last [`Engine`] is
/// dropped.
#[derive(Debug, Default)]
pub struct EngineRegistry {
    budget: Option<MemoryBudget>,
    engines: Mutex<HashMap<Key, Arc<Slot>>>,
    places: Mutex<HashMap<Place, Arc<Mutex<Option<Known>>>>>,
    loads: AtomicUsize,
}

/// One model. Concurrent requests for a model wait on the lock while it is being loaded.
type Slot = Mutex<Weak<Inner>>;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    content: String,
    device: DeviceName,
    dtype: DType,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Place {
    /// A folder or file, with symbolic links resolved.
    Path(PathBuf),
    /// The folders of a base and of its adapter.
    Adapted(PathBuf, PathBuf),
    /// Address and length of the embedded weights.
    Memory(usize, usize),
    Random(RandomShape, u64),
}

/// The identified contents of a location.
#[derive(Clone, Debug)]
struct Known {
    /// The files' names, sizes and modification times at that time.
    looks: Vec<Look>,
    content: String,
    files: Vec<WeightFile>,
}

/// A file's name, size and modification time.
type Look = (PathBuf, u64, Option<SystemTime>);

impl EngineRegistry {
    /// An empty registry without a memory budget.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty registry whose engines share a memory budget for weights and KV caches.
    pub fn with_budget(budget: MemoryBudget) -> Self {
        Self { budget: Some(budget), ..Self::default() }
    }

    /// Returns the engine of a model: an already loaded one with equal weights, shape and tokenizer, device
    /// and weight type, or a new one. Folders are compared by content; weights are read and hashed when a
    /// folder is first requested or has changed.
    ///
    /// The other options apply to the first request only. Concurrent requests for one model load it once;
    /// different models load in parallel.
    ///
    /// # Errors
    /// As [`Engine::load`].
    #[allow(clippy::needless_pass_by_value)] // as [`Engine::load`]: an engine owns what it loaded
    pub fn engine(&self, source: ModelSource, options: LoadOptions) -> Result<Engine, LoadError> {
        let memory = options.memory.or_else(|| self.budget.clone());
        let options = LoadOptions { memory, device: options.device.resolved(), ..options };
        check(&options)?;
        let (known, opened) = self.identify(&source)?;
        let LoadOptions { device, dtype, .. } = options;
        let slot = self.slot(Key { content: known.content, device, dtype });
        let mut slot = lock(&slot);
        if let Some(inner) = slot.upgrade() {
            return Ok(Engine { inner });
        }
        let opened = opened.map_or_else(|| load::open(&source), Ok)?;
        let engine = Engine::start(opened.load(&options, Some(known.files))?, &options)?;
        self.loads.fetch_add(1, Ordering::Relaxed);
        *slot = Arc::downgrade(&engine.inner);
        Ok(engine)
    }

    /// Number of models loaded so far.
    pub fn loads(&self) -> usize {
        self.loads.load(Ordering::Relaxed)
    }

    /// Identifies the contents of a location. Also returns the opened model if it had to be opened for this.
    fn identify(&self, source: &ModelSource) -> Result<(Known, Option<Opened>), LoadError> {
        let (place, looks) = match source {
            ModelSource::Folder(path) | ModelSource::Gguf(path) => {
                let path = resolved(path);
                let looks = looks(&path);
                (Place::Path(path), looks)
            }
            ModelSource::Adapted { base, adapter } => {
                let (base, adapter) = (resolved(base), resolved(adapter));
                let looks = [looks(&base), looks(&adapter)].concat();
                (Place::Adapted(base, adapter), looks)
            }
            ModelSource::Memory(files) => {
                (Place::Memory(files.weights.as_ptr() as usize, files.weights.len()), Vec::new())
            }
            ModelSource::Random { shape, seed } => (Place::Random(*shape, *seed), Vec::new()),
        };
        let place = lock(&self.places).entry(place).or_default().clone();
        let mut place = lock(&place);
        if let Some(known) = place.as_ref().filter(|known| known.looks == looks) {
            return Ok((known.clone(), None));
        }
        let opened = load::open(source)?;
        let files = opened.weight_files(true)?;
        let known = Known { looks, content: opened.content(&files), files };
        *place = Some(known.clone());
        Ok((known, Some(opened)))
    }

    fn slot(&self, key: Key) -> Arc<Slot> {
        let mut engines = lock(&self.engines);
        // A slot that only this map holds is not in use.
        engines.retain(|_, slot| Arc::strong_count(slot) > 1 || lock(slot).strong_count() > 0);
        engines.entry(key).or_default().clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A path with symbolic links resolved. If that fails, the path is returned unchanged and the loader reports
/// the error.
fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Name, size and modification time of a file, or of the files of a folder, sorted; empty if they cannot be
/// listed.
fn looks(path: &Path) -> Vec<Look> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut looks: Vec<Look> = std::iter::once(path.to_owned())
        .filter(|path| path.is_file())
        .chain(entries.map(|entry| entry.path()))
        .filter_map(|path| {
            let data = std::fs::metadata(&path).ok()?;
            Some((path, data.len(), data.modified().ok()))
        })
        .collect();
    looks.sort_unstable();
    looks
}
