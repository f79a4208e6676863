//! The second backend: models of the crate candle-transformers, for architectures that the engine does not have and as
//! a reference for those that it has.
//!
//! [`CandleTransformersBackend`] computes one sequence at a time in float32, each with its own keys and values, on the
//! CPU or, with the feature `candle-cuda`, on a GPU. It is slower than the engine and not batch-invariant by design, but a
//! sequence's result does not depend on others. Requests, sampling and ends of sequences are the engine's
//! ([`ModelCheckpoint::generate`]). `families` lists the architectures, `config` reads config.json, `refuse` rejects
//! configurations with which the crate computes something else than transformers, `weights` reads tensors, `device`
//! opens GPUs.

mod config;
mod device;
mod families;
mod refuse;
mod weights;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use candle_core::{DType as CandleType, Tensor};
use candle_nn::VarBuilder;
use lumos_engine::{
    DType, DeviceName, Footprint, GenerateError, GenerateRequest, Generation, LoadError, ModelCheckpoint,
    ModelDescription, ModelSource, Speculation, Tokenizer, free_memory,
};
use tokio::sync::Semaphore;

use self::config::{ReferenceConfig, architecture};
use self::device::OpenedDevice;
use self::families::{Family, ReferenceModel, architectures};
use self::weights::CheckpointTensors;
use crate::settings::EngineSettings;

const HEAD: &str = "lm_head.weight";

/// Whether the crate has an architecture.
pub(crate) fn has(architecture: &str) -> bool {
    Family::of(architecture).is_some()
}

/// A model computed by candle-transformers.
pub struct CandleTransformersBackend {
    checkpoint: Arc<ModelCheckpoint>,
    /// The model before its first token.
    pristine: Box<dyn ReferenceModel>,
    family: &'static Family,
    device: OpenedDevice,
    cache_bytes_per_token: u64,
    /// Most bytes of keys and values; half of the device's free memory if `None`.
    cache_bytes: Option<u64>,
    description: ModelDescription,
    /// One sequence is computed at a time.
    turn: Arc<Semaphore>,
}

impl fmt::Debug for CandleTransformersBackend {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("CandleTransformersBackend");
        shown.field("description", &self.description).finish_non_exhaustive()
    }
}

/// The logits of a reference for a given continuation.
#[derive(Debug, Clone, PartialEq)]
pub struct ReferenceTrace {
    /// All logits after the prompt.
    pub first_logits: Vec<f32>,
    /// The choice at each token of the continuation, given the tokens before it.
    pub choices: Vec<ReferenceChoice>,
}

/// The most likely token of a reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReferenceChoice {
    /// The token, the lowest id among equals.
    pub token: u32,
    /// Its logit minus that of the given token; 0 if they are the same token.
    pub margin: f32,
}

/// A checkpoint with its checked configuration.
struct Opened {
    checkpoint: Arc<ModelCheckpoint>,
    family: &'static Family,
    config: ReferenceConfig,
}

impl CandleTransformersBackend {
    /// Loads a model. Blocks while weights are read.
    ///
    /// # Errors
    /// [`LoadError::UnsupportedByBackend`] for architectures that the crate does not have, and for configurations with
    /// which it computes something else than transformers; otherwise as
    /// [`Engine::load`](lumos_engine::Engine::load).
    pub fn load(source: &ModelSource, settings: &EngineSettings) -> Result<Self, LoadError> {
        let opened = open(source, settings.max_sequence_length)?;
        opened.config.check(opened.family)?;
        Self::build(opened, settings)
    }

    /// Loads a model without checking that the crate computes what transformers does. For tests that show why a
    /// configuration is refused.
    ///
    /// # Errors
    /// As [`CandleTransformersBackend::load`], except for refused configurations.
    #[doc(hidden)]
    pub fn load_unchecked(source: &ModelSource, settings: &EngineSettings) -> Result<Self, LoadError> {
        Self::build(open(source, settings.max_sequence_length)?, settings)
    }

    fn build(opened: Opened, settings: &EngineSettings) -> Result<Self, LoadError> {
        let Opened { checkpoint, family, config } = opened;
        if settings.speculation == Speculation::Lookup {
            let reason = "candle-transformers does not verify drafts; hint: pass --speculate auto or off, or --backend native";
            return Err(LoadError::InvalidOption { reason: reason.to_owned() });
        }
        if settings.dtype != DType::F32 {
            let reason = format!(
                "candle-transformers computes in f32, not {}; hint: pass --dtype f32",
                settings.dtype
            );
            return Err(LoadError::InvalidOption { reason });
        }
        let device = OpenedDevice::open(settings.options().device)?;
        let needed = weight_bytes(&checkpoint);
        let share = settings.memory.map(|share| (share.bytes, share.bytes));
        for (free, total) in share.into_iter().chain(device.memory()?) {
            if needed > free {
                return Err(LoadError::TooLargeForMemory { what: "weights", needed, free, total });
            }
        }
        let tied = config.flag("tie_word_embeddings");
        if !tied && checkpoint.shape(HEAD).is_none() {
            let (name, file) = (HEAD.to_owned(), config.file().to_owned());
            return Err(LoadError::MissingTensor { name, file });
        }
        if family.panics {
            check_layers(&checkpoint, &config)?;
        }
        let failed = Arc::new(Mutex::new(None));
        let tensors =
            CheckpointTensors { checkpoint: Arc::clone(&checkpoint), tied, failed: Arc::clone(&failed) };
        let weights = VarBuilder::from_backend(Box::new(tensors), CandleType::F32, device.device.clone());
        let built = catch_unwind(AssertUnwindSafe(|| family.build(config.clone(), weights)));
        let built =
            built.unwrap_or_else(|_| Err(candle_core::Error::Msg("candle-transformers panicked".to_owned())));
        let pristine = built.map_err(|error| {
            let first = failed.lock().unwrap_or_else(PoisonError::into_inner).take();
            let file = config.file().to_owned();
            first.unwrap_or_else(|| LoadError::InvalidConfig { file, reason: message(error) })
        })?;
        let description = ModelDescription {
            architecture: config.architecture.clone(),
            parameters: checkpoint.parameters(),
            vocabulary: checkpoint.vocabulary(),
            dtype: DType::F32,
            quantization: None,
            weight_files: checkpoint.weight_files(false)?,
            tokenizer_sha256: checkpoint.tokenizer().sha256().to_owned(),
            context_length: config.context_length,
        };
        Ok(Self {
            checkpoint,
            pristine,
            family,
            device,
            cache_bytes_per_token: config.cache_bytes_per_token(),
            cache_bytes: settings.memory.map(|share| share.cache_bytes),
            description,
            turn: Arc::new(Semaphore::new(1)),
        })
    }

    /// Describes the loaded model.
    pub fn description(&self) -> &ModelDescription {
        &self.description
    }

    /// The device that computes.
    pub(crate) fn device(&self) -> DeviceName {
        self.device.name
    }

    /// The model's tokenizer.
    pub(crate) fn tokenizer(&self) -> &Tokenizer {
        self.checkpoint.tokenizer()
    }

    /// Whether a line ends at a single token, as in the engine.
    pub(crate) fn newline_is_unique(&self) -> bool {
        self.checkpoint.newline_is_unique()
    }

    /// Generates one sequence, after those that were requested earlier. Dropping the future cancels it.
    ///
    /// # Errors
    /// As [`Engine::generate`](lumos_engine::Engine::generate).
    pub async fn generate(self: &Arc<Self>, request: GenerateRequest) -> Result<Generation, GenerateError> {
        let deadline = request.deadline;
        self.in_turn(deadline, move |backend, cancelled| {
            let mut model = backend.pristine.fresh();
            let (context, most) = (backend.description.context_length, request.max_new_tokens);
            backend.checkpoint.generate(request, context, |tokens, position| {
                if position == 0 {
                    backend.check_memory(tokens.len().saturating_add(most).min(context))?;
                }
                backend.forward(&mut *model, tokens, position, cancelled)
            })
        })
        .await
    }

    /// Computes a given continuation of a prompt. Dropping the future cancels it.
    ///
    /// # Errors
    /// As [`CandleTransformersBackend::generate`].
    pub async fn trace(
        self: &Arc<Self>,
        prompt: Vec<u32>,
        continuation: Vec<u32>,
    ) -> Result<ReferenceTrace, GenerateError> {
        let (tokens, limit) = (prompt.len() + continuation.len(), self.description.context_length);
        if tokens > limit {
            return Err(GenerateError::PromptTooLong { tokens, limit });
        }
        let vocabulary = self.description.vocabulary;
        let mut given = prompt.iter().chain(&continuation);
        if let Some(token) = given.find(|token| **token as usize >= vocabulary) {
            return Err(GenerateError::UnknownToken { token: *token, vocabulary });
        }
        if prompt.is_empty() {
            return Err(GenerateError::EmptyPrompt);
        }
        self.in_turn(None, move |backend, cancelled| {
            backend.check_memory(tokens)?;
            let mut model = backend.pristine.fresh();
            let first_logits = backend.forward(&mut *model, &prompt, 0, cancelled)?;
            let mut logits = first_logits.clone();
            let mut choices = Vec::with_capacity(continuation.len());
            for (index, given) in continuation.iter().enumerate() {
                let position = prompt.len() + index;
                choices.push(choice(&logits, *given).ok_or(GenerateError::NotFinite { position })?);
                if index + 1 < continuation.len() {
                    logits = backend.forward(&mut *model, &[*given], position, cancelled)?;
                }
            }
            Ok(ReferenceTrace { first_logits, choices })
        })
        .await
    }

    /// Runs a computation on a blocking thread, after all earlier ones.
    async fn in_turn<T: Send + 'static>(
        self: &Arc<Self>,
        deadline: Option<Instant>,
        compute: impl FnOnce(&Self, &AtomicBool) -> Result<T, GenerateError> + Send + 'static,
    ) -> Result<T, GenerateError> {
        let turn = Arc::clone(&self.turn).acquire_owned();
        let turn = match deadline {
            None => turn.await,
            Some(deadline) => tokio::time::timeout_at(deadline.into(), turn)
                .await
                .map_err(|_| GenerateError::DeadlineExceeded { completion_tokens: 0 })?,
        };
        let turn = turn.map_err(|_| GenerateError::ShutDown)?;
        let cancel = CancelOnDrop(Arc::default());
        let (backend, cancelled) = (Arc::clone(self), Arc::clone(&cancel.0));
        let computing = tokio::task::spawn_blocking(move || {
            let computed = compute(&backend, &cancelled);
            drop(turn);
            computed
        });
        computing.await.map_err(|error| GenerateError::Forward(error.to_string()))?
    }

    /// Computes tokens in parts and returns the logits after the last one.
    fn forward(
        &self,
        model: &mut dyn ReferenceModel,
        tokens: &[u32],
        position: usize,
        cancelled: &AtomicBool,
    ) -> Result<Vec<f32>, GenerateError> {
        let failed = |error| GenerateError::Forward(message(error));
        let mut done = 0;
        loop {
            if cancelled.load(Ordering::Relaxed) {
                return Err(GenerateError::ShutDown);
            }
            let chunk = &tokens[done..tokens.len().min(done + self.family.chunk)];
            let input = Tensor::new(chunk, &self.device.device).and_then(|input| input.unsqueeze(0));
            let logits = input.and_then(|input| model.forward(&input, position + done)).map_err(failed)?;
            done += chunk.len();
            if done == tokens.len() {
                return logits.flatten_all().and_then(|logits| logits.to_vec1()).map_err(failed);
            }
        }
    }

    fn check_memory(&self, positions: usize) -> Result<(), GenerateError> {
        let needed = self.cache_bytes_per_token.saturating_mul(positions as u64);
        let failed = |error: LoadError| GenerateError::Forward(error.to_string());
        let free = match self.device.memory().map_err(failed)? {
            Some((free, _)) => Some(free),
            None => free_memory(),
        };
        let budget = self.cache_bytes.unwrap_or_else(|| free.map_or(u64::MAX, |free| free / 2));
        if needed <= budget {
            return Ok(());
        }
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Err(GenerateError::TooLargeForMemory { needed: bytes(needed), budget: bytes(budget) })
    }
}

/// The text of an error without the backtrace that candle adds if `RUST_BACKTRACE` is set.
fn message(error: candle_core::Error) -> String {
    match error {
        candle_core::Error::WithBacktrace { inner, .. } => message(*inner),
        error => error.to_string(),
    }
}

/// Cancels a computation when its future is dropped.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The memory that a model needs.
///
/// # Errors
/// As [`CandleTransformersBackend::load`], except errors of reading weights.
pub(crate) fn footprint(source: &ModelSource) -> Result<Footprint, LoadError> {
    let Opened { checkpoint, config, .. } = open(source, None)?;
    Ok(Footprint {
        weight_bytes: weight_bytes(&checkpoint),
        buffer_bytes: 0,
        cache_bytes_per_token: config.cache_bytes_per_token(),
        context_length: config.context_length,
    })
}

fn open(source: &ModelSource, limit: Option<usize>) -> Result<Opened, LoadError> {
    let checkpoint = Arc::new(ModelCheckpoint::open(source)?);
    let architecture = architecture(checkpoint.config());
    let family = Family::of(&architecture).ok_or_else(|| LoadError::UnsupportedByBackend {
        file: checkpoint.config_file().to_owned(),
        reason: format!("candle-transformers has no reference for architecture `{architecture}`"),
        hint: format!("supported are {}", architectures().join(", ")),
    })?;
    let defaults = (family.defaults)();
    let config = ReferenceConfig::read(&checkpoint, &defaults, family.rotary_per_layer, limit)?;
    Ok(Opened { checkpoint, family, config })
}

/// Size of the weights in float32.
fn weight_bytes(checkpoint: &ModelCheckpoint) -> u64 {
    checkpoint.parameters().saturating_mul(size_of::<f32>() as u64)
}

/// Checks the tensors of the layers of Llama and Granite, at which the crate would panic.
fn check_layers(checkpoint: &ModelCheckpoint, config: &ReferenceConfig) -> Result<(), LoadError> {
    let width = |name: &str| config.number(name).map_or(0, |size| size as usize);
    let (hidden, intermediate) = (width("hidden_size"), width("intermediate_size"));
    let (queries, keys) = (config.heads * config.head_size, config.key_value_heads * config.head_size);
    for layer in 0..config.layers {
        for (part, shape) in [
            ("input_layernorm", &[hidden][..]),
            ("post_attention_layernorm", &[hidden]),
            ("self_attn.q_proj", &[queries, hidden]),
            ("self_attn.k_proj", &[keys, hidden]),
            ("self_attn.v_proj", &[keys, hidden]),
            ("self_attn.o_proj", &[hidden, queries]),
            ("mlp.gate_proj", &[intermediate, hidden]),
            ("mlp.up_proj", &[intermediate, hidden]),
            ("mlp.down_proj", &[hidden, intermediate]),
        ] {
            let name = format!("model.layers.{layer}.{part}.weight");
            if checkpoint.shape(&name) != Some(shape) {
                checkpoint.tensor(&name, shape)?;
            }
        }
    }
    Ok(())
}

/// The most likely token compared with a given one; `None` if a logit is not finite.
fn choice(logits: &[f32], given: u32) -> Option<ReferenceChoice> {
    let given = *logits.get(given as usize)?;
    let mut best = (0, f32::NEG_INFINITY);
    for (token, logit) in (0..).zip(logits) {
        if !logit.is_finite() {
            return None;
        }
        if *logit > best.1 {
            best = (token, *logit);
        }
    }
    Some(ReferenceChoice { token: best.0, margin: best.1 - given })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_the_lowest_of_the_highest() {
        let found = choice(&[0.5, 2.0, -1.0, 2.0], 0).unwrap();
        assert_eq!(found, ReferenceChoice { token: 1, margin: 1.5 });
        assert_eq!(choice(&[0.5, 2.0], 1).unwrap().margin, 0.0);
        assert_eq!(choice(&[0.5, f32::NAN], 0), None);
        assert_eq!(choice(&[0.5], 3), None);
    }

    #[test]
    fn architectures_are_found() {
        assert!(!has("GPT2LMHeadModel") && has("GemmaForCausalLM"));
    }
}
