//! Model backends: implementations that complete the requests of an episode.
//!
//! [`ModelRegistry`] loads models by name and shares them between episodes; [`hub`] provides models of the Hugging Face
//! hub; [`serve_model`] serves the engine over OpenAI's interface.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod added;
mod arrangement;
mod bos;
mod builtin;
#[cfg(feature = "candle-transformers")]
mod candle_transformers;
mod chat;
mod engine;
mod error;
mod files;
pub mod hub;
mod in_process;
mod located;
mod lumos;
mod name;
mod openai;
mod registry;
mod script;
#[cfg(feature = "serve-model")]
pub mod serve_model;
mod settings;
mod swap_lock;
mod swap_scheduler;
mod template;
mod template_functions;

use async_trait::async_trait;
use lumos_tasks::{Completion, Request};
use thiserror::Error;

pub use added::{AddedName, InvalidModelBackend, ModelBackendDescription, register_backend};
pub use arrangement::{Arrangement, DoesNotFit, Need, arrange};
pub use builtin::{BuiltinDomain, BuiltinPair, builtin_bytes, builtin_pairs, builtin_source};
#[cfg(feature = "candle-transformers")]
pub use candle_transformers::{CandleTransformersBackend, ReferenceChoice, ReferenceTrace};
pub use chat::check_prompt_template;
pub(crate) use engine::EngineBackend;
pub use error::{IdentifyError, LoadModelError};
pub use files::{ModelFile, hash_file, hash_folder};
pub use in_process::InProcessModel;
pub use located::{EngineModel, LocateError, fetch_data, locate};
pub use lumos::LumosName;
pub use lumos_engine::{lost_gpu, until_gpu_lost};
pub use lumos_http::{ConcurrencyBounds, ServerKey};
pub use name::{ModelName, NameError};
pub use openai::{OpenAiName, OpenAiSettings, Price};
pub use registry::{
    Arranged, Identified, LoadedModel, ModelPricing, ModelRegistry, PlacingError, PromptRenderer, SentPrompt,
};
pub use settings::{EngineSettings, MemoryShare, ModelsSettings};
pub use swap_lock::Swapping;

/// Entry points of fuzz targets. Not part of the public interface.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::chat::fuzz_chat as chat;
}

/// A backend that completes requests: an engine in this process, a server, or a script.
///
/// It sets the limits of its requests and replies itself. A request that never returns ends only with `--time-limit`, or
/// on a worker with `--stall-limit`. Replies are recorded in full: on a queue, a record of more than 64 MiB becomes a
/// fault.
#[async_trait]
pub trait ModelBackend: Send + Sync {
    /// Completes one request. Dropping the future cancels it.
    ///
    /// # Errors
    /// See [`ModelError`].
    async fn complete(&self, request: Request) -> Result<Completion, ModelError>;
}

/// Errors of a completion.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ModelError {
    /// The request can never succeed, for example because its prompt exceeds the model's context. The episode continues
    /// with an empty reply and is scored, so return it only for prompts that the agent has caused.
    #[error("refused: {0}")]
    Refused(String),
    /// The backend failed: no connection, a timeout, an invalid response. The episode ends with a fault, which is retried
    /// and never scored.
    #[error("{0}")]
    Failed(String),
}
