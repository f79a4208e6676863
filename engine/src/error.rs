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
        "model folder {} does not exist; give the folder that holds config.json, the weights and the tokenizer",
        folder.display()
    )]
    FolderMissing {
        /// The folder asked for.
        folder: PathBuf,
    },
    /// The path exists but cannot be listed.
    #[error("cannot read model folder {}: {source}; check that it is a folder and its permissions", folder.display())]
    FolderUnreadable {
        /// The folder asked for.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file that the model needs is not there.
    #[error("{} has no {expected}; {remedy}", folder.display())]
    FileMissing {
        /// The model's folder.
        folder: PathBuf,
        /// The file, or the files one of which would do.
        expected: String,
        /// What to do about it.
        remedy: String,
    },
    /// A folder holds several models.
    #[error("{} holds several GGUF files ({}); name the one you mean", folder.display(), files.join(", "))]
    SeveralModels {
        /// The folder.
        folder: PathBuf,
        /// The files.
        files: Vec<String>,
    },
    /// A file is there but cannot be read.
    #[error("cannot read {}: {source}; check its permissions", file.display())]
    FileUnreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}; check its permissions and the space that is left", file.display())]
    FileNotWritten {
        /// The file or its folder.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A JSON file does not parse.
    #[error("{} is not valid: {reason}; copy the file again from where the model was published", file.display())]
    InvalidJson {
        /// The file.
        file: PathBuf,
        /// Place and kind of the fault.
        reason: String,
    },
    /// The configuration parses but makes no sense.
    #[error("{}: {reason}; compare it with the published config.json of this model", file.display())]
    InvalidConfig {
        /// The file.
        file: PathBuf,
        /// Which value, and why.
        reason: String,
    },
    /// A model of a kind that this engine does not compute.
    #[error("{}: {reason}; supported are Llama and Mistral models without biases", file.display())]
    Unsupported {
        /// The configuration file.
        file: PathBuf,
        /// Which property is not supported.
        reason: String,
    },
    /// An adapter of a kind that is not merged here.
    #[error(
        "{}: {reason}; merge it with peft (merge_and_unload, then save_pretrained) and give the folder that it writes",
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
        "{}: {reason}; the adapter belongs to another base model, or its files do not belong together",
        file.display()
    )]
    InvalidAdapter {
        /// The adapter's configuration or weights.
        file: PathBuf,
        /// Which field or tensor, and why.
        reason: String,
    },
    /// A weight file is cut off or damaged.
    #[error("{}: {reason}; the file is damaged or incomplete, copy it again", file.display())]
    InvalidWeights {
        /// The file.
        file: PathBuf,
        /// What the reader said.
        reason: String,
    },
    /// A tensor that the configuration asks for is in none of the weight files.
    #[error(
        "tensor {name} is missing from {}; the weights do not belong to this configuration or a shard is missing",
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
        "{}: tensor {name} has shape {found:?} but the configuration asks for {expected:?}; \
         configuration and weights do not belong together",
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
    #[error("{}: {reason}; copy the tokenizer again from where the model was published", file.display())]
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
        "the model's {what} take {needed} bytes, but of the memory budget of {total} bytes only {free} are free; \
         raise the budget, unload another model, or choose a smaller type or cache"
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
    #[error("cannot compute on {device}: {reason}")]
    Device {
        /// The device asked for.
        device: DeviceName,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// Threads could not be started.
    #[error(
        "cannot start the engine's threads: {reason}; lower --threads, or raise the limits of memory and processes"
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
    #[error("the prompt has {tokens} tokens, the model takes fewer than {limit}; shorten the prompt")]
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// Longest sequence, prompt and completion together.
        limit: usize,
    },
    /// Even alone the sequence would not fit into the cache.
    #[error(
        "the sequence may grow to {needed} bytes of keys and values, the cache has {budget}; \
         lower max_new_tokens, shorten the prompt or raise the cache's memory"
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
    #[error("cannot encode or decode the text: {0}")]
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
