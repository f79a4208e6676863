//! Reads the tensors of a checkpoint for candle-transformers.
//!
//! The crate requests tensors by name and shape while it builds a model. [`CheckpointTensors`] answers from the files,
//! so a wrong shape is an error before memory is spent, and keeps the first error with file and tensor: the crate's own
//! type of errors would lose it, and two of its models panic at errors.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{DType, Device, Result, Shape, Tensor};
use candle_nn::var_builder::SimpleBackend;
use lumos_engine::{LoadError, ModelCheckpoint};

/// Name of the embedding, which is also the head of models with tied embeddings.
const EMBEDDING: &str = "model.embed_tokens.weight";
const HEAD: &str = "lm_head.weight";

/// The tensors of a checkpoint in float32.
pub(super) struct CheckpointTensors {
    pub(super) checkpoint: Arc<ModelCheckpoint>,
    /// Whether the head is the embedding.
    pub(super) tied: bool,
    /// The first error.
    pub(super) failed: Arc<Mutex<Option<LoadError>>>,
}

impl CheckpointTensors {
    fn stored_name<'a>(&self, name: &'a str) -> &'a str {
        if self.tied && name == HEAD { EMBEDDING } else { name }
    }

    fn read(&self, name: &str, shape: &[usize], device: &Device) -> Result<Tensor> {
        let tensor = self.checkpoint.tensor(self.stored_name(name), shape).map_err(|error| {
            let message = error.to_string();
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            candle_core::Error::Msg(message)
        });
        tensor?.to_device(device)
    }
}

impl SimpleBackend for CheckpointTensors {
    fn get(&self, shape: Shape, name: &str, _: candle_nn::Init, _: DType, device: &Device) -> Result<Tensor> {
        self.read(name, shape.dims(), device)
    }

    fn get_unchecked(&self, name: &str, _: DType, device: &Device) -> Result<Tensor> {
        let shape = self.checkpoint.shape(self.stored_name(name)).unwrap_or_default();
        self.read(name, shape, device)
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.checkpoint.shape(self.stored_name(name)).is_some()
    }
}
