//! [`Tokenizer`]: encodes text, or pairs of texts, to token ids and decodes ids to text.
//!
//! Reads tokenizer.json, SentencePiece models and the vocabularies of GGUF files, all through the
//! `tokenizers` crate.

mod byte_pairs;
mod check;
mod expansion;
mod sentencepiece;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};
use tokenizers::{AddedToken, PostProcessor, TruncationParams, TruncationStrategy};

pub(crate) use self::byte_pairs::{BytePairs, Splitting};
use self::check::{caught, check};
use self::expansion::longest_text;
use crate::error::{GenerateError, LoadError};

/// What Oniguruma says if it gets no memory for a pattern, e.g. under a limit on the address space (`ONIGERR_MEMORY`,
/// `ONIGERR_FAIL_TO_INITIALIZE`).
const ONIGURUMA_OUT_OF_MEMORY: [&str; 2] = ["fail to memory allocation", "fail to initialize"];

/// A model's tokenizer, from tokenizer.json or a SentencePiece model. A model with random weights has an
/// empty one: it decodes every id to nothing and cannot encode.
pub struct Tokenizer {
    inner: Option<tokenizers::Tokenizer>,
    file: PathBuf,
    sha256: String,
    newline: Option<u32>,
    id_limit: usize,
    /// The same without added tokens.
    piece_limit: usize,
    longest_token: Option<usize>,
    /// An upper bound of the bytes that one byte of a text becomes while it is encoded.
    expansion: usize,
}

/// A piece of the vocabulary as stored in GGUF files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredPiece<'a> {
    pub(crate) text: &'a str,
    /// SentencePiece's score: pairs that form the piece with the highest score are merged first.
    pub(crate) score: f32,
    /// The type's number in `sentencepiece_model.proto`.
    pub(crate) kind: i32,
}

impl Tokenizer {
    /// The placeholder for a model without a tokenizer.
    pub(crate) fn none() -> Self {
        let sha256 = hex::encode(Sha256::digest(b""));
        Self {
            inner: None,
            file: PathBuf::new(),
            sha256,
            newline: None,
            id_limit: 0,
            piece_limit: 0,
            longest_token: None,
            expansion: 1,
        }
    }

    /// Parses tokenizer.json; `file` is the path in error messages.
    pub fn from_json(bytes: &[u8], file: &Path) -> Result<Self, LoadError> {
        let expansion = check(bytes).map_err(|reason| invalid(file, &reason))?;
        Self::new(built(|| tokenizers::Tokenizer::from_bytes(bytes), file)?, expansion, bytes, file)
    }

    /// Builds the tokenizer of a SentencePiece model in the same way as the Llama tokenizers of the hub: the
    /// ids equal those of the published tokenizer.json. `added` is added_tokens.json and `special` is
    /// special_tokens_map.json, each with its path.
    pub(crate) fn from_sentencepiece(
        model: &[u8],
        added: Option<(Vec<u8>, PathBuf)>,
        special: Option<(Vec<u8>, PathBuf)>,
        file: &Path,
    ) -> Result<Self, LoadError> {
        let (mut inner, expansion) = built(|| sentencepiece::build(model), file)?;
        if let Some((bytes, path)) = added {
            let special = special.map(|(bytes, path)| special_tokens(&bytes, &path)).transpose()?;
            add_tokens(&mut inner, &bytes, &path, special.as_deref())?;
        }
        Self::new(inner, expansion, model, file)
    }

    /// The SentencePiece tokenizer of a list of pieces; its hash is that of the serialised model.
    pub(crate) fn from_pieces(
        pieces: &[StoredPiece<'_>],
        prefix: bool,
        file: &Path,
    ) -> Result<Self, LoadError> {
        Self::from_sentencepiece(&sentencepiece::serialised(pieces, prefix), None, None, file)
    }

    /// The tokenizer of a list of byte pairs; its hash is that of the equivalent tokenizer.json.
    pub(crate) fn from_byte_pairs(pairs: &BytePairs<'_>, file: &Path) -> Result<Self, LoadError> {
        let inner = built(|| byte_pairs::build(pairs), file)?;
        let json = inner.to_string(false).map_err(|error| invalid(file, &error))?;
        Self::new(inner, byte_pairs::EXPANSION, json.as_bytes(), file)
    }

    fn new(
        mut inner: tokenizers::Tokenizer,
        expansion: usize,
        bytes: &[u8],
        file: &Path,
    ) -> Result<Self, LoadError> {
        let counted = caught(|| {
            inner.with_truncation(None)?;
            inner.with_padding(None);
            let limit = |ids: &HashMap<String, u32>| ids.values().max().map_or(0, |id| *id as usize + 1);
            let vocabulary = inner.get_vocab(true);
            let pieces = limit(&inner.get_vocab(false));
            Ok((limit(&vocabulary), pieces, vocabulary.keys().map(String::len).max()))
        });
        let (id_limit, piece_limit, longest_token) = counted.map_err(|reason| invalid(file, &reason))?;
        let mut tokenizer = Self {
            inner: Some(inner),
            file: file.to_owned(),
            sha256: hex::encode(Sha256::digest(bytes)),
            newline: None,
            id_limit,
            piece_limit,
            longest_token,
            expansion,
        };
        let newline = tokenizer.encode("\n").map_err(|error| invalid(file, &error))?;
        tokenizer.newline = newline.last().copied();
        Ok(tokenizer)
    }

    /// Encodes a raw text; no special tokens are added.
    ///
    /// # Errors
    /// Fails if the model has no tokenizer, if the tokenizer fails, or if it could expand this text to more than 64 MiB.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, GenerateError> {
        self.ids(text.len(), |inner| inner.encode_fast(text, false))
    }

    /// The special token that the tokenizer's `post_processor` puts before a text, usually a BOS; `None` if it adds
    /// none. [`encode`](Self::encode) does not add it.
    pub fn leading_token(&self) -> Option<String> {
        let inner = self.inner.as_ref()?;
        let adds = |text: &str| self.ids(text.len(), |inner| inner.encode_fast(text, true)).ok();
        let (added, plain) = (adds("\n")?, self.encode("\n").ok()?);
        let first = added.first().filter(|_| added.len() > plain.len() && !added.starts_with(&plain))?;
        inner.id_to_token(*first)
    }

    /// The ids of an encoding of `bytes` bytes by the crate.
    fn ids(
        &self,
        bytes: usize,
        encode: impl FnOnce(&tokenizers::Tokenizer) -> tokenizers::Result<tokenizers::Encoding>,
    ) -> Result<Vec<u32>, GenerateError> {
        let none = || GenerateError::Tokenizer("the model has no tokenizer; hint: pass token ids".to_owned());
        let inner = self.inner.as_ref().ok_or_else(none)?;
        let (expansion, limit) = (self.expansion, longest_text(self.expansion));
        if bytes > limit {
            return Err(GenerateError::TextTooLong { bytes, limit, expansion });
        }
        let encoding = caught(|| encode(inner)).map_err(GenerateError::Tokenizer)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The same tokenizer for pairs of texts ([`encode_pair`](Self::encode_pair)), which returns at most `longest`
    /// ids and truncates the longer text first.
    pub(crate) fn for_pairs(mut self, longest: usize) -> Result<Self, LoadError> {
        let inner = self.inner.as_mut().ok_or_else(|| invalid(&self.file, &"no tokenizer"))?;
        // Without special tokens the input would differ from the model's training data.
        if inner.get_post_processor().is_none_or(|processor| processor.added_tokens(true) == 0) {
            return Err(invalid(&self.file, &"its post_processor adds no special tokens to pairs"));
        }
        let truncation = TruncationParams {
            max_length: longest,
            strategy: TruncationStrategy::LongestFirst,
            ..TruncationParams::default()
        };
        inner.with_truncation(Some(truncation)).map_err(|error| invalid(&self.file, &error))?;
        Ok(self)
    }

    /// Encodes two texts with special tokens.
    pub(crate) fn encode_pair(&self, first: &str, second: &str) -> Result<Vec<u32>, GenerateError> {
        let bytes = first.len().saturating_add(second.len());
        self.ids(bytes, |inner| inner.encode_fast((first, second), true))
    }

    /// Decodes ids, skipping special tokens.
    pub fn decode(&self, ids: &[u32]) -> Result<String, GenerateError> {
        let Some(inner) = &self.inner else { return Ok(String::new()) };
        caught(|| inner.decode(ids, true)).map_err(GenerateError::Tokenizer)
    }

    /// The last id of the encoding of `"\n"`, if there is one.
    pub fn newline(&self) -> Option<u32> {
        self.newline
    }

    /// Whether no other token than [`newline`](Self::newline) contains a newline, apart from added tokens, which are
    /// whole phrases of a prompt. In other vocabularies, a line may end within a token such as `.\n` or `\n\n`. Decodes
    /// up to all ids.
    pub fn newline_is_unique(&self) -> bool {
        let Some((inner, newline)) = self.inner.as_ref().zip(self.newline) else { return false };
        let ends_line = |id: &u32| self.decode(&[*id]).is_ok_and(|text| text.contains('\n'));
        !inner.get_vocab(false).values().any(|id| *id != newline && ends_line(id))
    }

    /// The id of a piece, added tokens included.
    pub fn id(&self, piece: &str) -> Option<u32> {
        self.inner.as_ref()?.token_to_id(piece)
    }

    /// Length in bytes of the longest entry in the vocabulary, including added tokens; `None` without a
    /// tokenizer. A text of more than `n` times as many bytes has more than `n` tokens, unless the normalizer shortens it
    /// or one token stands for many unknown characters.
    pub fn longest_token(&self) -> Option<usize> {
        self.longest_token
    }

    /// One more than the highest id.
    pub fn id_limit(&self) -> usize {
        self.id_limit
    }

    /// Checks that all ids, those of added tokens included, have a row in an embedding of `rows` rows.
    pub(crate) fn check_rows(&self, rows: usize) -> Result<(), LoadError> {
        self.check_limit(self.id_limit, rows)
    }

    /// The same without added tokens. Published models have some without a row, such as the `<image_soft_token>` of Gemma 3's
    /// text models; a request that contains one is refused.
    pub(crate) fn check_piece_rows(&self, rows: usize) -> Result<(), LoadError> {
        self.check_limit(self.piece_limit, rows)
    }

    fn check_limit(&self, limit: usize, rows: usize) -> Result<(), LoadError> {
        if limit > rows {
            return Err(LoadError::VocabularyTooLarge { file: self.file.clone(), pieces: limit, rows });
        }
        Ok(())
    }

    /// SHA-256 of the tokenizer file, in hexadecimal.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// The file that the tokenizer was read from.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }
}

/// The tokenizer of a SentencePiece model: the entry point of a fuzz target.
///
/// # Errors
/// Fails if the model is corrupt.
pub fn fuzz_sentencepiece(model: &[u8]) -> Result<Tokenizer, LoadError> {
    Tokenizer::from_sentencepiece(model, None, None, Path::new("tokenizer.model"))
}

/// Builds a tokenizer from a file with the crate.
fn built<T>(build: impl FnOnce() -> tokenizers::Result<T>, file: &Path) -> Result<T, LoadError> {
    caught(build).map_err(|reason| invalid(file, &reason))
}

fn invalid(file: &Path, reason: &dyn std::fmt::Display) -> LoadError {
    let (file, reason) = (file.to_owned(), reason.to_string());
    if ONIGURUMA_OUT_OF_MEMORY.iter().any(|text| reason.contains(text)) {
        return LoadError::TokenizerMemory { file, reason };
    }
    LoadError::InvalidTokenizer { file, reason }
}

/// The texts named in special_tokens_map.json, whether written as strings or as objects.
fn special_tokens(bytes: &[u8], file: &Path) -> Result<Vec<String>, LoadError> {
    let map: serde_json::Map<String, Value> = serde_json::from_slice(bytes).map_err(LoadError::json(file))?;
    let values =
        map.values().flat_map(|value| value.as_array().map_or(std::slice::from_ref(value), |list| list));
    let text = |value: &Value| value.get("content").unwrap_or(value).as_str().map(str::to_owned);
    Ok(values.filter_map(text).collect())
}

/// Adds the tokens of added_tokens.json (text to id). All of them are special if the special tokens are not
/// listed.
fn add_tokens(
    tokenizer: &mut tokenizers::Tokenizer,
    bytes: &[u8],
    file: &Path,
    special: Option<&[String]>,
) -> Result<(), LoadError> {
    let map: std::collections::HashMap<String, u32> =
        serde_json::from_slice(bytes).map_err(LoadError::json(file))?;
    let mut tokens: Vec<(u32, String)> = map.into_iter().map(|(text, id)| (id, text)).collect();
    tokens.sort_unstable();
    for (id, text) in tokens {
        let is_special = special.is_none_or(|special| special.contains(&text));
        let token = AddedToken::from(text.clone(), is_special).normalized(false);
        let added =
            if is_special { tokenizer.add_special_tokens([token]) } else { tokenizer.add_tokens([token]) };
        added.map_err(|error| invalid(file, &error))?;
        let found = tokenizer.token_to_id(&text);
        if found != Some(id) {
            let found = found.map_or("none".to_owned(), |id| id.to_string());
            let reason =
                format!("added token {text:?} should have id {id}, but the next free id gives {found}");
            return Err(invalid(file, &reason));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_memory_does_not_make_a_file_invalid() {
        let file = Path::new("tokenizer.json");
        for reason in ["fail to memory allocation", "fail to initialize"] {
            let error = invalid(file, &format!("Oniguruma error: {reason} at line 1 column 3514"));
            assert!(error.is_exhaustion() && !error.to_string().contains("copy"), "{error}");
        }
        let error = invalid(file, &"Oniguruma error: end pattern at escape");
        assert!(!error.is_exhaustion() && error.to_string().contains("copy"), "{error}");
    }
}
