//! Errors of loading ([`LoadError`]) and of generation ([`GenerateError`]), each with the affected file and a
//! remedy.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use crate::device::DeviceName;

/// Errors of loading a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The folder does not exist.
    #[error(
        "model folder {folder} does not exist; hint: pass the folder with config.json, the weights and the \
         tokenizer"
    )]
    FolderMissing {
        /// The folder that was given.
        folder: PathBuf,
    },
    /// The path exists but cannot be listed.
    #[error(
        "failed to read model folder {folder}: {source}; hint: check that it is a folder, and its permissions"
    )]
    FolderUnreadable {
        /// The folder that was given.
        folder: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A file that the model needs is missing.
    #[error("{folder} has no {expected}; hint: {remedy}")]
    FileMissing {
        /// The model's folder.
        folder: PathBuf,
        /// The expected file, or the alternatives of which one is required.
        expected: String,
        /// How to fix it.
        remedy: String,
    },
    /// A folder contains several models.
    #[error("{folder} has several GGUF files ({}); hint: name one of them", files.join(", "))]
    SeveralModels {
        /// The folder.
        folder: PathBuf,
        /// The files.
        files: Vec<String>,
    },
    /// A folder contains a weight file, and an index that names others.
    #[error(
        "{folder} has {file} and {file}.index.json, which names other files; hint: remove the one that does not \
         belong to the model (transformers reads {file})"
    )]
    SeveralWeights {
        /// The folder.
        folder: PathBuf,
        /// The weight file.
        file: String,
    },
    /// A file exists but cannot be read.
    #[error("failed to read {file}: {source}; hint: check its permissions")]
    FileUnreadable {
        /// The file.
        file: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("failed to write {file}: {source}; hint: check its permissions and the free disk space")]
    FileNotWritten {
        /// The file or its folder.
        file: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A JSON file does not parse.
    #[error("{file} is not valid: {reason}; hint: copy the file again from where the model was published")]
    InvalidJson {
        /// The file.
        file: PathBuf,
        /// Position and kind of the error.
        reason: String,
    },
    /// The configuration parses but is invalid.
    #[error("{file}: {reason}; hint: compare it with the published config.json of this model")]
    InvalidConfig {
        /// The file.
        file: PathBuf,
        /// The invalid value and the reason.
        reason: String,
    },
    /// The model type is not supported.
    #[error("unsupported model {file}: {reason}")]
    Unsupported {
        /// The configuration file.
        file: PathBuf,
        /// The unsupported property.
        reason: String,
    },
    /// The family is not supported.
    #[error(
        "unsupported model {file}: field `architectures`: `{architecture}` is not supported: expected one of \
         {supported}; hint: use a model of one of them, or serve this one with another program and pass \
         openai-chat:<model>@<base url>"
    )]
    UnsupportedFamily {
        /// The configuration file.
        file: PathBuf,
        /// The architecture's name in it.
        architecture: String,
        /// The supported names.
        supported: String,
    },
    /// Another backend cannot load the model, or computes something else than transformers with it.
    #[error("{file}: {reason}; hint: {hint}")]
    UnsupportedByBackend {
        /// The file.
        file: PathBuf,
        /// The field with its value, and the difference.
        reason: String,
        /// What to do instead.
        hint: String,
    },
    /// The adapter type is not supported for merging.
    #[error(
        "{file}: {reason}; hint: merge the adapter with peft (merge_and_unload, then save_pretrained) and pass \
         the folder that peft writes"
    )]
    UnsupportedAdapter {
        /// The adapter's configuration or weights, or the base that was given.
        file: PathBuf,
        /// The field or tensor, with its value.
        reason: String,
    },
    /// An adapter whose configuration, weights and base do not match.
    #[error(
        "{file}: {reason}; the adapter belongs to another base model, or its files do not match each other"
    )]
    InvalidAdapter {
        /// The adapter's configuration or weights.
        file: PathBuf,
        /// The field or tensor, and the reason.
        reason: String,
    },
    /// A weight file is truncated or corrupt.
    #[error("{file}: {reason}; the file is damaged or incomplete; hint: copy it again")]
    InvalidWeights {
        /// The file.
        file: PathBuf,
        /// The reader's error.
        reason: String,
    },
    /// No weight file contains a tensor that the configuration requires.
    #[error(
        "tensor {name} not found in {file}; the weights do not match this configuration, or a shard is missing; hint: \
         copy config.json and all weight files of one checkpoint into the folder"
    )]
    MissingTensor {
        /// The tensor's name.
        name: String,
        /// The file or folder searched.
        file: PathBuf,
    },
    /// Two weight files contain the same tensor.
    #[error(
        "{file}: tensor {name} is also in {other}; hint: copy the index and all weight files of one checkpoint into \
         the folder"
    )]
    DuplicateTensor {
        /// The tensor's name.
        name: String,
        /// A weight file.
        file: PathBuf,
        /// Another one.
        other: PathBuf,
    },
    /// A tensor's shape differs from the configuration.
    #[error(
        "{file}: tensor {name} has shape {found:?}, but the configuration requires {expected:?}; configuration \
         and weights do not match; hint: copy config.json and all weight files of one checkpoint into the folder"
    )]
    WrongShape {
        /// The weight file.
        file: PathBuf,
        /// The tensor's name.
        name: String,
        /// The shape that the configuration implies.
        expected: Vec<usize>,
        /// The shape in the file.
        found: Vec<usize>,
    },
    /// The tokenizer file does not parse or is unsupported.
    #[error("{file}: {reason}; hint: copy the tokenizer again from where the model was published")]
    InvalidTokenizer {
        /// The file.
        file: PathBuf,
        /// The reason.
        reason: String,
    },
    /// There is not enough memory for the tokenizer, whose file is valid as far as it was read.
    #[error("{file}: not enough memory for the tokenizer: {reason}")]
    TokenizerMemory {
        /// The file.
        file: PathBuf,
        /// The error of the library.
        reason: String,
    },
    /// The tokenizer has ids without a row in the embedding.
    #[error(
        "{file}: the tokenizer has {pieces} pieces but the embedding only {rows} rows; \
         the tokenizer belongs to another model"
    )]
    VocabularyTooLarge {
        /// The tokenizer file.
        file: PathBuf,
        /// Number of ids that the tokenizer can produce.
        pieces: usize,
        /// Rows of the embedding.
        rows: usize,
    },
    /// An option has an invalid value.
    #[error("invalid load option: {reason}")]
    InvalidOption {
        /// The option and its valid values.
        reason: String,
    },
    /// The weights or the KV cache do not fit in the memory budget.
    #[error(
        "the model's {what} need {needed} bytes, but only {free} of {total} bytes of the memory budget are \
         free; hint: raise the budget, unload another model, or choose a smaller dtype or cache"
    )]
    TooLargeForMemory {
        /// What does not fit: weights or cache.
        what: &'static str,
        /// Required bytes.
        needed: u64,
        /// Free bytes of the budget.
        free: u64,
        /// Total bytes of the budget.
        total: u64,
    },
    /// No memory is left for the KV cache of a model whose weights fit.
    #[error(
        "too little memory is free on {device} for keys and values, of which a page needs {page} bytes; hint: end other \
         programs, or raise the memory limit of the container"
    )]
    NoMemoryForCache {
        /// The device.
        device: DeviceName,
        /// Bytes of one page.
        page: u64,
    },
    /// A GPU's free memory does not hold a model.
    #[error(
        "the model's {what} need {needed} bytes, but only {free} bytes of the memory of {device} are free; hint: end \
         other programs on this GPU (`nvidia-smi` lists them), or choose a smaller model, dtype, batch or --memory"
    )]
    TooLargeForDevice {
        /// The device.
        device: DeviceName,
        /// What does not fit: weights, buffers, or keys and values.
        what: &'static str,
        /// Required bytes.
        needed: u64,
        /// Bytes that the engine may use.
        free: u64,
    },
    /// The device cannot be used.
    #[error("cannot use device {device}: {reason}")]
    Device {
        /// The requested device.
        device: DeviceName,
        /// The cause, and how to fix it.
        reason: String,
    },
    /// Threads could not be started.
    #[error(
        "failed to start the engine's threads: {reason}; hint: lower --threads, or raise the limits of \
         memory and processes"
    )]
    Thread {
        /// The system's error.
        reason: String,
    },
}

impl LoadError {
    /// Converts the error of a JSON file that does not parse.
    pub(crate) fn json(file: &Path) -> impl Fn(serde_json::Error) -> Self {
        move |error| Self::InvalidJson { file: file.to_owned(), reason: error.to_string() }
    }

    /// Converts the error of a file that cannot be read.
    pub(crate) fn unreadable(file: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::FileUnreadable { file: file.to_owned(), source }
    }

    /// Converts the error of threads that cannot be started.
    pub(crate) fn thread(error: impl std::error::Error) -> Self {
        Self::Thread { reason: error.to_string() }
    }

    /// Whether the machine currently lacks memory or threads. In this case the model and its files are valid.
    pub fn is_exhaustion(&self) -> bool {
        match self {
            Self::Thread { .. } | Self::TokenizerMemory { .. } | Self::NoMemoryForCache { .. } => true,
            Self::FolderUnreadable { source, .. } | Self::FileUnreadable { source, .. } => {
                source.kind() == io::ErrorKind::OutOfMemory
            }
            _ => false,
        }
    }
}

/// Runs code of a library that may panic on invalid files, and describes its error or panic.
pub(crate) fn caught<T, E: std::fmt::Display>(
    library: &str,
    run: impl FnOnce() -> Result<T, E>,
) -> Result<T, String> {
    let result = catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic_message(&*panic).unwrap_or("panic without a message");
        format!("the {library} library failed: {text}")
    });
    result?.map_err(|error| error.to_string())
}

/// The message of a panic that was caught, if it has one.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> Option<&str> {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
}

/// Errors of generating a sequence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// The input encodes to zero tokens.
    #[error("the prompt is empty; a model without a beginning-of-sequence token needs at least one token")]
    EmptyPrompt,
    /// The prompt leaves no room for a new token.
    #[error(
        "the prompt has {tokens} tokens, but the model accepts fewer than {limit}; hint: shorten the prompt"
    )]
    PromptTooLong {
        /// Tokens in the prompt.
        tokens: usize,
        /// Maximum sequence length, prompt and completion together.
        limit: usize,
    },
    /// The tokenizer could make a text of the input that takes too much memory.
    #[error(
        "the text has {bytes} bytes, but the tokenizer accepts at most {limit}, because it can expand a text up to \
         {expansion} times; hint: shorten the prompt"
    )]
    TextTooLong {
        /// Bytes of the text, or of both texts of a pair.
        bytes: usize,
        /// Bytes of the longest text that the tokenizer encodes.
        limit: usize,
        /// An upper bound of the bytes that one byte of a text becomes.
        expansion: usize,
    },
    /// The sequence would not fit in the KV cache even on its own.
    #[error(
        "the sequence may need {needed} bytes of keys and values, but the cache has {budget}; hint: lower \
         max_new_tokens, shorten the prompt or raise the memory of the cache"
    )]
    TooLargeForMemory {
        /// Bytes of prompt and completion at full length.
        needed: usize,
        /// Size of the KV cache in bytes.
        budget: usize,
    },
    /// A token id of the input, or a stop id, has no embedding.
    #[error("token {token} is outside the vocabulary of {vocabulary}")]
    UnknownToken {
        /// The id.
        token: u32,
        /// Number of ids in the vocabulary.
        vocabulary: usize,
    },
    /// Temperature, top-p or top-k out of range.
    #[error("invalid sampling: {0}")]
    InvalidSampling(String),
    /// The stop condition is invalid.
    #[error("invalid stop condition: {0}")]
    InvalidStop(String),
    /// The tokenizer failed to encode the text.
    #[error("failed to encode or decode the text: {0}")]
    Tokenizer(String),
    /// The deadline passed before the sequence finished.
    #[error("the deadline passed after {completion_tokens} generated tokens")]
    DeadlineExceeded {
        /// Tokens generated before the deadline.
        completion_tokens: usize,
    },
    /// The forward pass of this sequence's batch failed.
    #[error("the forward pass failed: {0}")]
    Forward(String),
    /// The GPU failed for good; the engine has ended.
    #[error("{0}")]
    DeviceLost(String),
    /// The model computed logits that are not finite.
    #[error("the model's logits are not finite after {position} tokens; its weights are damaged or overflow")]
    NotFinite {
        /// Number of tokens before these logits.
        position: usize,
    },
    /// The engine was shut down.
    #[error("the engine was shut down")]
    ShutDown,
}
