//! Model backends: implementations that complete the requests of an episode.

mod arrangement;
mod builtin;
mod chat;
mod engine;
mod error;
mod located;
mod lumos;
mod name;
mod openai;
mod placing;
mod registry;
mod script;
mod settings;
mod swap_lock;
mod swap_scheduler;
mod template;
mod uses;

use async_trait::async_trait;
use lumos_tasks::{Completion, Request};
use thiserror::Error;

pub use crate::files::{ModelFile, hash_file};
pub use crate::server_key::ServerKey;
pub use arrangement::{Arrangement, DoesNotFit, Need, arrange};
pub use builtin::{bytes as builtin_bytes, source as builtin_source};
#[doc(hidden)]
pub use chat::fuzz_chat;
pub(crate) use engine::EngineBackend;
pub use engine::{EngineSettings, MemoryShare};
pub use error::{IdentifyError, LoadModelError};
pub use located::{EngineModel, LocateError, locate};
pub use lumos::LumosName;
pub use name::{ModelName, NameError};
pub use openai::{OpenAiName, OpenAiSettings, Price};
pub use placing::{Arranged, PlacingError};
pub use registry::{Identified, LoadedModel, ModelPricing, ModelRegistry};
pub use settings::ModelsSettings;
pub use swap_lock::Swapping;

/// A backend that completes requests: an engine in this process, a server, or a script.
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
    /// The request can never succeed, for example because its prompt exceeds the model's context.
    #[error("refused: {0}")]
    Refused(String),
    /// The backend failed. The same request may succeed later.
    #[error("{0}")]
    Failed(String),
}
