//! Models offered by a server.

use std::path::Path;

use axum::http::StatusCode;
use lumos_engine::{Engine, LoadError, ModelSource, Prompt};
use lumos_http::AccessPolicy;
use lumos_tasks::Message;
use serde_json::{Value, json};

use super::error::ApiError;
use crate::chat::ChatTemplate;
use crate::engine::chat_template;
use crate::hub::HubName;
use crate::registry::share_gpu;
use crate::{EngineSettings, PlacingError};

/// A loaded model with its public name.
#[derive(Debug)]
pub struct ServedModel {
    id: String,
    engine: Engine,
    chat: ChatTemplate,
}

impl ServedModel {
    /// Loads a model. Blocks while weights are read and converted.
    ///
    /// # Errors
    /// As [`Engine::load`], and if the folder's chat template is invalid.
    pub fn load(
        id: impl Into<String>,
        source: ModelSource,
        settings: EngineSettings,
    ) -> Result<Self, LoadError> {
        let chat = chat_template(&source)?;
        Ok(Self { id: id.into(), engine: Engine::load(source, settings.options())?, chat })
    }

    /// Returns the settings with which each named model is loaded: on a GPU, several models share its free memory.
    /// Blocks.
    ///
    /// # Errors
    /// If they do not fit, or their needs cannot be determined.
    pub fn shared_settings(
        models: &[(String, ModelSource)],
        settings: EngineSettings,
    ) -> Result<Vec<EngineSettings>, PlacingError> {
        share_gpu(models, settings)
    }

    /// Name of the model for clients.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Maximum tokens of a prompt and its completion together.
    pub fn context_length(&self) -> usize {
        self.engine().description().context_length
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Renders a conversation with the model's chat template.
    pub(super) fn prompt(&self, messages: &[Message]) -> Result<Prompt, ApiError> {
        let text = self.chat.render(messages);
        text.map(Prompt::Text).map_err(|error| ApiError::invalid("messages", error))
    }

    /// Rejects text that is too long before it is encoded. Texts that the normalizer would
    /// shorten to fit are rejected, too.
    pub(super) fn check_length(&self, text: &str, most: usize) -> Result<(), ApiError> {
        let (bytes, context) = (text.len(), self.context_length());
        let longest = self.engine().tokenizer().longest_token();
        let limit = longest.map_or(most, |longest| context.saturating_mul(longest).min(most));
        if bytes <= limit {
            return Ok(());
        }
        let message = format!(
            "This model's maximum context length is {context} tokens, and this server accepts prompts of at \
             most {limit} bytes for it; the prompt has {bytes} bytes. Shorten the prompt"
        );
        Err(ApiError::new(StatusCode::BAD_REQUEST, "context_length_exceeded", message))
    }

    /// Returns the model's object in the list of models.
    pub(super) fn object(&self, created: i64) -> Value {
        json!({
            "id": self.id,
            "object": "model",
            "created": created,
            "owned_by": "lumos",
            "max_model_len": self.context_length(),
        })
    }
}

/// Returns the default public name of a model: the last component of its folder, or, for a hub model, its id
/// and the file if one is named.
pub fn folder_id(path: &Path) -> String {
    if let Some(name) = HubName::of_path(path, &AccessPolicy::default()) {
        let file = name.file().map(|file| format!("/{file}"));
        return format!("{}{}", name.id(), file.unwrap_or_default());
    }
    path.file_name().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}
