//! The `tokenizer.*` keys of GGUF metadata: builds the tokenizer, and reads the chat template ([`StoredChat`]).

use std::path::Path;

use super::metadata::Metadata;
use super::{read, unsupported};
use crate::error::LoadError;
use crate::load::files;
use crate::tokenizer::{BytePairs, Splitting, StoredPiece, Tokenizer};

/// Builds the tokenizer: `llama` is SentencePiece byte-pair encoding, `gpt2` is byte-level byte-pair encoding
/// with the pre-tokenizer that `tokenizer.ggml.pre` names.
pub(super) fn tokenizer(metadata: &Metadata<'_>) -> Result<Tokenizer, LoadError> {
    let key = "tokenizer.ggml.model";
    let model = metadata.required(key, Metadata::text)?;
    let pieces = pieces(metadata)?;
    match model {
        "llama" => {
            let prefix = metadata.flag("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
            Tokenizer::from_pieces(&pieces, prefix, metadata.file)
        }
        "gpt2" => {
            let merges = metadata.required("tokenizer.ggml.merges", Metadata::texts)?;
            let splitting = splitting(metadata)?;
            Tokenizer::from_byte_pairs(&BytePairs { pieces, merges, splitting }, metadata.file)
        }
        other => Err(unsupported(
            metadata.file,
            format!("unsupported {key} {other:?}: expected \"llama\" or \"gpt2\""),
        )),
    }
}

fn pieces<'a>(metadata: &Metadata<'a>) -> Result<Vec<StoredPiece<'a>>, LoadError> {
    let tokens = "tokenizer.ggml.tokens";
    let texts = metadata.required(tokens, Metadata::texts)?;
    let (scores, kinds) = ("tokenizer.ggml.scores", "tokenizer.ggml.token_type");
    let as_many = |key: &str, found: usize| {
        let reason = format!("{key} has {found} entries, but {tokens} has {}", texts.len());
        Err(LoadError::InvalidTokenizer { file: metadata.file.to_owned(), reason })
    };
    let found = metadata.floats(scores)?;
    let score = match &found {
        Some(found) if found.len() != texts.len() => return as_many(scores, found.len()),
        found => |index: usize| found.as_ref().map_or(0.0, |scores| scores[index]),
    };
    let found = metadata.numbers(kinds)?;
    let kind = match &found {
        Some(found) if found.len() != texts.len() => return as_many(kinds, found.len()),
        // All pieces are normal.
        found => |index: usize| found.as_ref().map_or(1, |kinds| kinds[index]),
    };
    let piece = |(index, text): (usize, &&'a str)| StoredPiece {
        text,
        score: score(index),
        kind: i32::try_from(kind(index)).unwrap_or_default(),
    };
    Ok(texts.iter().enumerate().map(piece).collect())
}

/// The pre-tokenizer, by llama.cpp's names (`llama-vocab.cpp`).
fn splitting(metadata: &Metadata<'_>) -> Result<Splitting, LoadError> {
    let key = "tokenizer.ggml.pre";
    match metadata.required(key, Metadata::text)? {
        "llama-bpe" | "llama3" | "llama-v3" => Ok(Splitting::Llama3),
        "smollm" => Ok(Splitting::DigitsAndGpt2),
        "gpt-2" => Ok(Splitting::Gpt2),
        other => Err(unsupported(
            metadata.file,
            format!("unsupported {key} {other:?}: expected \"llama-bpe\", \"smollm\" or \"gpt-2\""),
        )),
    }
}

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
        let bytes = files::map(file)?;
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
