//! [`ModelSource`]: what to load. [`LoadOptions`]: how to load and run it.
//!
//! A source is a Hugging Face folder, a GGUF file, a base with a LoRA adapter, a model embedded in the
//! binary, or random weights. The options select device, weight type ([`DType`]), batch size, KV cache size
//! and memory budget.

use std::path::{Path, PathBuf};

use lumos_kernels::{DType, instruction_limit};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::cache::{TILE, page_size_is_supported};
use crate::device::DeviceName;
use crate::error::LoadError;
use crate::memory::{MemoryBudget, Reservation};
use crate::random::RandomShape;
use crate::speculation::{LONGEST_DRAFT, Speculation};

/// Largest batch that [`LoadOptions::AUTO_BATCH`] selects.
pub(crate) const MOST_AUTO_BATCH: usize = 256;

/// How a model is loaded and run. Start from [`LoadOptions::default`].
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The device that computes.
    pub device: DeviceName,
    /// Type of the weights in memory.
    pub dtype: DType,
    /// Maximum number of sequences computed together; further ones wait. [`LoadOptions::AUTO_BATCH`] selects
    /// the number by the size of the KV cache.
    pub max_batch: usize,
    /// Number of compute threads; all available cores by default.
    pub threads: Option<usize>,
    /// Maximum sequence length in tokens, prompt and completion together. The default and upper limit is the
    /// model's context length.
    pub max_sequence_length: Option<usize>,
    /// Maximum number of prompt tokens of one sequence per step; by default 256 on the CPU and 2048 on a GPU.
    pub prefill_chunk: Option<usize>,
    /// Maximum number of tokens of all sequences per step, at least `max_batch`; by default 512 on the CPU and 8192 on
    /// a GPU, whose time per step hardly depends on it below that.
    pub max_step_tokens: Option<usize>,
    /// Maximum number of waiting requests; further callers wait to submit.
    pub max_waiting: usize,
    /// Positions per KV cache page: 1, 2, 4, 8, 16 or a multiple of 16. Results do not depend on it. Whole pages
    /// are shared, and parts of pages are copied; small pages cost more time.
    pub page_size: usize,
    /// Maximum size of the KV cache in bytes, for running sequences and cached prefixes together. By default
    /// the size that `max_batch` sequences of full length need (at least 256 MiB), but at most half of the
    /// free memory; on a GPU, at most what weights and buffers leave free.
    pub kv_cache_bytes: Option<usize>,
    /// Whether a sequence reuses cached prefixes of earlier sequences. Results do not depend on it.
    pub reuse_prefixes: bool,
    /// Whether drafts of the next tokens are verified together. Results do not depend on it.
    pub speculation: Speculation,
    /// The budget of the device's memory that weights, KV cache, a GPU's buffers and the logits of drafts are reserved
    /// from; without one, only the device limits memory.
    pub memory: Option<MemoryBudget>,
    /// Whether the weight files are hashed for [`ModelDescription`](crate::ModelDescription).
    pub hash_weights: bool,
}

impl LoadOptions {
    /// Selects [`max_batch`](Self::max_batch) by the size of the KV cache.
    pub const AUTO_BATCH: usize = 0;

    /// Maximum number of sequences computed together, also if it is selected by the size of the KV cache.
    pub fn most_sequences(&self) -> usize {
        if self.max_batch == Self::AUTO_BATCH { MOST_AUTO_BATCH } else { self.max_batch }
    }

    /// Checks the values that loading relies on.
    ///
    /// # Errors
    /// [`LoadError::InvalidOption`] if pages have a size that is not supported, or if the variable `LUMOS_CPU` is invalid.
    pub(crate) fn check(&self) -> Result<(), LoadError> {
        instruction_limit().map_err(|reason| LoadError::InvalidOption { reason })?;
        let size = self.page_size;
        if page_size_is_supported(size) {
            return Ok(());
        }
        let reason = format!("page_size is {size}: expected 1, 2, 4, 8 or a multiple of {TILE}");
        Err(LoadError::InvalidOption { reason })
    }

    /// Maximum numbers of prompt tokens of one sequence, and of tokens of all sequences, per step on the device.
    pub(crate) fn step_limits(&self) -> (usize, usize) {
        let (chunk, tokens) = match self.device {
            DeviceName::Cuda(_) => (2048, 8192),
            DeviceName::Auto | DeviceName::Cpu => (256, 512),
        };
        (self.prefill_chunk.unwrap_or(chunk), self.max_step_tokens.unwrap_or(tokens))
    }

    /// Size in bytes of the logits of a step with drafts on the CPU, for a vocabulary of this size. 0 on a GPU, and
    /// without [`speculation`](Self::speculation).
    pub fn draft_logit_bytes(&self, vocabulary: usize) -> u64 {
        let is_on_gpu = matches!(self.device.resolved(), DeviceName::Cuda(_));
        if self.speculation == Speculation::Off || is_on_gpu {
            return 0;
        }
        let sequences = self.most_sequences();
        // The last token of a sequence and each token of its draft have logits, as far as a step has room for them.
        let rows = self.step_limits().1.max(sequences).min(sequences.saturating_mul(LONGEST_DRAFT + 1));
        rows.saturating_mul(vocabulary).saturating_mul(size_of::<f32>()) as u64
    }

    /// Reserves a part of the memory budget, if there is a budget. It is a budget of the device's memory.
    pub(crate) fn reserve(&self, what: &'static str, bytes: u64) -> Result<Option<Reservation>, LoadError> {
        let Some(budget) = self.memory.as_ref() else { return Ok(None) };
        let too_large = || LoadError::TooLargeForMemory {
            what,
            needed: bytes,
            free: budget.free(),
            total: budget.total(),
        };
        budget.reserve(bytes).map(Some).ok_or_else(too_large)
    }
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            device: DeviceName::Cpu,
            dtype: DType::F32,
            max_batch: 32,
            threads: None,
            max_sequence_length: None,
            prefill_chunk: None,
            max_step_tokens: None,
            max_waiting: 1024,
            page_size: 16,
            kv_cache_bytes: None,
            reuse_prefixes: true,
            speculation: Speculation::Off,
            memory: None,
            hash_weights: true,
        }
    }
}

/// Number of compute threads: all available cores by default.
pub(crate) fn thread_count(threads: Option<usize>) -> usize {
    threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}

/// Starts compute threads, whose names begin with `name`.
pub(crate) fn thread_pool(threads: Option<usize>, name: &'static str) -> Result<ThreadPool, LoadError> {
    ThreadPoolBuilder::new()
        .num_threads(thread_count(threads).max(1))
        .thread_name(move |index| format!("{name}-{index}"))
        .build()
        .map_err(LoadError::thread)
}

/// The source of a model.
#[derive(Clone, Debug)]
pub enum ModelSource {
    /// A folder as published on the Hugging Face hub. A folder whose only weights are a single GGUF file
    /// stands for that file.
    Folder(PathBuf),
    /// A GGUF file of a supported architecture, as written by llama.cpp's converter: shape, tokenizer and weights.
    Gguf(PathBuf),
    /// A model with a LoRA adapter of peft merged into it. The product `scale · B · A` is computed in
    /// float32, added to the stored weights in float32, and rounded once to [`LoadOptions::dtype`].
    Adapted {
        /// The folder of the model.
        base: PathBuf,
        /// The folder of the adapter: `adapter_config.json`, `adapter_model.safetensors` or
        /// `adapter_model.bin`, and optionally a tokenizer, which replaces the model's.
        /// [`adapter_base`](crate::adapter_base) returns the model that the adapter was trained on.
        adapter: PathBuf,
    },
    /// A model embedded in the binary.
    Memory(ModelFiles),
    /// A model of a known shape with random weights, generated in memory, for benchmarks. It has no
    /// tokenizer.
    Random {
        /// Sizes of the model.
        shape: RandomShape,
        /// Equal seeds give equal weights.
        seed: u64,
    },
}

impl ModelSource {
    /// The model at a path: a GGUF file if its name ends in `.gguf`, or if it is a folder that contains one
    /// and no other weights except an adapter's; otherwise the folder, whether or not it exists.
    ///
    /// # Errors
    /// [`LoadError::SeveralModels`] if a folder has several GGUF files and no other weights.
    pub fn of_path(path: &Path) -> Result<Self, LoadError> {
        let ends = |name: &str, extension: &str| name.len() > extension.len() && name.ends_with(extension);
        if path.file_name().is_some_and(|name| ends(&name.to_string_lossy(), ".gguf")) && !path.is_dir() {
            return Ok(Self::Gguf(path.to_owned()));
        }
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        let names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        let is_other = |name: &String| {
            let is_safetensors = ends(name, ".safetensors") && name != "adapter_model.safetensors";
            is_safetensors || (name.starts_with("pytorch_model") && ends(name, ".bin"))
        };
        let mut files: Vec<String> = names.iter().filter(|name| ends(name, ".gguf")).cloned().collect();
        files.sort_unstable();
        match &files[..] {
            _ if names.iter().any(is_other) => Ok(Self::Folder(path.to_owned())),
            [] => Ok(Self::Folder(path.to_owned())),
            [file] => Ok(Self::Gguf(path.join(file))),
            _ => Err(LoadError::SeveralModels { folder: path.to_owned(), files }),
        }
    }

    /// A model with an adapter.
    ///
    /// # Errors
    /// [`LoadError::UnsupportedAdapter`] if one of them is a GGUF file.
    pub fn adapted(base: &Path, adapter: &Path) -> Result<Self, LoadError> {
        check_adapted(base, adapter)?;
        Ok(Self::Adapted { base: base.to_owned(), adapter: adapter.to_owned() })
    }
}

/// Rejects GGUF files, and folders of them, as an adapter's base and as an adapter.
pub(crate) fn check_adapted(base: &Path, adapter: &Path) -> Result<(), LoadError> {
    let refuse = |file: &Path, reason: &str| {
        Err(LoadError::UnsupportedAdapter { file: file.to_owned(), reason: reason.to_owned() })
    };
    let is_gguf =
        |path: &Path| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    let holds_gguf = || {
        matches!(ModelSource::of_path(base), Ok(ModelSource::Gguf(_)) | Err(LoadError::SeveralModels { .. }))
    };
    if is_gguf(base) || holds_gguf() {
        let reason = "an adapter cannot be merged into the weights of a GGUF file; pass the folder of the \
            float checkpoint";
        return refuse(base, reason);
    }
    if is_gguf(adapter) {
        return refuse(adapter, "an adapter must be a folder as peft saves it, not a GGUF file");
    }
    Ok(())
}

/// The files of a model embedded in the binary.
#[derive(Clone, Copy, Debug)]
pub struct ModelFiles {
    /// config.json.
    pub config: &'static [u8],
    /// tokenizer.json.
    pub tokenizer: &'static [u8],
    /// model.safetensors.
    pub weights: &'static [u8],
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch of prompts is read before the first of them has got its reply, so that they are decoded together.
    #[test]
    fn steps_of_a_gpu_hold_large_batches() {
        let (prompts, prompt_tokens, new_tokens) = (256, 256, 64);
        let steps = |device| {
            let (chunk, tokens) = LoadOptions { device, ..LoadOptions::default() }.step_limits();
            assert!(chunk <= tokens);
            usize::div_ceil(prompts * prompt_tokens, tokens)
        };
        assert!(steps(DeviceName::Cuda(0)) < new_tokens && steps(DeviceName::Cpu) > new_tokens);
        let options =
            LoadOptions { prefill_chunk: Some(7), max_step_tokens: Some(9), ..LoadOptions::default() };
        assert_eq!(LoadOptions { device: DeviceName::Cuda(1), ..options }.step_limits(), (7, 9));
    }

    /// A budget limits what engines take of a GPU's memory, as it does on the CPU.
    #[test]
    fn a_budget_counts_on_every_device() {
        for device in [DeviceName::Cpu, DeviceName::Cuda(0)] {
            let memory = Some(MemoryBudget::new(100));
            let options = LoadOptions { device, memory, ..LoadOptions::default() };
            let taken = options.reserve("weights", 60).unwrap();
            assert!(taken.is_some(), "{device}");
            let refused = options.reserve("keys and values", 41).unwrap_err();
            assert!(
                matches!(refused, LoadError::TooLargeForMemory { needed: 41, free: 40, .. }),
                "{refused}"
            );
            drop(taken);
            assert!(options.reserve("weights", 100).is_ok());
        }
    }
}
