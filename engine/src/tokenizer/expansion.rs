//! Limits how much a tokenizer.json can expand short texts and its tokens.
//!
//! A step of a normalizer, pre-tokenizer or decoder can replace a character by a longer text, and later steps can do so
//! again: three `Replace` steps of 1,000 bytes make a gigabyte of one character. [`check_lengths`] multiplies the
//! lengths, and rejects tokenizers whose products are far above those of published ones. The product remains with the
//! tokenizer: [`longest_text`] is the longest text that it encodes.

use base64::prelude::{BASE64_STANDARD_NO_PAD, Engine as _};
use serde_json::Value;

use super::check::check_character_map;

/// Largest number of bytes that a normalizer and a pre-tokenizer produce from one byte. ALBERT's, with a decomposition, lower
/// case, a character map and `▁` for blanks, stay below 6,000, Llama's below 20.
const MOST_ENCODED: usize = 16_384;
/// Largest number of bytes that a decoder produces from one byte of a token. Published decoders stay below 5.
const MOST_DECODED: usize = 256;
/// Largest number of steps of a part, and of elements in the lists of a post-processor. All steps read each text.
const MOST_STEPS: usize = 256;
/// Largest number of bytes of all normalized added tokens. The 6,000 added tokens of Gemma 3 have less than 1 MiB.
const MOST_ADDED_BYTES: usize = 64 << 20;
/// Largest number of bytes of a decoded token. Published vocabularies have tokens of a few hundred bytes.
const MOST_TOKEN_BYTES: usize = 1 << 20;
/// Largest number of bytes that a text may have once it is expanded. The library needs tens of bytes of memory for each
/// of them. With Llama's and Qwen's tokenizers, which may make 12 bytes of one, texts of 5 MiB are encoded: prompts of a
/// million tokens, and five times the longest prompt of a server. With DeBERTa's (264), texts of 248 KiB are encoded.
const MOST_TEXT_BYTES: usize = 64 << 20;

/// Largest number of bytes that a byte-level pre-tokenizer makes of one: two, and a blank before each word.
pub(super) const BYTE_LEVEL: usize = 4;
/// Largest number of bytes that Unicode's normal form C makes of one.
pub(super) const NORMAL_FORM_C: usize = 3;

/// The parts of a tokenizer.json that [`check_lengths`] reads.
pub(super) struct TextParts<'a> {
    pub(super) normalizer: &'a Value,
    pub(super) pre_tokenizer: &'a Value,
    pub(super) post_processor: &'a Value,
    pub(super) decoder: &'a Value,
    /// Bytes of all added tokens, and of the longest one.
    pub(super) added: (usize, usize),
    /// Bytes of the longest piece of the vocabulary.
    pub(super) longest_piece: usize,
}

/// Length in bytes of the longest text that is encoded with a tokenizer that makes at most `expansion` bytes of one.
pub(super) fn longest_text(expansion: usize) -> usize {
    MOST_TEXT_BYTES / expansion.max(1)
}

/// Checks the lengths of texts that a tokenizer creates. Returns an upper bound of the bytes that it makes of one byte of
/// a text when it encodes it.
///
/// # Errors
/// Describes the limit that is exceeded, or an invalid character map.
pub(super) fn check_lengths(parts: &TextParts<'_>) -> Result<usize, String> {
    let normalized = expansion("normalizer", parts.normalizer)?;
    let encoded = normalized.saturating_mul(expansion("pre_tokenizer", parts.pre_tokenizer)?);
    if encoded > MOST_ENCODED {
        return Err(format!(
            "normalizer and pre_tokenizer expand a text up to {encoded} times: expected at most {MOST_ENCODED}"
        ));
    }
    let decoded = expansion("decoder", parts.decoder)?;
    if decoded > MOST_DECODED {
        return Err(format!(
            "decoder expands a token up to {decoded} times: expected at most {MOST_DECODED}"
        ));
    }
    let (all, longest) = parts.added;
    let added = all.saturating_mul(normalized);
    if added > MOST_ADDED_BYTES {
        return Err(format!(
            "added tokens have up to {added} bytes when normalized: expected at most {MOST_ADDED_BYTES}"
        ));
    }
    // Added tokens are decoded from their normalized text.
    let token = parts.longest_piece.max(longest.saturating_mul(normalized)).saturating_mul(decoded);
    if token > MOST_TOKEN_BYTES {
        return Err(format!(
            "a token has up to {token} bytes when decoded: expected at most {MOST_TOKEN_BYTES}"
        ));
    }
    // Templates copy the text and lists of special tokens for each of their elements.
    let elements = elements(parts.post_processor);
    if elements > MOST_STEPS {
        return Err(format!("post_processor has {elements} list elements: expected at most {MOST_STEPS}"));
    }
    Ok(encoded.saturating_mul(copies(parts.post_processor)))
}

/// An upper bound of the bytes that a part produces from one byte of a text.
fn expansion(name: &str, part: &Value) -> Result<usize, String> {
    let mut steps = 0;
    let factor = product(part, &mut steps)?;
    if steps > MOST_STEPS {
        return Err(format!("{name} has {steps} steps: expected at most {MOST_STEPS}"));
    }
    Ok(factor)
}

/// Multiplies the factors of a step and of those within it. The JSON parser limits their depth.
fn product(part: &Value, steps: &mut usize) -> Result<usize, String> {
    *steps += 1;
    let mut product_of_steps = factor(part)?;
    for list in ["normalizers", "pretokenizers", "decoders"] {
        for inner in part.get(list).and_then(Value::as_array).into_iter().flatten() {
            product_of_steps = product_of_steps.saturating_mul(product(inner, steps)?);
        }
    }
    Ok(product_of_steps)
}

/// An upper bound of the bytes that one step produces from one byte, without the steps within it. Steps are recognised by
/// their fields where the crate reads them without a `type`.
fn factor(step: &Value) -> Result<usize, String> {
    let text = |field: &str| step.get(field).and_then(Value::as_str);
    let kind = match text("type") {
        // U+FDFA has 3 bytes, its decomposition 33.
        Some("NFKC" | "NFKD") => 11,
        Some("NFC" | "NFD") => NORMAL_FORM_C,
        Some("Lowercase") => 2,
        Some("ByteLevel") => BYTE_LEVEL,
        _ => 1,
    };
    // BertNormalizer puts blanks around Chinese characters, removes accents and changes letters to lower case.
    let bert = if step.get("handle_chinese_chars").is_some() { 8 } else { 1 };
    let replaced = match (text("content"), step.get("pattern")) {
        (Some(content), Some(pattern)) => match pattern.get("String").and_then(Value::as_str) {
            Some(string) if !string.is_empty() => content.len().div_ceil(string.len()),
            // Other patterns can match between all characters.
            _ => content.len() + 1,
        },
        _ => 1,
    };
    let prepended = text("prepend").map_or(1, |text| text.len() + 1);
    // Metaspace replaces blanks, and puts its replacement before words.
    let metaspace = text("replacement").map_or(1, |text| text.len() + 1);
    // The decoders WordPiece, BPEDecoder and CTC can add a blank to each byte.
    let joined = ["prefix", "suffix", "word_delimiter_token"].iter().any(|field| text(field).is_some());
    let mapped = match text("precompiled_charsmap") {
        Some(map) => {
            let map = BASE64_STANDARD_NO_PAD
                .decode(map.trim_end_matches('='))
                .map_err(|error| format!("invalid precompiled_charsmap: {error}"))?;
            check_character_map(&map)?
        }
        None => 1,
    };
    let factors = [kind, bert, replaced, prepended, metaspace, if joined { 2 } else { 1 }, mapped];
    Ok(factors.iter().fold(1, |product: usize, factor| product.saturating_mul((*factor).max(1))))
}

/// The number of elements in all lists within a value.
fn elements(value: &Value) -> usize {
    match value {
        Value::Array(list) => list.len() + list.iter().map(elements).sum::<usize>(),
        Value::Object(fields) => fields.values().map(elements).sum(),
        _ => 0,
    }
}

/// Number of copies of a text that a post-processor makes. Templates name a text `A`, and a pair of texts `A` and `B`.
fn copies(processor: &Value) -> usize {
    let named = |list: &str, id: &str| {
        let pieces = processor.get(list).and_then(Value::as_array).into_iter().flatten();
        pieces.filter(|piece| piece["Sequence"]["id"] == id).count()
    };
    let own = named("single", "A").max(named("pair", "A")).max(named("pair", "B")).max(1);
    let inner = processor.get("processors").and_then(Value::as_array).into_iter().flatten();
    inner.fold(own, |product, inner| product.saturating_mul(copies(inner)))
}

#[cfg(test)]
mod tests {
    use base64::prelude::BASE64_STANDARD;
    use serde_json::json;

    use super::super::check::check;
    use super::*;
    use crate::error::GenerateError;
    use crate::fixtures::byte_tokenizer;
    use crate::tokenizer::{BytePairs, Splitting, StoredPiece, Tokenizer};

    fn replace(pattern: &str, content: &str) -> Value {
        json!({"type": "Replace", "pattern": {"String": pattern}, "content": content})
    }

    fn regex(pattern: &str, content: &str) -> Value {
        json!({"type": "Replace", "pattern": {"Regex": pattern}, "content": content})
    }

    fn of_type(name: &str) -> Value {
        json!({"type": name})
    }

    fn sequence(list: &str, steps: &[Value]) -> Value {
        let mut sequence = of_type("Sequence");
        sequence[list] = json!(steps);
        sequence
    }

    /// The error of a tokenizer with one other part.
    fn rejected(part: &str, value: &Value) -> String {
        let mut file = byte_tokenizer();
        file[part] = value.clone();
        Tokenizer::from_json(file.to_string().as_bytes(), "tokenizer.json".as_ref())
            .err()
            .unwrap_or_else(|| panic!("{part}: {value}"))
            .to_string()
    }

    fn accepted(part: &str, value: &Value) {
        let mut file = byte_tokenizer();
        file[part] = value.clone();
        check(file.to_string().as_bytes()).unwrap_or_else(|error| panic!("{part}: {error}"));
    }

    #[test]
    fn texts_that_grow_to_gigabytes_are_rejected() {
        let steps = |first: &str| {
            let step = |from: &str, to: &str| replace(from, &to.repeat(1000));
            [step(first, "a"), step("a", "b"), step("b", "c")]
        };
        let bomb = sequence("normalizers", &steps("\n"));
        let said = rejected("normalizer", &bomb);
        assert!(said.contains("expand a text up to 1000000000 times: expected at most 16384"), "{said}");
        // Without types, in nested sequences, and after a text that is prepended.
        let without_type = steps("\n").map(|mut step| {
            step.as_object_mut().unwrap().remove("type");
            step
        });
        let untyped = json!({"normalizers": without_type});
        let inner = |step: &Value| sequence("normalizers", std::slice::from_ref(step));
        let nested: Vec<Value> = steps("\n").iter().map(inner).collect();
        let prepended =
            [vec![json!({"type": "Prepend", "prepend": "a".repeat(1000)})], steps("a")[1..].to_vec()];
        // Each step doubles the text.
        let between = vec![regex("", "x"); 40];
        let bytes = vec![of_type("ByteLevel"); 30];
        for steps in [vec![untyped], nested, prepended.concat(), between, bytes] {
            let said = rejected("normalizer", &sequence("normalizers", &steps));
            assert!(said.contains("expand a text up to"), "{said}");
        }
        let byte_level = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true});
        let said = rejected("pre_tokenizer", &sequence("pretokenizers", &vec![byte_level; 30]));
        assert!(said.contains("expand a text up to"), "{said}");
        let said = rejected("normalizer", &sequence("normalizers", &vec![of_type("NFC"); 300]));
        assert!(said.contains("normalizer has 301 steps: expected at most 256"), "{said}");
    }

    #[test]
    fn tokens_that_grow_to_gigabytes_are_rejected() {
        let steps = [replace("t", &"a".repeat(1000)), replace("a", &"b".repeat(1000))];
        let bomb = sequence("decoders", &steps);
        for decoder in [&bomb, &sequence("decoders", &[of_type("Fuse"), bomb.clone()])] {
            let said = rejected("decoder", decoder);
            assert!(said.contains("decoder expands a token up to 1000000 times"), "{said}");
        }
        let mut file = byte_tokenizer();
        file["model"]["vocab"]["a".repeat(2 << 20)] = json!(283);
        assert!(check(file.to_string().as_bytes()).is_err_and(|said| said.contains("a token has up to")));
        let unigram = json!({"model": {"type": "Unigram", "vocab": [["a".repeat(2 << 20), 0.0]]}});
        assert!(check(unigram.to_string().as_bytes()).is_err_and(|said| said.contains("a token has up to")));
        let tokens = vec![json!({"content": "a".repeat(100)}); 1000];
        let file = json!({"added_tokens": tokens, "normalizer": replace("a", &"b".repeat(1000))});
        assert!(
            check(file.to_string().as_bytes()).is_err_and(|said| said.contains("added tokens have up to"))
        );
        let piece = json!({"Sequence": {"id": "A", "type_id": 0}});
        let template = json!({"type": "TemplateProcessing", "single": vec![piece; 300], "pair": []});
        let said = rejected("post_processor", &template);
        assert!(said.contains("post_processor has 300 list elements"), "{said}");
    }

    fn tokenizer(file: &Value) -> Tokenizer {
        Tokenizer::from_json(file.to_string().as_bytes(), "tokenizer.json".as_ref()).unwrap()
    }

    #[test]
    fn texts_are_refused_before_they_expand_beyond_the_limit() {
        let mut file = byte_tokenizer();
        file["normalizer"] = replace("a", &"b".repeat(1 << 13));
        let replacing = tokenizer(&file);
        let mut file = byte_tokenizer();
        let text = json!({"Sequence": {"id": "A", "type_id": 0}});
        let template = json!({"type": "TemplateProcessing", "single": vec![text.clone(); 200], "pair": [text], "special_tokens": {}});
        file["post_processor"] = json!({"type": "Sequence", "processors": [template]});
        let copying = tokenizer(&file);
        for (tokenizer, expansion) in [(replacing, 1 << 13), (copying, 12 * 200)] {
            let limit = MOST_TEXT_BYTES / expansion;
            let too_long = |bytes| Err(GenerateError::TextTooLong { bytes, limit, expansion });
            let text = "a".repeat(limit);
            assert_eq!(tokenizer.encode(&format!("{text}a")), too_long(limit + 1));
            assert_eq!(tokenizer.encode_pair(&text, "aa"), too_long(limit + 2));
            assert!(!tokenizer.encode("a").unwrap().is_empty());
        }
        let said = GenerateError::TextTooLong { bytes: 9, limit: 8, expansion: 7 }.to_string();
        assert!(said.contains("9 bytes") && said.contains("at most 8"), "{said}");
    }

    #[test]
    fn prompts_of_published_tokenizers_are_encoded() {
        let long = 5 << 20;
        let pieces = [("<unk>", 2), ("a", 1)].map(|(text, kind)| StoredPiece { text, score: 0.0, kind });
        let sentencepiece =
            |prefix| Tokenizer::from_pieces(&pieces, prefix, "tokenizer.model".as_ref()).unwrap();
        let byte_pairs = |splitting| {
            let pairs = BytePairs { pieces: pieces.to_vec(), merges: Vec::new(), splitting };
            Tokenizer::from_byte_pairs(&pairs, "model.gguf".as_ref()).unwrap()
        };
        for (tokenizer, expansion) in [
            (tokenizer(&byte_tokenizer()), 12),
            (sentencepiece(true), 12),
            (sentencepiece(false), 3),
            (byte_pairs(Splitting::Llama3), 12),
            (byte_pairs(Splitting::Qwen2), 12),
        ] {
            assert_eq!(tokenizer.expansion, expansion);
            assert!(longest_text(tokenizer.expansion) > long);
        }
        assert_eq!(longest_text(0), MOST_TEXT_BYTES);
        assert_eq!(longest_text(usize::MAX), 0);
    }

    #[test]
    fn entries_of_character_maps_are_counted() {
        let map = |text: &str| {
            let map = [&0_u32.to_le_bytes()[..], b"b\0", text.as_bytes(), b"\0"].concat();
            json!({"type": "Precompiled", "precompiled_charsmap": BASE64_STANDARD.encode(map)})
        };
        assert_eq!(factor(&map(&"a".repeat(33))), Ok(33));
        // The crate reads maps without padding, too.
        let padded = map("abc")["precompiled_charsmap"].as_str().unwrap().to_owned();
        assert!(padded.ends_with('='));
        let unpadded = padded.trim_end_matches('=');
        assert_eq!(factor(&json!({"precompiled_charsmap": unpadded})), Ok(3));
        assert_eq!(factor(&map("")), Ok(1));
        let said = factor(&map(&"a".repeat(300))).unwrap_err();
        assert!(said.contains("300 bytes"), "{said}");
        assert!(factor(&json!({"precompiled_charsmap": "!"})).is_err());
    }

    #[test]
    fn published_tokenizers_are_accepted() {
        // Llama, Gemma, and Qwen.
        accepted("normalizer", &byte_tokenizer()["normalizer"]);
        accepted("normalizer", &replace(" ", "▁"));
        accepted("normalizer", &of_type("NFC"));
        let split = json!({"type": "Split", "pattern": {"Regex": r"\p{N}{1,3}"}, "behavior": "Isolated", "invert": false});
        let byte_level =
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
        accepted("pre_tokenizer", &sequence("pretokenizers", &[split, byte_level.clone()]));
        accepted("decoder", &byte_level);
        // XLNet and ALBERT, whose longest entry of the character map has 33 bytes.
        let map = [&0_u32.to_le_bytes()[..], &[b'a'; 33]].concat();
        let mut file = byte_tokenizer();
        file["normalizer"] = sequence(
            "normalizers",
            &[
                replace("``", "\""),
                replace("''", "\""),
                of_type("NFKD"),
                of_type("StripAccents"),
                of_type("Lowercase"),
                json!({"type": "Precompiled", "precompiled_charsmap": BASE64_STANDARD.encode(map)}),
                regex(" {2,}", " "),
            ],
        );
        let metaspace =
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
        file["pre_tokenizer"] = metaspace.clone();
        file["decoder"] = metaspace;
        let special = |id: &str| json!({"SpecialToken": {"id": id, "type_id": 0}});
        let text = json!({"Sequence": {"id": "A", "type_id": 0}});
        file["post_processor"] = json!({
            "type": "TemplateProcessing",
            "single": [text, special("<sep>"), special("<cls>")],
            "pair": [text, special("<sep>"), text, special("<sep>"), special("<cls>")],
            "special_tokens": {"<sep>": {"id": "<sep>", "ids": [4], "tokens": ["<sep>"]}},
        });
        check(file.to_string().as_bytes()).unwrap();
        // BERT.
        let bert = json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true});
        accepted("normalizer", &bert);
        accepted("decoder", &json!({"type": "WordPiece", "prefix": "##", "cleanup": true}));
    }
}
