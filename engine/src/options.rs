//! What to load and how.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::device::DeviceName;
use crate::error::LoadError;
use crate::memory::{MemoryBudget, Reservation};
use crate::random::RandomShape;

/// The type that weights are kept in.
///
/// All arithmetic is float32. With [`DType::Bf16`] or [`DType::F16`] the matrices are rounded to that type and
/// take half the memory; norms, embeddings and activations stay float32. On a GPU so are rounded, and take half the
/// memory, embeddings, keys and values, and what matrices are multiplied with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// 32 bits: exact for every checkpoint.
    #[default]
    F32,
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    F16,
}

impl DType {
    /// Bytes of a value.
    pub(crate) fn width(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        })
    }
}

impl FromStr for DType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "f32" | "float32" => Ok(Self::F32),
            "bf16" | "bfloat16" => Ok(Self::Bf16),
            "f16" | "float16" | "half" => Ok(Self::F16),
            other => Err(format!("unknown dtype {other:?}: expected f32, bf16 or f16")),
        }
    }
}

/// How a model is loaded and run. Start from [`LoadOptions::default`].
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Where the model computes.
    pub device: DeviceName,
    /// Type of the weights in memory.
    pub dtype: DType,
    /// Sequences computed together; further ones wait. [`LoadOptions::AUTO_BATCH`] for as many as the cache's memory
    /// is good for.
    pub max_batch: usize,
    /// Threads that compute; all available cores by default.
    pub threads: Option<usize>,
    /// Longest sequence in tokens, prompt and completion together; the model's own limit by default and at most.
    pub max_sequence_length: Option<usize>,
    /// Prompt tokens of one sequence computed in one step.
    pub prefill_chunk: usize,
    /// Tokens of all sequences computed in one step; at least `max_batch` are.
    pub max_step_tokens: usize,
    /// Requests that may wait for a place; further callers wait for room.
    pub max_waiting: usize,
    /// Positions in one page of the cache: 1, 2, 4, 8, 16 or a multiple of 16. Results do not depend on it. Prefixes
    /// are shared in whole pages; small ones cost more time.
    pub page_size: usize,
    /// Most bytes of keys and values, of running sequences and kept prefixes together. By default what `max_batch`
    /// sequences of full length need (256 MiB at least), but not more than half of the memory that is free.
    pub kv_cache_bytes: Option<usize>,
    /// Whether what a sequence has in common with an earlier one's beginning is taken from the cache. Results do not
    /// depend on it.
    pub reuse_prefixes: bool,
    /// Budget that weights and cache are taken from; without one there is no limit but the machine's.
    pub memory: Option<MemoryBudget>,
    /// Whether the weight files are hashed for [`ModelDescription`](crate::ModelDescription).
    pub hash_weights: bool,
}

impl LoadOptions {
    /// [`max_batch`](Self::max_batch) by the memory of the cache.
    pub const AUTO_BATCH: usize = 0;

    /// Takes a part of the memory budget, if there is one.
    pub(crate) fn reserve(&self, what: &'static str, bytes: u64) -> Result<Option<Reservation>, LoadError> {
        let Some(budget) = &self.memory else { return Ok(None) };
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
            prefill_chunk: 256,
            max_step_tokens: 512,
            max_waiting: 1024,
            page_size: 16,
            kv_cache_bytes: None,
            reuse_prefixes: true,
            memory: None,
            hash_weights: true,
        }
    }
}

/// Where a model comes from.
#[derive(Clone, Debug)]
pub enum ModelSource {
    /// A folder as published on the Hugging Face hub; one without weights but for a single GGUF file is that file.
    Folder(PathBuf),
    /// A GGUF file of the Llama family, as llama.cpp's converter writes them: shape, tokenizer and weights.
    Gguf(PathBuf),
    /// A model with a LoRA adapter of peft's merged into it. The product `scale · B · A` is computed in float32, added
    /// to the stored weights in float32, and rounded once to [`LoadOptions::dtype`].
    Adapted {
        /// The folder of the model.
        base: PathBuf,
        /// The folder of the adapter: `adapter_config.json`, `adapter_model.safetensors` or `adapter_model.bin`, and
        /// perhaps a tokenizer, which then is the model's. [`adapter_base`](crate::adapter_base) says what it was trained on.
        adapter: PathBuf,
    },
    /// A model embedded in the binary.
    Memory(ModelFiles),
    /// A model of a known shape with random weights, made in memory: for measurements. It has no tokenizer.
    Random {
        /// Its sizes.
        shape: RandomShape,
        /// Equal seeds give equal weights.
        seed: u64,
    },
}

impl ModelSource {
    /// The model at a path: a GGUF file where its name ends in `.gguf`, or where it is a folder that has one and no other
    /// weights but an adapter's; else the folder, whether or not it is there.
    ///
    /// # Errors
    /// [`LoadError::SeveralModels`] when a folder has several GGUF files and no other weights.
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
    /// [`LoadError::UnsupportedAdapter`] when one of them is a GGUF file.
    pub fn adapted(base: &Path, adapter: &Path) -> Result<Self, LoadError> {
        crate::load::check_adapted(base, adapter)?;
        Ok(Self::Adapted { base: base.to_owned(), adapter: adapter.to_owned() })
    }
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
