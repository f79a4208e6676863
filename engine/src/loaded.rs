//! Loads an opened model onto a device: estimates its memory, reserves it, reads the weights and hashes the files.
//!
//! [`Opened::load`] returns [`Loaded`], from which [`Engine`](crate::Engine) starts its scheduler. Its
//! [`ModelDescription`] is for manifests and reports: architecture, types, and hashes of the files that the model was
//! read from. [`Footprint`] is the memory that a model would need.

use lumos_kernels::DType;
use serde::{Deserialize, Serialize};

use crate::backend::Backend;
use crate::cache::{PageLayout, TILE};
use crate::device::DeviceName;
use crate::error::LoadError;
use crate::load::block::ModelConfig;
use crate::load::tensors::EMBEDDING;
use crate::load::{self, Opened, WeightFile};
use crate::memory::Reservation;
use crate::model::{Embedding, Matrices};
use crate::options::{LoadOptions, ModelSource};
use crate::tokenizer::Tokenizer;

/// All parts of a loaded model.
pub(crate) struct Loaded {
    pub(crate) config: ModelConfig,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) model: Backend,
    pub(crate) description: ModelDescription,
    pub(crate) matrices: Matrices,
    /// Size of the weights in memory, in bytes.
    pub(crate) weight_bytes: u64,
    /// The weights' part of the memory budget.
    pub(crate) reservation: Option<Reservation>,
}

/// Properties of a loaded model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelDescription {
    /// Class name in config.json, such as `LlamaForCausalLM`.
    pub architecture: String,
    /// Number of parameters.
    pub parameters: u64,
    /// Rows of the embedding; the tokenizer may have fewer ids.
    pub vocabulary: usize,
    /// Type of the weights in memory, except quantized ones.
    pub dtype: DType,
    /// Quantization formats of the matrices, by ggml's names, the format of most values first: `Q4_K`, or
    /// `Q4_K + Q6_K`. For AWQ and GPTQ the format in the files, `AWQ 4-bit`; in memory these weights have
    /// `dtype`. `None` if the matrices are not quantized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantization: Option<String>,
    /// The files that the weights were read from; an adapter's configuration and weights come last.
    pub weight_files: Vec<WeightFile>,
    /// SHA-256 of the tokenizer file, in hexadecimal.
    pub tokenizer_sha256: String,
    /// Maximum sequence length in tokens, prompt and completion together.
    pub context_length: usize,
}

/// Memory requirements of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Size of the weights in their type, in bytes.
    pub weight_bytes: u64,
    /// Size of a GPU's buffers, in bytes. On the CPU, that of the logits of drafts, which are verified together; 0 without
    /// [`speculation`](LoadOptions::speculation).
    pub buffer_bytes: u64,
    /// KV cache size of one position of a sequence, in bytes.
    pub cache_bytes_per_token: u64,
    /// Maximum sequence length in tokens.
    pub context_length: usize,
}

impl Footprint {
    /// Estimates a model loaded with the options: its sizes on their device, in their dtype. Reads its configuration
    /// and the headers of its weight files.
    ///
    /// # Errors
    /// The same as [`Engine::load`](crate::Engine::load), except errors of reading weights and of the device.
    pub fn of(source: &ModelSource, options: &LoadOptions) -> Result<Self, LoadError> {
        let options = LoadOptions { device: options.device.resolved(), ..options.clone() };
        load::open(source)?.footprint(&options)
    }

    /// KV cache size of `sequences` sequences of full length, in bytes. With less than the size for one
    /// sequence, the engine would reject the longest requests.
    pub fn cache_bytes(&self, sequences: usize) -> u64 {
        let positions = self.context_length.saturating_mul(sequences);
        self.cache_bytes_per_token.saturating_mul(positions as u64)
    }
}

impl Opened {
    /// The memory requirements of the model.
    fn footprint(&self, options: &LoadOptions) -> Result<Footprint, LoadError> {
        let (config, device, dtype) = (&self.config, options.device, options.dtype);
        let (rows, matrices) = self.matrices(device, dtype)?;
        let layout =
            Backend::layout(config, &LoadOptions { page_size: TILE, ..options.clone() }, matrices.format);
        Ok(Footprint {
            weight_bytes: Backend::weight_bytes(device, config, rows, dtype, &matrices),
            buffer_bytes: Backend::buffer_bytes(config, rows, options),
            cache_bytes_per_token: (layout.bytes() / TILE) as u64,
            context_length: config.context_length,
        })
    }

    /// Rows of the embedding, and the sizes of the matrices. On a GPU, blocks are widened to floats, and all rows are
    /// computed through the last layer.
    pub(crate) fn matrices(&self, device: DeviceName, dtype: DType) -> Result<(usize, Matrices), LoadError> {
        let rows = self.weights.rows(EMBEDDING, self.config.hidden_size)?;
        let mut matrices = Matrices::new(&self.config, rows, dtype);
        let unread = (!self.config.tied_embeddings).then_some(EMBEDDING);
        if matches!(device, DeviceName::Cuda(_)) {
            matrices.predicted = 0;
            return Ok((rows, matrices));
        }
        matrices.embedding = Embedding::bytes(&self.weights, rows, self.config.hidden_size)?;
        if let Some(tensors) = self.weights.gguf()
            && let Some(bytes) = tensors.quantized_bytes(unread, dtype.width())
        {
            (matrices.bytes, matrices.total_bytes) = bytes;
            matrices.format = tensors.most_common_format();
        }
        Ok((rows, matrices))
    }

    /// Reads the weights. `options` must name a concrete device, not
    /// [`DeviceName::Auto`](crate::DeviceName::Auto).
    pub(crate) fn load(mut self, options: &LoadOptions) -> Result<Loaded, LoadError> {
        let (rows, matrices) = self.matrices(options.device, options.dtype)?;
        let weight_bytes =
            Backend::weight_bytes(options.device, &self.config, rows, options.dtype, &matrices);
        let reservation = options.reserve("weights", weight_bytes)?;
        self.tokenizer.check_piece_rows(rows)?;
        let (model, weight_files) = std::thread::scope(|scope| {
            let opened = &self;
            let hashes = std::thread::Builder::new()
                .spawn_scoped(scope, move || opened.weight_files(options.hash_weights))
                .map_err(LoadError::thread)?;
            let model = Backend::load(&self.config, &self.weights, options, weight_bytes)?;
            let failed = |_| LoadError::Thread { reason: "hashing the weights failed".to_owned() };
            Ok::<_, LoadError>((model, hashes.join().map_err(failed)??))
        })?;
        if let Some(limit) = options.max_sequence_length {
            self.config.context_length = self.config.context_length.min(limit);
        }
        let description = ModelDescription {
            architecture: self.config.architecture.clone(),
            parameters: self.weights.parameters(),
            vocabulary: rows,
            dtype: options.dtype,
            quantization: match self.weights.gguf() {
                Some(tensors) => tensors.quantization(),
                None => self.weights.packed_format(),
            },
            weight_files,
            tokenizer_sha256: self.tokenizer.sha256().to_owned(),
            context_length: self.config.context_length,
        };
        let Self { config, tokenizer, .. } = self;
        Ok(Loaded { config, tokenizer, model, description, matrices, weight_bytes, reservation })
    }
}

/// Parses a config.json and computes the sizes of its model; for a fuzz target. Returns the number of its tensors.
///
/// # Panics
/// Panics if sizes that the checks accept overflow.
pub fn fuzz_config(bytes: &[u8]) -> usize {
    let Ok(config) = load::fuzzing::config(bytes) else { return 0 };
    let rows = 8;
    for dtype in [DType::F32, DType::Bf16] {
        let matrices = Matrices::new(&config, rows, dtype);
        Backend::weight_bytes(DeviceName::Cpu, &config, rows, dtype, &matrices);
        let storage = Backend::storage(DeviceName::Cpu, dtype, None);
        PageLayout { shape: config.key_values(), positions: TILE, storage }.bytes();
    }
    config.tensors(rows).len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::memory::MemoryBudget;
    use crate::options::LoadOptions;
    use crate::random::RandomShape;
    use crate::speculation::Speculation;

    #[test]
    fn what_is_foreseen_is_what_is_taken() {
        for (dtype, speculation) in [(DType::F32, Speculation::Off), (DType::F16, Speculation::Lookup)] {
            let source = ModelSource::Random { shape: RandomShape::With1M, seed: 1 };
            let options = LoadOptions { dtype, speculation, ..LoadOptions::default() };
            let footprint = Footprint::of(&source, &options).unwrap();
            let cache = footprint.cache_bytes(2);
            let budget = MemoryBudget::new(footprint.weight_bytes + footprint.buffer_bytes + cache);
            let options = LoadOptions {
                memory: Some(budget.clone()),
                kv_cache_bytes: Some(usize::try_from(cache).unwrap()),
                ..options
            };
            let engine = Engine::load(source, options).unwrap();
            assert_eq!(engine.weight_bytes(), footprint.weight_bytes);
            assert_eq!(budget.free(), 0);
            drop(engine);
            assert_eq!(budget.used(), 0);
        }
    }

    /// A step has 512 rows, and a sequence one row and at most 16 for its draft. Each row has 1,024 logits.
    #[test]
    fn the_logits_of_drafts_are_foreseen() {
        let source = ModelSource::Random { shape: RandomShape::With1M, seed: 1 };
        let bytes = |speculation, max_batch, max_step_tokens| {
            let options = LoadOptions { speculation, max_batch, max_step_tokens, ..LoadOptions::default() };
            Footprint::of(&source, &options).unwrap().buffer_bytes
        };
        for speculation in [Speculation::Lookup, Speculation::Auto] {
            let rows = |max_batch, max_step_tokens| bytes(speculation, max_batch, max_step_tokens) / 4096;
            assert_eq!((rows(1, None), rows(4, None), rows(32, None)), (17, 68, 512));
            assert_eq!((rows(LoadOptions::AUTO_BATCH, None), rows(600, None)), (512, 600));
            assert_eq!((rows(4, Some(9)), rows(4, Some(1))), (9, 4));
        }
        assert_eq!(bytes(Speculation::Off, 32, None), 0);
        let options = LoadOptions { speculation: Speculation::Auto, ..LoadOptions::default() };
        assert_eq!(options.draft_logit_bytes(1024), 512 * 4096);
        let options = LoadOptions { device: DeviceName::Cuda(0), ..options };
        assert_eq!(options.draft_logit_bytes(1024), 0, "a GPU verifies no drafts");
    }

    #[test]
    fn seven_billion_parameters_in_half_precision() {
        let source = ModelSource::Random { shape: RandomShape::Llama2With7B, seed: 1 };
        let on = |device| {
            let options = LoadOptions { device, dtype: DType::F16, ..LoadOptions::default() };
            Footprint::of(&source, &options).unwrap()
        };
        let footprint = on(DeviceName::Cpu);
        // A file has 13.5 GB; the embeddings of random weights are float32 in memory.
        assert_eq!(footprint.weight_bytes / 100_000_000, 137);
        assert_eq!(footprint.cache_bytes_per_token, 2 * 32 * 4096 * 4);
        assert_eq!((footprint.context_length, footprint.buffer_bytes), (4096, 0));
        // A GPU stores embeddings, keys and values in the type of the weights.
        let footprint = on(DeviceName::Cuda(0));
        assert_eq!(footprint.weight_bytes / 100_000_000, 134);
        assert_eq!(footprint.cache_bytes_per_token, 2 * 32 * 4096 * 2);
        // Steps of 8192 tokens: 1.7 GB.
        assert_eq!(footprint.buffer_bytes / 100_000_000, 17);
    }
}
