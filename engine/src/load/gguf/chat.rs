//! Reads the chat template of a GGUF file.

use std::path::Path;

use super::metadata::Metadata;
use super::read;
use crate::error::LoadError;
use crate::load::mapped;

/// The chat template of a GGUF file, and the special tokens that it may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredChat {
    /// `tokenizer.chat_template`: a Jinja template as in Hugging Face's tokenizers.
    pub template: String,
    /// Text of the beginning-of-sequence token; empty if there is none.
    pub bos_token: String,
    /// Text of the end-of-sequence token; empty if there is none.
    pub eos_token: String,
}

impl StoredChat {
    /// Reads the chat template; `None` if the file has no template.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is corrupt.
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
