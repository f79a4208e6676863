//! How a file says that conversations are laid out.

use std::path::Path;

use super::metadata::Metadata;
use super::read;
use crate::error::LoadError;
use crate::load::mapped;

/// The chat template that a GGUF file carries, and the texts that it may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredChat {
    /// `tokenizer.chat_template`: a Jinja template as Hugging Face's tokenizers have them.
    pub template: String,
    /// Text of the token that begins a sequence; empty where there is none.
    pub bos_token: String,
    /// Text of the token that ends a sequence; empty where there is none.
    pub eos_token: String,
}

impl StoredChat {
    /// Reads it; nothing where the file has no template.
    ///
    /// # Errors
    /// When the file cannot be read or is damaged.
    pub fn read(file: &Path) -> Result<Option<Self>, LoadError> {
        let bytes = mapped::map(file)
            .map_err(|source| LoadError::FileUnreadable { file: file.to_owned(), source })?;
        let content = read(&bytes, file)?;
        let metadata = Metadata { file, values: &content.metadata };
        let Some(template) = metadata.text("tokenizer.chat_template")? else { return Ok(None) };
        let tokens = metadata.texts("tokenizer.ggml.tokens")?.unwrap_or_default();
        let token = |key: &str| -> Result<String, LoadError> {
            let id = metadata.number(key)?;
            Ok(id.and_then(|id| tokens.get(id)).copied().unwrap_or_default().to_owned())
        };
        Ok(Some(Self {
            template: template.to_owned(),
            bos_token: token("tokenizer.ggml.bos_token_id")?,
            eos_token: token("tokenizer.ggml.eos_token_id")?,
        }))
    }
}
