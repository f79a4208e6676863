//! Builds the tokenizer from GGUF metadata.

use super::metadata::Metadata;
use super::unsupported;
use crate::error::LoadError;
use crate::tokenizer::{BytePairs, Splitting, StoredPiece, Tokenizer};

/// Builds the tokenizer: `llama` is SentencePiece byte-pair encoding, `gpt2` is byte-level byte-pair encoding
/// with the pre-tokenizer that `tokenizer.ggml.pre` names.
pub(super) fn tokenizer(metadata: &Metadata<'_>) -> Result<Tokenizer, LoadError> {
    let key = "tokenizer.ggml.model";
    let model = metadata.text(key)?.ok_or_else(|| metadata.missing(key))?;
    let pieces = pieces(metadata)?;
    match model {
        "llama" => {
            let prefix = metadata.flag("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
            Tokenizer::from_pieces(&pieces, prefix, metadata.file)
        }
        "gpt2" => {
            let key = "tokenizer.ggml.merges";
            let merges = metadata.texts(key)?.ok_or_else(|| metadata.missing(key))?;
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
    let texts = metadata.texts(tokens)?.ok_or_else(|| metadata.missing(tokens))?;
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
    match metadata.text(key)?.ok_or_else(|| metadata.missing(key))? {
        "llama-bpe" | "llama3" | "llama-v3" => Ok(Splitting::Llama3),
        "smollm" => Ok(Splitting::DigitsAndGpt2),
        "gpt-2" => Ok(Splitting::Gpt2),
        other => Err(unsupported(
            metadata.file,
            format!("unsupported {key} {other:?}: expected \"llama-bpe\", \"smollm\" or \"gpt-2\""),
        )),
    }
}
