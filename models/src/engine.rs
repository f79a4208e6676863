//! Model backend that runs the engine in this process.

use async_trait::async_trait;
use lumos_engine::{
    DType, DeviceName, Engine, GenerateError, GenerateRequest, LoadError, LoadOptions, MemoryBudget,
    ModelSource,
};
use lumos_tasks::{Completion, Device, Finish, Input, Request, Sampling, Stop};

use super::chat::ChatTemplate;
use super::{ModelBackend, ModelError};

/// Settings for loading engines, the same for all models of a worker.
#[derive(Debug, Clone, Copy)]
pub struct EngineSettings {
    /// Maximum sequences in a batch; the engine's default if `None`.
    pub batch_size: Option<usize>,
    /// Compute threads; all cores if `None`.
    pub threads: Option<usize>,
    /// Data type of the weights in memory.
    pub dtype: DType,
    /// Whether prompts reuse the prefix cache. Does not change results.
    pub reuse_prefixes: bool,
    /// Device that runs the engine. Not part of a model's identity.
    pub device: Device,
    /// The engine's share of a memory limit; the machine's own limit if `None`.
    pub memory: Option<MemoryShare>,
}

/// An engine's share of a memory limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryShare {
    /// Bytes for weights and KV cache.
    pub bytes: u64,
    /// Bytes of these for the KV cache.
    pub cache_bytes: u64,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            batch_size: None,
            threads: None,
            dtype: DType::F32,
            reuse_prefixes: true,
            device: Device::Cpu,
            memory: None,
        }
    }
}

/// Marks that rotary frequencies are computed in full precision. It is part of every identity: earlier
/// versions rounded the frequencies of half-precision folders by default, and omitted the mark if they did.
const FULL_ROTARY: &str = "+full-rotary";

impl EngineSettings {
    /// Returns what a model's results depend on besides its files, as recorded in its identity:
    /// `f32+full-rotary`.
    pub(super) fn computed_in(&self) -> String {
        format!("{}{FULL_ROTARY}", self.dtype)
    }

    /// Returns these settings with the data type that an identity records.
    ///
    /// # Errors
    /// If this version cannot compute the model in that way, because its results would be mixed with
    /// different ones.
    pub(super) fn computing_in(self, computed_in: Option<&str>) -> Result<Self, String> {
        let Some(text) = computed_in else { return Ok(self) };
        let Some(dtype) = text.strip_suffix(FULL_ROTARY) else {
            return Err(format!(
                "planned by an earlier version that could round rotary frequencies (recorded as `{text}`); \
                 this version computes them in full precision, and the two are not mixed in a run; hint: \
                 start a new run with `lumos run --name <NAME>`"
            ));
        };
        Ok(Self { dtype: dtype.parse()?, ..self })
    }

    /// Returns the engine's load options.
    pub fn options(&self) -> LoadOptions {
        let mut options = LoadOptions {
            dtype: self.dtype,
            threads: self.threads,
            reuse_prefixes: self.reuse_prefixes,
            // The files are already hashed for the manifest's identity.
            hash_weights: false,
            memory: self.memory.map(|share| MemoryBudget::new(share.bytes)),
            device: match self.device {
                Device::Auto => DeviceName::Auto,
                Device::Cpu => DeviceName::Cpu,
                Device::Cuda(number) => DeviceName::Cuda(number),
            },
            kv_cache_bytes: self.memory.and_then(|share| usize::try_from(share.cache_bytes).ok()),
            ..LoadOptions::default()
        };
        if let Some(batch_size) = self.batch_size {
            options.max_batch = batch_size.max(1);
            options.max_step_tokens = options.max_step_tokens.max(options.max_batch);
        }
        options
    }
}

/// A loaded model and its chat template.
#[derive(Debug)]
pub(crate) struct EngineBackend {
    pub(crate) engine: Engine,
    pub(crate) chat: ChatTemplate,
}

impl EngineBackend {
    /// Loads a model. Blocks while weights are read and converted.
    pub(crate) fn load(source: ModelSource, settings: EngineSettings) -> Result<Self, LoadError> {
        let chat = match &source {
            ModelSource::Folder(folder) => ChatTemplate::of_folders(&[folder])?,
            // An adapter may have been trained with its own chat template.
            ModelSource::Adapted { base, adapter } => ChatTemplate::of_folders(&[adapter, base])?,
            ModelSource::Gguf(file) => ChatTemplate::in_gguf(file)?,
            ModelSource::Memory(_) | ModelSource::Random { .. } => ChatTemplate::plain(),
        };
        Engine::load(source, settings.options()).map(|engine| Self { engine, chat })
    }
}

#[async_trait]
impl ModelBackend for EngineBackend {
    async fn complete(&self, request: Request) -> Result<Completion, ModelError> {
        let generation = self.engine.generate(engine_request(request, &self.chat)?).await.map_err(
            |error| match error {
                GenerateError::EmptyPrompt
                | GenerateError::PromptTooLong { .. }
                | GenerateError::UnknownToken { .. } => ModelError::Refused(error.to_string()),
                error => ModelError::Failed(error.to_string()),
            },
        )?;
        let count = |tokens: usize| u32::try_from(tokens).ok();
        Ok(Completion {
            text: generation.text,
            finish: match generation.finish {
                lumos_engine::FinishReason::Stop => Finish::Stop,
                lumos_engine::FinishReason::EndOfSequence => Finish::EndOfSequence,
                lumos_engine::FinishReason::Length => Finish::Length,
            },
            prompt_tokens: count(generation.usage.prompt_tokens),
            completion_tokens: count(generation.usage.completion_tokens),
            cached_tokens: count(generation.usage.cached_tokens),
            cost: None,
        })
    }
}

fn engine_request(request: Request, chat: &ChatTemplate) -> Result<GenerateRequest, ModelError> {
    let sampling = match request.sampling {
        Sampling::Greedy => lumos_engine::SamplingParams::GREEDY,
        Sampling::Random { temperature, top_p, top_k } => lumos_engine::SamplingParams {
            temperature,
            top_p,
            top_k: top_k.and_then(|top_k| usize::try_from(top_k).ok()),
            seed: request.seed,
        },
    };
    Ok(GenerateRequest {
        input: match request.input {
            Input::Raw(text) => lumos_engine::Prompt::Text(text),
            Input::Tokens(tokens) => lumos_engine::Prompt::Tokens(tokens),
            Input::Chat(messages) => {
                lumos_engine::Prompt::Text(chat.render(&messages).map_err(ModelError::Failed)?)
            }
        },
        stop: match request.stop {
            Stop::Newline => lumos_engine::StopCondition::Newline,
            Stop::Tokens(tokens) => lumos_engine::StopCondition::Tokens(tokens),
            Stop::Text(text) => lumos_engine::StopCondition::Text(text),
            Stop::Never => lumos_engine::StopCondition::Never,
        },
        max_new_tokens: usize::try_from(request.max_new_tokens).unwrap_or(usize::MAX),
        sampling,
        ignore_eos: false,
        first_logits: 0,
        forced: Vec::new(),
        deadline: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_records_how_to_compute() {
        for dtype in [DType::F32, DType::Bf16, DType::F16] {
            let settings = EngineSettings { dtype, ..EngineSettings::default() };
            let read = EngineSettings::default().computing_in(Some(&settings.computed_in()));
            assert_eq!(read.unwrap().dtype, dtype);
        }
    }

    #[test]
    fn rounded_frequencies_of_earlier_versions_are_refused() {
        for recorded in ["f32", "bf16", "f16", "f8+full-rotary", ""] {
            assert!(EngineSettings::default().computing_in(Some(recorded)).is_err(), "{recorded}");
        }
    }
}
