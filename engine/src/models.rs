//! Loaded models by their files, so that two roles with the same weights share one engine.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::engine::{Engine, Inner};
use crate::error::LoadError;
use crate::options::{DType, LoadOptions, ModelSource, RotaryPrecision};

/// A registry of engines. It does not keep them alive: a model is unloaded when its last [`Engine`] is dropped.
#[derive(Debug, Default)]
pub struct Models {
    engines: Mutex<HashMap<Key, Weak<Inner>>>,
    loads: AtomicUsize,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    place: Place,
    dtype: DType,
    rotary_precision: RotaryPrecision,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Place {
    /// With links resolved.
    Folder(PathBuf),
    /// Address and length of the embedded weights.
    Memory(usize, usize),
}

impl Models {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// The engine of this model: the one that is loaded already with the same type of weights and
    /// rotary precision, or a new one.
    /// The other options count for the first request only. Loads one model at a time.
    ///
    /// # Errors
    /// As [`Engine::load`].
    pub fn engine(&self, source: ModelSource, options: LoadOptions) -> Result<Engine, LoadError> {
        let place = match &source {
            // A folder that cannot be resolved is left for the loader to complain about.
            ModelSource::Folder(folder) => {
                Place::Folder(folder.canonicalize().unwrap_or_else(|_| folder.clone()))
            }
            ModelSource::Memory(files) => Place::Memory(files.weights.as_ptr() as usize, files.weights.len()),
        };
        let key = Key { place, dtype: options.dtype, rotary_precision: options.rotary_precision };
        let mut engines = self.engines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(inner) = engines.get(&key).and_then(Weak::upgrade) {
            return Ok(Engine { inner });
        }
        let engine = Engine::load(source, options)?;
        self.loads.fetch_add(1, Ordering::Relaxed);
        engines.retain(|_, engine| engine.strong_count() > 0);
        engines.insert(key, Arc::downgrade(&engine.inner));
        Ok(engine)
    }

    /// How many models were loaded so far.
    pub fn loads(&self) -> usize {
        self.loads.load(Ordering::Relaxed)
    }
}
