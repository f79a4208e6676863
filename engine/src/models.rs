//! Loaded models by content, so that roles with the same weights share one engine.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;

use crate::description::WeightFile;
use crate::device::DeviceName;
use crate::engine::{Engine, Inner, check};
use crate::error::LoadError;
use crate::load::{self, Opened};
use crate::memory::MemoryBudget;
use crate::options::{DType, LoadOptions, ModelSource};
use crate::random::RandomShape;

/// A registry of engines. It does not keep them alive: a model is unloaded when its last [`Engine`] is dropped.
#[derive(Debug, Default)]
pub struct Models {
    budget: Option<MemoryBudget>,
    engines: Mutex<HashMap<Key, Arc<Slot>>>,
    places: Mutex<HashMap<Place, Arc<Mutex<Option<Known>>>>>,
    loads: AtomicUsize,
}

/// One model. Whoever asks while it is being loaded waits for it.
type Slot = Mutex<Weak<Inner>>;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    content: String,
    device: DeviceName,
    dtype: DType,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Place {
    /// A folder or file, with links resolved.
    Path(PathBuf),
    /// The folders of a base and of its adapter.
    Adapted(PathBuf, PathBuf),
    /// Address and length of the embedded weights.
    Memory(usize, usize),
    Random(RandomShape, u64),
}

/// What was found at a place.
#[derive(Clone, Debug)]
struct Known {
    /// How its files looked then.
    looks: Vec<Look>,
    content: String,
    files: Vec<WeightFile>,
}

/// A file's name, size and time of change.
type Look = (PathBuf, u64, Option<SystemTime>);

impl Models {
    /// An empty registry without a limit of its own.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty registry whose engines share a memory budget, weights and caches together.
    pub fn with_budget(budget: MemoryBudget) -> Self {
        Self { budget: Some(budget), ..Self::default() }
    }

    /// The engine of this model: the one that is loaded already with equal weights, shape and tokenizer, the same device and
    /// type of weights, or a new one. Folders are distinguished by what is in them; their weights
    /// are read and hashed when a folder is first asked for or has changed.
    ///
    /// The other options count for the first request only. A model that several ask for at once is loaded once;
    /// different models are loaded side by side.
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

    /// How many models were loaded so far.
    pub fn loads(&self) -> usize {
        self.loads.load(Ordering::Relaxed)
    }

    /// What is at a place, and the opened model if it had to be opened to know.
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
        // Nobody works on a slot that only this map holds.
        engines.retain(|_, slot| Arc::strong_count(slot) > 1 || lock(slot).strong_count() > 0);
        engines.entry(key).or_default().clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A path with links resolved. One that cannot be is left for the loader to complain about.
fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// How a file, or the files of a folder, look, sorted; nothing if they cannot be listed.
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
