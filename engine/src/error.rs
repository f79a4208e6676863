//! What can go wrong, with the file concerned and a remedy.

use std::io;
use std::path::PathBuf;

use crate::device::DeviceName;

/// Why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The folder does not exist.
    #[error(
        "model folder {} does not exist; hint: pass the folder with config.json, the weights and the \
         tokenizer",
        folder.display()
    )]
    FolderMissing {
        /// The folder asked for.
        folder: PathBuf,
    },
    /// The path exists but cannot be listed.
    #[error(
        "failed to read model folder {}: {source}; hint: check that it is a folder, and its permissions",
        folder.display()
    )]
    FolderUnreadable {
        /// The folder asked for.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file that the model needs is not there.
    #[error("{} has no {expected}; hint: {remedy}", folder.display())]
    FileMissing {
        /// The model's folder.
        folder: PathBuf,
        /// The file, or the files one of which would do.
        expected: String,
        /// What to do about it.
        remedy: String,
    },
    /// A folder holds several models.
    #[error("{} has several GGUF files ({}); hint: name one of them", folder.display(), files.join(", "))]
    SeveralModels {
        /// The folder.
        folder: PathBuf,
        /// The files.
        files: Vec<String>,
    },
    /// A file is there but cannot be read.
    #[error("failed to read {}: {source}; hint: check its permissions", file.display())]
    FileUnreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error(
        "failed to write {}: {source}; hint: check its permissions and the free disk space",
        file.display()
    )]
    FileNotWritten {
        /// The file or its folder.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A JSON file does not parse.
    #[error(
        "{} is not valid: {reason}; hint: copy the file again from where the model was published",
        file.display()
    )]
    InvalidJson {
        /// The file.
        file: PathBuf,
        /// Place and kind of the fault.
        reason: String,
    },
    /// The configuration parses but makes no sense.
    #[error("{}: {reason}; hint: compare it with the published config.json of this model", file.display())]
    InvalidConfig {
        /// The file.
        file: PathBuf,
        /// Which value, and why.
        reason: String,
    },
    /// A model of a kind that this engine does not compute.
    #[error(
        "unsupported model {}: {reason}; Llama and Mistral models without biases are supported",
        file.display()
    )]
    Unsupported {
        /// The configuration file.
        file: PathBuf,
        /// Which property is not supported.
        reason: String,
    },
    /// An adapter of a kind that is not merged here.
    #[error(
        "{}: {reason}; hint: merge the adapter with peft (merge_and_unload, then save_pretrained) and pass \
         the folder that peft writes",
        file.display()
    )]
    UnsupportedAdapter {
        /// The adapter's configuration or weights, or what was given as its base.
        file: PathBuf,
        /// Which field or tensor, and what it says.
        reason: String,
    },
    /// An adapter whose configuration, weights and base do not fit each other.
    #[error(
        "{}: {reason}; the adapter belongs to another base model, or its files do not match each other",
        file.display()
    )]
    InvalidAdapter {
        /// The adapter's configuration or weights.
        file: PathBuf,
        /// Which field or tensor, and why.
        reason: String,
    },
    /// A weight file is cut off or damaged.
    #[error("{}: {reason}; the file is damaged or incomplete; hint: copy it again", file.display())]
    InvalidWeights {
        /// The file.
        file: PathBuf,
        /// What the reader said.
        reason: String,
    },
    /// A tensor that the configuration asks for is in none of the weight files.
    #[error(
        "tensor {name} not found in {}; the weights do not match this configuration, or a shard is missing",
        file.display()
    )]
    MissingTensor {
        /// The tensor's name.
        name: String,
        /// The file or folder searched.
        file: PathBuf,
    },
    /// A tensor has another shape than the configuration says.
    #[error(
        "{}: tensor {name} has shape {found:?}, but the configuration requires {expected:?}; configuration \
         and weights do not match",
        file.display()
    )]
    WrongShape {
        /// The weight file.
        file: PathBuf,
        /// The tensor's name.
        name: String,
        /// Shape that follows from the configuration.
        expected: Vec<usize>,
        /// Shape in the file.
        found: Vec<usize>,
    },
    /// The tokenizer file does not parse or cannot be used.
    #[error(
        "{}: {reason}; hint: copy the tokenizer again from where the model was published",
        file.display()
    )]
    InvalidTokenizer {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The tokenizer knows ids that have no embedding.
    #[error(
        "{}: the tokenizer has {pieces} pieces but the embedding only {rows} rows; \
         the tokenizer belongs to another model, or its added tokens were never trained",
        file.display()
    )]
    VocabularyTooLarge {
        /// The tokenizer file.
        file: PathBuf,
        /// Ids that the tokenizer can produce.
        pieces: usize,
        /// Rows of the embedding.
        rows: usize,
    },
    /// An option has a value that nothing can be done with.
    #[error("invalid load option: {reason}")]
    InvalidOption {
        /// Which option, and what it may be.
        reason: String,
    },
    /// The weights or the cache do not fit into the memory budget.
    #[error(
        "the model's {what} need {needed} bytes, but only {free} of {total} bytes of the memory budget are \
         free; hint: raise the budget, unload another model, or choose a smaller dtype or cache"
    )]
    TooLargeForMemory {
        /// Weights or cache.
        what: &'static str,
        /// Bytes that they take.
        needed: u64,
        /// Bytes of the budget that are left.
        free: u64,
        /// Bytes of the budget.
        total: u64,
    },
    /// The device cannot be used.
    #[error("cannot use device {device}: {reason}")]
    Device {
        /// The device asked for.
        device: DeviceName,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// Threads could not be started.
    #[error(
        "failed to start the engine's threads: {reason}; hint: lower --threads, or raise the limits of \
         memory and processes"
    )]
    Thread {
        /// What the system said.
        reason: String,
    },
}

impl LoadError {
    /// Whether the machine lacks memory or threads at present: the model and its files are in order.
    pub fn is_exhaustion(&self) -> bool {
        match self {
            Self::Thread { .. } => true,
            Self::FolderUnreadable { source, .. } | Self::FileUnreadable { source, .. } => {
                source.kind() == io::ErrorKind::OutOfMemory
            }
            _ => false,
        }
    }
}

/// Why a sequence was not generated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// The input encodes to no token at all.
    #[error("the prompt is empty; a model without a beginning-of-sequence token needs at least one token")]
    EmptyPrompt,
    /// The prompt leaves no room for a token.
    #[error(
        "the prompt has {tokens} tokens, but the model accepts fewer than {limit}; hint: shorten the prompt"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// Longest sequence, prompt and completion together.
        limit: usize,
    },
    /// Even alone the sequence would not fit into the cache.
    #[error(
        "the sequence may need {needed} bytes of keys and values, but the cache has {budget}; hint: lower \
         max_new_tokens, shorten the prompt or raise the memory of the cache"
    )]
    TooLargeForMemory {
        /// Bytes of prompt and completion at full length.
        needed: usize,
        /// Bytes of the cache.
        budget: usize,
    },
    /// A token id of the input, or a stop id, has no embedding.
    #[error("token {token} is outside the vocabulary of {vocabulary}")]
    UnknownToken {
        /// The id.
        token: u32,
        /// Number of ids.
        vocabulary: usize,
    },
    /// Temperature, top-p or top-k out of range.
    #[error("invalid sampling: {0}")]
    InvalidSampling(String),
    /// The stop condition cannot be used.
    #[error("invalid stop condition: {0}")]
    InvalidStop(String),
    /// The tokenizer refused the text.
    #[error("failed to encode or decode the text: {0}")]
    Tokenizer(String),
    /// The deadline passed before the sequence was finished.
    #[error("the deadline passed after {completion_tokens} generated tokens")]
    DeadlineExceeded {
        /// Tokens generated until then.
        completion_tokens: usize,
    },
    /// The forward pass that this sequence took part in failed.
    #[error("the forward pass failed: {0}")]
    Forward(String),
    /// The model computed something that is not a number.
    #[error("the model's logits are not finite after {position} tokens; its weights are damaged or overflow")]
    NotFinite {
        /// Tokens before these logits.
        position: usize,
    },
    /// The engine was shut down.
    #[error("the engine was shut down")]
    ShutDown,
}
