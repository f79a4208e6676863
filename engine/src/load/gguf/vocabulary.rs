//! The `tokenizer.*` keys of GGUF metadata: builds the tokenizer, and reads the chat template ([`StoredChat`]).

use std::path::Path;

use super::metadata::Metadata;
use super::{read, unsupported};
use crate::error::LoadError;
use crate::load::files;
use crate::tokenizer::{BytePairs, Splitting, StoredPiece, Tokenizer};

/// The key of the pieces' texts.
const TOKENS: &str = "tokenizer.ggml.tokens";

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
    let texts = metadata.required(TOKENS, Metadata::texts)?;
    let (scores, kinds) = ("tokenizer.ggml.scores", "tokenizer.ggml.token_type");
    let scores = one_each(metadata, scores, metadata.floats(scores)?, 0.0, texts.len())?;
    // Without types, all pieces are normal.
    let kinds = one_each(metadata, kinds, metadata.numbers(kinds)?, 1, texts.len())?;
    let piece = |((text, score), kind): ((&'a str, f32), usize)| StoredPiece {
        text,
        score,
        kind: i32::try_from(kind).unwrap_or_default(),
    };
    Ok(texts.into_iter().zip(scores).zip(kinds).map(piece).collect())
}

/// The values of a key, which must have one for each of `count` tokens, or `default` for each if there are none.
fn one_each<T: Clone>(
    metadata: &Metadata<'_>,
    key: &str,
    found: Option<Vec<T>>,
    default: T,
    count: usize,
) -> Result<Vec<T>, LoadError> {
    let values = found.unwrap_or_else(|| vec![default; count]);
    if values.len() != count {
        let reason = format!("{key} has {} entries, but {TOKENS} has {count}", values.len());
        return Err(LoadError::InvalidTokenizer { file: metadata.file.to_owned(), reason });
    }
    Ok(values)
}

/// The pre-tokenizers, by llama.cpp's names (`llama-vocab.cpp`). Names that llama.cpp treats alike are those of
/// different converters.
const SPLITTINGS: [(&str, Splitting); 12] = [
    ("llama-bpe", Splitting::Llama3),
    ("llama3", Splitting::Llama3),
    ("llama-v3", Splitting::Llama3),
    ("dbrx", Splitting::Cl100k),
    ("qwen2", Splitting::Qwen2),
    ("gpt-4o", Splitting::O200k),
    ("smollm", Splitting::DigitsAndGpt2),
    ("refact", Splitting::DigitsAndGpt2),
    ("starcoder", Splitting::DigitsAndGpt2),
    ("codeshell", Splitting::DigitsAndGpt2),
    ("gpt-2", Splitting::Gpt2),
    ("olmo", Splitting::Gpt2),
];

fn splitting(metadata: &Metadata<'_>) -> Result<Splitting, LoadError> {
    let key = "tokenizer.ggml.pre";
    let found = metadata.required(key, Metadata::text)?;
    let known = SPLITTINGS.iter().find(|(name, _)| *name == found);
    known.map(|(_, splitting)| *splitting).ok_or_else(|| {
        let names: Vec<&str> = SPLITTINGS.iter().map(|(name, _)| *name).collect();
        unsupported(
            metadata.file,
            format!("unsupported {key} {found:?}: expected one of {}", names.join(", ")),
        )
    })
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
        let tokens = metadata.texts(TOKENS)?.unwrap_or_default();
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
