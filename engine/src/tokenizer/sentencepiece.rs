//! Converts SentencePiece models (`tokenizer.model`) to tokenizers of the `tokenizers` crate.
//!
//! The message layout follows `sentencepiece_model.proto`; unused fields are omitted.

use std::collections::HashMap;

use prost::Message;
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as DecoderSequence;
use tokenizers::decoders::strip::Strip;
use tokenizers::models::bpe::BPE;
use tokenizers::models::unigram::Unigram;
use tokenizers::normalizers::{
    Precompiled, Prepend, Replace, Sequence as NormalizerSequence, Strip as StripNormalizer,
};
use tokenizers::{AddedToken, DecoderWrapper, ModelWrapper, NormalizerWrapper, Tokenizer};

use super::StoredPiece;
use super::check::check_character_map;

/// The character that represents a blank.
const BLANK: &str = "\u{2581}";
/// Largest number of bytes that [`pair_encoding`] looks up in the vocabulary: the sum of the squares of the lengths of
/// all pieces. 256,000 pieces of 32 bytes need a quarter of it.
const MOST_SPLIT_BYTES: usize = 1 << 30;

pub(super) type Error = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone, PartialEq, Message)]
struct Model {
    #[prost(message, repeated, tag = "1")]
    pieces: Vec<Piece>,
    #[prost(message, optional, tag = "2")]
    trainer: Option<Trainer>,
    #[prost(message, optional, tag = "3")]
    normalizer: Option<Normalizer>,
}

#[derive(Clone, PartialEq, Message)]
struct Piece {
    #[prost(string, optional, tag = "1")]
    text: Option<String>,
    #[prost(float, optional, tag = "2")]
    score: Option<f32>,
    #[prost(enumeration = "Kind", optional, tag = "3", default = "Normal")]
    kind: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub(super) enum Kind {
    Normal = 1,
    Unknown = 2,
    Control = 3,
    UserDefined = 4,
    Unused = 5,
    Byte = 6,
}

#[derive(Clone, PartialEq, Message)]
struct Trainer {
    #[prost(enumeration = "Algorithm", optional, tag = "3", default = "Unigram")]
    algorithm: Option<i32>,
    #[prost(bool, optional, tag = "35", default = "false")]
    byte_fallback: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
enum Algorithm {
    Unigram = 1,
    Bpe = 2,
    Word = 3,
    Char = 4,
}

#[derive(Clone, PartialEq, Message)]
struct Normalizer {
    #[prost(bytes = "vec", optional, tag = "2")]
    character_map: Option<Vec<u8>>,
    #[prost(bool, optional, tag = "3", default = "true")]
    add_dummy_prefix: Option<bool>,
    #[prost(bool, optional, tag = "4", default = "true")]
    remove_extra_whitespaces: Option<bool>,
}

/// Builds the tokenizer of a serialised model. Returns it with an upper bound of the bytes that it makes of one byte of a
/// text.
pub(super) fn build(bytes: &[u8]) -> Result<(Tokenizer, usize), Error> {
    let model = Model::decode(bytes).map_err(|error| format!("not a SentencePiece model: {error}"))?;
    assemble(&model)
}

/// Serialises a model of pieces, with byte-pair encoding and byte fallback; `prefix` adds a blank before
/// texts.
pub(super) fn serialised(pieces: &[StoredPiece<'_>], prefix: bool) -> Vec<u8> {
    let piece = |piece: &StoredPiece<'_>| Piece {
        text: Some(piece.text.to_owned()),
        score: Some(piece.score),
        kind: Some(piece.kind),
    };
    let model = Model {
        pieces: pieces.iter().map(piece).collect(),
        trainer: Some(Trainer { algorithm: Some(Algorithm::Bpe as i32), byte_fallback: Some(true) }),
        normalizer: Some(Normalizer {
            character_map: None,
            add_dummy_prefix: Some(prefix),
            remove_extra_whitespaces: Some(false),
        }),
    };
    model.encode_to_vec()
}

fn assemble(model: &Model) -> Result<(Tokenizer, usize), Error> {
    if model.pieces.is_empty() {
        return Err("the SentencePiece model has no pieces".into());
    }
    let trainer = model.trainer.clone().unwrap_or_default();
    let byte_fallback = trainer.byte_fallback();
    let algorithm = match trainer.algorithm() {
        Algorithm::Bpe => ModelWrapper::BPE(pair_encoding(&model.pieces, byte_fallback)?),
        Algorithm::Unigram => ModelWrapper::Unigram(unigram(&model.pieces, byte_fallback)?),
        other => return Err(format!("SentencePiece algorithm {other:?} is not supported").into()),
    };
    let normalizer = model.normalizer.clone().unwrap_or_default();
    let mut tokenizer = Tokenizer::new(algorithm);
    let (steps, expansion) = normalizers(&normalizer)?;
    tokenizer.with_normalizer(Some(NormalizerSequence::new(steps)))?;
    tokenizer.with_decoder(Some(DecoderSequence::new(decoders(&normalizer)?)));
    let added = |kinds: &[Kind], special: bool| -> Vec<AddedToken> {
        let pieces = model.pieces.iter().filter(|piece| kinds.contains(&piece.kind()));
        pieces.map(|piece| AddedToken::from(piece.text(), special).normalized(false)).collect()
    };
    tokenizer.add_special_tokens(added(&[Kind::Unknown, Kind::Control], true))?;
    tokenizer.add_tokens(added(&[Kind::UserDefined], false))?;
    Ok((tokenizer, expansion))
}

fn unknown(pieces: &[Piece]) -> Option<usize> {
    pieces.iter().position(|piece| piece.kind() == Kind::Unknown)
}

/// Byte-pair encoding. SentencePiece merges the pair whose piece has the highest score, so every way to split
/// a piece into two known pieces is a merge, and merges rank by score. Equal scores, and the ways to split
/// one piece, rank as in the conversion that produced the published tokenizer.json files.
fn pair_encoding(pieces: &[Piece], byte_fallback: bool) -> Result<BPE, Error> {
    let ids: HashMap<&str, u32> = pieces.iter().map(Piece::text).zip(0..).collect();
    if ids.len() != pieces.len() {
        return Err("the SentencePiece model has a duplicate piece".into());
    }
    let split = |sum: usize, piece: &Piece| sum.checked_add(piece.text().len().checked_pow(2)?);
    if pieces.iter().try_fold(0, split).is_none_or(|bytes| bytes > MOST_SPLIT_BYTES) {
        let longest = pieces.iter().map(|piece| piece.text().len()).max().unwrap_or_default();
        let reason = format!("the pieces of the SentencePiece model are too long: up to {longest} bytes");
        return Err(reason.into());
    }
    let mut merges: Vec<(f32, &str, &str)> = Vec::new();
    for piece in pieces.iter().filter(|piece| piece.kind() == Kind::Normal) {
        for (split, _) in piece.text().char_indices().skip(1) {
            let (left, right) = piece.text().split_at(split);
            if ids.contains_key(left) && ids.contains_key(right) {
                merges.push((piece.score(), left, right));
            }
        }
    }
    merges.sort_by(|one, other| {
        other.0.total_cmp(&one.0).then_with(|| (other.1, other.2).cmp(&(one.1, one.2)))
    });
    let merges: Vec<(String, String)> =
        merges.into_iter().map(|(_, left, right)| (left.to_owned(), right.to_owned())).collect();
    let vocabulary: HashMap<String, u32> = ids.into_iter().map(|(text, id)| (text.to_owned(), id)).collect();
    let mut builder = BPE::builder()
        .vocab_and_merges(vocabulary.into_iter().collect::<tokenizers::models::bpe::Vocab>(), merges)
        .fuse_unk(true)
        .byte_fallback(byte_fallback);
    if let Some(index) = unknown(pieces) {
        builder = builder.unk_token(pieces[index].text().to_owned());
    }
    builder.build()
}

fn unigram(pieces: &[Piece], byte_fallback: bool) -> Result<Unigram, Error> {
    let scores = pieces.iter().map(|piece| (piece.text().to_owned(), f64::from(piece.score()))).collect();
    Unigram::from(scores, unknown(pieces), byte_fallback)
}

/// The steps, and an upper bound of the bytes that they make of one byte.
fn normalizers(normalizer: &Normalizer) -> Result<(Vec<NormalizerWrapper>, usize), Error> {
    let mut steps: Vec<NormalizerWrapper> = Vec::new();
    // The last step replaces blanks.
    let mut expansion = BLANK.len();
    if !normalizer.character_map().is_empty() {
        expansion *= check_character_map(normalizer.character_map())?.max(1);
        let map = Precompiled::from(normalizer.character_map()).map_err(|error| error.to_string())?;
        steps.push(map.into());
    }
    if normalizer.remove_extra_whitespaces() {
        steps.push(StripNormalizer::new(true, true).into());
        let blanks = tokenizers::normalizers::replace::ReplacePattern::Regex(" {2,}".to_owned());
        steps.push(Replace::new(blanks, " ")?.into());
    }
    if normalizer.add_dummy_prefix() {
        expansion *= BLANK.len() + 1;
        steps.push(Prepend::new(BLANK.to_owned()).into());
    }
    steps.push(Replace::new(" ", BLANK)?.into());
    Ok((steps, expansion))
}

fn decoders(normalizer: &Normalizer) -> Result<Vec<DecoderWrapper>, Error> {
    let mut steps: Vec<DecoderWrapper> =
        vec![Replace::new(BLANK, " ")?.into(), ByteFallback::new().into(), Fuse::new().into()];
    if normalizer.add_dummy_prefix() {
        steps.push(Strip::new(' ', 1, 0).into());
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(texts: &[&str]) -> Result<Tokenizer, Error> {
        let pieces = texts.iter().map(|text| StoredPiece { text, score: 0.0, kind: Kind::Normal as i32 });
        build(&serialised(&pieces.collect::<Vec<_>>(), false)).map(|(tokenizer, _)| tokenizer)
    }

    #[test]
    fn pieces_whose_splits_take_minutes_are_rejected() {
        let long = |length: usize| "a".repeat(length);
        let tokenizer = built(&["a", "aa", &long(4096)]).unwrap();
        assert_eq!(tokenizer.encode("aa", false).unwrap().get_ids(), [1]);
        let error = built(&["a", &long(1 << 20)]).unwrap_err().to_string();
        assert!(error.contains("too long: up to 1048576 bytes"), "{error}");
        // One of them is short enough, all of them are not.
        let many: Vec<String> = (0..64).map(|number| format!("{number:06}").repeat(1000)).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        built(&many[..1]).unwrap();
        let error = built(&many).unwrap_err().to_string();
        assert!(error.contains("too long: up to 6000 bytes"), "{error}");
    }
}
