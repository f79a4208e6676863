//! Detects tokenizer files that make the tokenizers crate panic.
//!
//! A tokenizer.json may come from an untrusted source. [`check`] finds the damage that is known to make the
//! crate's parser panic, or read invalid UTF-8 as text, and describes it; [`caught`] turns every other panic
//! of the crate into an error.

use std::borrow::Cow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Decoder types that the crate supports; it panics on others.
const DECODERS: [&str; 10] = [
    "BPEDecoder",
    "ByteLevel",
    "WordPiece",
    "Metaspace",
    "CTC",
    "Sequence",
    "Replace",
    "Fuse",
    "Strip",
    "ByteFallback",
];

#[derive(Deserialize)]
struct Parts<'a> {
    #[serde(borrow, default)]
    model: Model<'a>,
    #[serde(default)]
    decoder: Value,
}

#[derive(Default, Deserialize)]
struct Model<'a> {
    #[serde(default)]
    vocab: Vocabulary,
    #[serde(borrow, default)]
    merges: Vec<Merge<'a>>,
    continuing_subword_prefix: Option<Cow<'a, str>>,
}

/// A merge of byte pairs: two strings, or one with a space between them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Merge<'a> {
    Pair(#[serde(borrow)] Cow<'a, str>, #[serde(borrow)] Cow<'a, str>),
    Joined(#[serde(borrow)] Cow<'a, str>),
    Other(IgnoredAny),
}

/// Length in bytes of the longest entry of a vocabulary; `None` if the vocabulary is not a map of strings to
/// ids.
#[derive(Default)]
struct Vocabulary(Option<usize>);

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
                Ok(Vocabulary(Some(longest)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vocabulary, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Vocabulary(None))
            }

            fn visit_unit<E>(self) -> Result<Vocabulary, E> {
                Ok(Vocabulary(None))
            }
        }
        deserializer.deserialize_any(Longest)
    }
}

/// Checks a tokenizer.json for problems that the crate does not detect.
///
/// # Errors
/// Describes the problem. The crate may still reject a file that passes.
pub(super) fn check(bytes: &[u8]) -> Result<(), String> {
    let Parts { model, decoder } = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    match &decoder {
        Value::Null => {}
        Value::Object(parts) => match parts.get("type").map(Value::as_str) {
            None => {}
            Some(Some(name)) if DECODERS.contains(&name) => {}
            _ => return Err(format!("unsupported decoder type {}", parts["type"])),
        },
        other => return Err(format!("invalid decoder `{other}`: expected an object")),
    }
    let Some(longest) = model.vocab.0 else { return Ok(()) };
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
    Ok(())
}

/// Runs code of the crate and converts a panic to an error.
pub(super) fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text =
            text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panic without a message");
        format!("the tokenizer library failed: {text}")
    })
}
