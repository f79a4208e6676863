//! Detects tokenizer files that make the tokenizers crate panic, run out of memory or take very long.
//!
//! Such files may come from untrusted sources. [`check`] finds the damage that is known to make the crate's parser
//! panic, reserve memory for a size that the file names, expand texts without bound, split long words in cubic time, or
//! read invalid UTF-8 as text, and describes it; [`caught`] turns every other panic of the crate into an error.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::expansion::{TextParts, check_lengths};

/// Length in bytes of the longest text that a SentencePiece character map may contain. Those of published models have 33
/// bytes at most.
const MOST_MAPPED_BYTES: usize = 256;
/// Largest number of characters of a word that WordPiece splits. Its time grows with the cube of this number. BERT's
/// tokenizers have 100.
const MOST_WORD_CHARACTERS: u64 = 256;

#[derive(Deserialize)]
struct Parts<'a> {
    #[serde(borrow, default)]
    added_tokens: Vec<Added<'a>>,
    #[serde(borrow, default)]
    model: Model<'a>,
    #[serde(default)]
    decoder: Value,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
}

#[derive(Deserialize)]
struct Added<'a> {
    #[serde(borrow, default)]
    content: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
struct Model<'a> {
    #[serde(default)]
    vocab: Vocabulary,
    #[serde(borrow, default)]
    merges: Vec<Merge<'a>>,
    continuing_subword_prefix: Option<Cow<'a, str>>,
    max_input_chars_per_word: Option<u64>,
}

/// A merge of byte pairs: two strings, or one with a space between them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Merge<'a> {
    Pair(#[serde(borrow)] Cow<'a, str>, #[serde(borrow)] Cow<'a, str>),
    Joined(#[serde(borrow)] Cow<'a, str>),
    Other(IgnoredAny),
}

/// An entry of a vocabulary with scores: a piece and its score.
#[derive(Deserialize)]
#[serde(untagged)]
enum Scored<'a> {
    Piece(#[serde(borrow)] Cow<'a, str>, IgnoredAny),
    Other(IgnoredAny),
}

/// Length in bytes of the longest entry of a vocabulary, and whether the vocabulary is a map of strings to ids.
#[derive(Default)]
struct Vocabulary {
    longest: usize,
    is_map: bool,
}

impl<'de> Deserialize<'de> for Vocabulary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Longest;
        impl<'de> Visitor<'de> for Longest {
            type Value = Vocabulary;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a vocabulary")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocabulary, A::Error> {
                let mut longest = 0;
                while let Some((text, _)) = map.next_entry::<Cow<'de, str>, IgnoredAny>()? {
                    longest = longest.max(text.len());
                }
                Ok(Vocabulary { longest, is_map: true })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vocabulary, A::Error> {
                let mut longest = 0;
                while let Some(entry) = list.next_element::<Scored<'de>>()? {
                    if let Scored::Piece(text, _) = entry {
                        longest = longest.max(text.len());
                    }
                }
                Ok(Vocabulary { longest, is_map: false })
            }

            fn visit_unit<E>(self) -> Result<Vocabulary, E> {
                Ok(Vocabulary::default())
            }
        }
        deserializer.deserialize_any(Longest)
    }
}

/// Checks a tokenizer.json for problems that the crate does not detect. Returns an upper bound of the bytes that it makes of
/// one byte of a text.
///
/// # Errors
/// Describes the problem. The crate may still reject a file that passes.
pub(super) fn check(bytes: &[u8]) -> Result<usize, String> {
    let Parts { added_tokens, model, decoder, normalizer, pre_tokenizer, post_processor } =
        serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    match &decoder {
        Value::Null => {}
        Value::Object(parts) => match parts.get("type").map(Value::as_str) {
            None => {}
            // The crate panics on others.
            Some(Some(
                "BPEDecoder" | "ByteLevel" | "WordPiece" | "Metaspace" | "CTC" | "Sequence" | "Replace"
                | "Fuse" | "Strip" | "ByteFallback",
            )) => {}
            _ => return Err(format!("unsupported decoder type {}", parts["type"])),
        },
        other => return Err(format!("invalid decoder `{other}`: expected an object")),
    }
    if let Some(characters) = model.max_input_chars_per_word
        && characters > MOST_WORD_CHARACTERS
    {
        return Err(format!(
            "max_input_chars_per_word is {characters}: expected at most {MOST_WORD_CHARACTERS}"
        ));
    }
    let added = added_tokens.iter().map(|token| token.content.len());
    let expansion = check_lengths(&TextParts {
        normalizer: &normalizer,
        pre_tokenizer: &pre_tokenizer,
        post_processor: &post_processor,
        decoder: &decoder,
        added: (added.clone().sum(), added.max().unwrap_or_default()),
        longest_piece: model.vocab.longest,
    })?;
    if !model.vocab.is_map {
        return Ok(expansion);
    }
    let longest = model.vocab.longest;
    let prefix = model.continuing_subword_prefix.as_deref().unwrap_or_default();
    for (number, merge) in model.merges.iter().enumerate() {
        let (first, second) = match merge {
            Merge::Pair(first, second) => (&**first, &**second),
            Merge::Joined(text) => match text.split_once(' ') {
                Some(pair) => pair,
                None => continue,
            },
            Merge::Other(_) => continue,
        };
        let invalid = |reason: &str| Err(format!("merge {} ({first:?}, {second:?}): {reason}", number + 1));
        let Some(rest) = second.get(prefix.len()..) else {
            return invalid("the second part is shorter than continuing_subword_prefix");
        };
        if first.len() > longest || first.len() + rest.len() > longest {
            return invalid("the result is not in the vocabulary");
        }
    }
    Ok(expansion)
}

/// Checks a SentencePiece character map and returns the length in bytes of its longest text. The crate reserves memory for
/// the table at the beginning of the map before reading it.
pub(super) fn check_character_map(map: &[u8]) -> Result<usize, String> {
    let Some(size) = map.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)) else { return Ok(0) };
    let (size, length) = (size as usize, map.len());
    if size > length {
        return Err(format!("the table of the character map has {size} bytes, the whole map {length}"));
    }
    // The table has entries of four bytes. Each text ends with a zero byte.
    let texts = map.get(4 + size / 4 * 4..).unwrap_or_default();
    let longest = texts.split(|byte| *byte == 0).map(<[u8]>::len).max().unwrap_or_default();
    if longest > MOST_MAPPED_BYTES {
        return Err(format!(
            "the character map has a text of {longest} bytes: expected at most {MOST_MAPPED_BYTES}"
        ));
    }
    Ok(longest)
}

/// Runs code of the crate and describes its error or panic.
pub(super) fn caught<T>(run: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    crate::error::caught("tokenizer", run)
}

#[cfg(test)]
mod tests {
    use base64::prelude::{BASE64_STANDARD, Engine as _};

    use super::*;

    /// The library reserves 8 bytes for every 4 of the table.
    #[test]
    fn character_maps_that_name_a_larger_table_are_rejected() {
        let map = [&1_000_000_000_u32.to_le_bytes()[..], b"abcd"].concat();
        let said = check_character_map(&map).unwrap_err();
        assert_eq!(said, "the table of the character map has 1000000000 bytes, the whole map 8");
        let part =
            serde_json::json!({"type": "Precompiled", "precompiled_charsmap": BASE64_STANDARD.encode(&map)});
        let sequence = serde_json::json!({"type": "Sequence", "normalizers": [&part]});
        for normalizer in [&part, &sequence] {
            let file = serde_json::json!({"normalizer": normalizer});
            assert!(check(file.to_string().as_bytes()).is_err_and(|said| said.contains("1000000000 bytes")));
        }
        let map = [&4_u32.to_le_bytes()[..], b"abcd"].concat();
        let part =
            serde_json::json!({"type": "Precompiled", "precompiled_charsmap": BASE64_STANDARD.encode(&map)});
        check(serde_json::json!({"normalizer": part}).to_string().as_bytes()).unwrap();
        check(br#"{"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AA"}}"#).unwrap();
    }

    #[test]
    fn word_pieces_of_long_words_are_rejected() {
        let file = |characters: u64| {
            let model = serde_json::json!({
                "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": characters, "vocab": {"[UNK]": 0},
            });
            serde_json::json!({"model": model}).to_string()
        };
        check(file(256).as_bytes()).unwrap();
        let said = check(file(1_000_000_000).as_bytes()).unwrap_err();
        assert_eq!(said, "max_input_chars_per_word is 1000000000: expected at most 256");
    }
}
