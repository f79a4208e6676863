//! The models of a worker, by content. Each is identified once, loaded once and kept.
//!
//! [`ModelRegistry`] keeps the loaded models (`loaded.rs`). A model is identified by its name before it is loaded
//! (`identify.rs`). Engines are loaded on threads for blocking work (`loading.rs`), within the memory of their device
//! (`placing.rs`), and the cost of loading them is recorded (`uses.rs`). [`PromptRenderer`] renders the prompts that a
//! model would receive (`prompts.rs`).

mod identify;
mod loaded;
mod loading;
mod placing;
mod prompts;
mod uses;

pub use self::identify::{Identified, ModelPricing};
pub use self::loaded::{LoadedModel, ModelRegistry};
#[cfg(feature = "serve-model")]
pub(crate) use self::placing::share_gpu;
pub use self::placing::{Arranged, PlacingError};
pub use self::prompts::{PromptRenderer, SentPrompt};
