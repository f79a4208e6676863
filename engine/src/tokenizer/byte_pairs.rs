//! Byte-level byte-pair encoding as in GPT-2 and Llama 3, built from pieces and merges.

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, SplitDelimiterBehavior, Tokenizer};

use super::StoredPiece;
use super::expansion::{BYTE_LEVEL, NORMAL_FORM_C};
use super::sentencepiece::{Error, Kind};

/// Largest number of bytes that a tokenizer of any [`Splitting`] makes of one byte of a text.
pub(super) const EXPANSION: usize = NORMAL_FORM_C * BYTE_LEVEL;

/// The pre-tokenizer pattern of the published tokenizer.json of Llama 3, OLMo 2 and Phi-4.
const UP_TO_THREE_DIGITS: &str = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\
                                  \\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
/// The pre-tokenizer pattern of Qwen2's and Qwen3's published tokenizer.json.
const SINGLE_DIGITS: &str = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\
                             \\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
/// The pre-tokenizer pattern of Phi-4-mini's published tokenizer.json, which also splits words by case.
const WORDS_BY_CASE: &str = "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\
                             [^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\
                             \\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/// How a text is split into words before pairs are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Splitting {
    /// GPT-2's pattern.
    Gpt2,
    /// Splits at every digit, then with GPT-2's pattern.
    DigitsAndGpt2,
    /// Llama 3's pattern; a word that is in the vocabulary is not merged.
    Llama3,
    /// Llama 3's pattern.
    Cl100k,
    /// Llama 3's pattern with single digits, after Unicode's normal form C.
    Qwen2,
    /// A pattern that splits words by case.
    O200k,
}

impl Splitting {
    /// The pattern, unless it is GPT-2's, which is built in.
    fn pattern(self) -> Option<&'static str> {
        match self {
            Self::Gpt2 | Self::DigitsAndGpt2 => None,
            Self::Llama3 | Self::Cl100k => Some(UP_TO_THREE_DIGITS),
            Self::Qwen2 => Some(SINGLE_DIGITS),
            Self::O200k => Some(WORDS_BY_CASE),
        }
    }
}

/// Pieces by id, with bytes encoded as characters, and merges (`left right`) by rank.
pub(crate) struct BytePairs<'a> {
    pub(crate) pieces: Vec<StoredPiece<'a>>,
    pub(crate) merges: Vec<&'a str>,
    pub(crate) splitting: Splitting,
}

pub(super) fn build(pairs: &BytePairs<'_>) -> Result<Tokenizer, Error> {
    let BytePairs { pieces, merges, splitting } = pairs;
    let longest = pieces.iter().map(|piece| piece.text.len()).max().unwrap_or(0);
    let merges = merges.iter().map(|merge| {
        let (left, right) =
            merge.split_once(' ').ok_or_else(|| format!("merge {merge:?} does not have two parts"))?;
        // The tokenizers crate panics on such merges.
        if left.len() + right.len() > longest {
            return Err(format!("merge {merge:?}: the result is not in the vocabulary").into());
        }
        Ok((left.to_owned(), right.to_owned()))
    });
    let merges = merges.collect::<Result<Vec<_>, Error>>()?;
    let vocabulary: Vocab = pieces.iter().map(|piece| piece.text.to_owned()).zip(0..).collect();
    if vocabulary.len() != pieces.len() {
        return Err("duplicate piece".into());
    }
    let whole_words = *splitting == Splitting::Llama3;
    let model = BPE::builder().vocab_and_merges(vocabulary, merges).ignore_merges(whole_words).build()?;
    let mut tokenizer = Tokenizer::new(model);
    let bytes = |words: bool| PreTokenizerWrapper::from(ByteLevel::new(false, true, words));
    let steps: Vec<PreTokenizerWrapper> = match splitting.pattern() {
        Some(pattern) => {
            let pattern = SplitPattern::Regex(pattern.to_owned());
            vec![Split::new(pattern, SplitDelimiterBehavior::Isolated, false)?.into(), bytes(false)]
        }
        None if *splitting == Splitting::DigitsAndGpt2 => vec![Digits::new(true).into(), bytes(true)],
        None => vec![bytes(true)],
    };
    if *splitting == Splitting::Qwen2 {
        tokenizer.with_normalizer(Some(NFC))?;
    }
    tokenizer.with_pre_tokenizer(Some(Sequence::new(steps)));
    tokenizer.with_decoder(Some(ByteLevel::new(false, true, false)));
    let added = |kind: Kind, special: bool| -> Vec<AddedToken> {
        let pieces = pieces.iter().filter(|piece| piece.kind == kind as i32);
        pieces.map(|piece| AddedToken::from(piece.text, special).normalized(false)).collect()
    };
    tokenizer.add_special_tokens(added(Kind::Control, true))?;
    tokenizer.add_tokens(added(Kind::UserDefined, false))?;
    Ok(tokenizer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_merges_are_refused() {
        let pieces = ["a", "b", "c", "ab"].map(|text| StoredPiece { text, score: 0.0, kind: 1 });
        let built = |merge: &'static str| {
            build(&BytePairs { pieces: pieces.to_vec(), merges: vec![merge], splitting: Splitting::Gpt2 })
        };
        assert!(built("a b").is_ok());
        for (merge, reason) in [
            ("ab c", "not in the vocabulary"),
            ("b a", "vocabulary"),
            ("d a", "vocabulary"),
            ("ab", "two parts"),
        ] {
            let error = built(merge).err().unwrap_or_else(|| panic!("{merge}")).to_string();
            assert!(error.contains(reason), "{merge}: {error}");
        }
    }
}
