//! SentencePiece models and GGUF files give the same ids as the corresponding tokenizer.json.

use crate::support;
use std::path::Path;

use crate::support::gguf::{GgufModel, kind, text};
use crate::support::tokenizer::sentencepiece;
use crate::support::{Shape, Uniform, byte_tokenizer, pieces};
use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::Value;
use lumos_engine::{Engine, LoadError, LoadOptions, ModelSource, Tokenizer};
use proptest::prelude::*;
use prost::Message;
use serde_json::json;

const TEXTS: [&str; 16] = [
    "",
    " ",
    "\n",
    "a",
    " leading",
    "trailing ",
    "two  blanks   three",
    "<|user|>\nTask: the other, then\n<|assistant|>\n",
    "R1 = Calculator(2 * 3); R2 = Calculator(R1 ^ 2)",
    "Tabs\tand\r\nreturns",
    "éàü ß 漢字 Ελληνικά",
    "emoji 🙂👩‍👩‍👧 and \u{10ffff}\u{0}",
    "<s> special </s> <unk> <0x0A>",
    "▁ itself ▁▁",
    "aaaaaaa aaaa aaa",
    "the the  thethethe",
];

fn from_model(model: &[u8]) -> Tokenizer {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.model"), model).unwrap();
    Tokenizer::from_folder(folder.path()).unwrap()
}

/// Loads a small model with this number of embeddings. `change` sets the vocabulary of its file.
fn from_gguf(pieces: usize, change: impl Fn(&mut GgufModel)) -> Engine {
    let shape = Shape { vocabulary: pieces, layers: 1, ..Shape::tiny() };
    let mut model = GgufModel::new(&shape, 1, GgmlDType::F16);
    change(&mut model);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    model.write(&path);
    Engine::load(ModelSource::Gguf(path), LoadOptions::default()).unwrap()
}

fn own() -> (Tokenizer, Tokenizer) {
    let json = byte_tokenizer().to_string();
    let json = Tokenizer::from_json(json.as_bytes(), Path::new("tokenizer.json")).unwrap();
    (json, from_model(&sentencepiece(&pieces())))
}

fn assert_equal(json: &Tokenizer, model: &Tokenizer, text: &str) {
    let ids = json.encode(text).unwrap();
    assert_eq!(ids, model.encode(text).unwrap(), "{text:?}");
    assert_eq!(json.decode(&ids).unwrap(), model.decode(&ids).unwrap(), "{text:?}");
}

#[test]
fn own_pieces_equal_their_json() {
    let (json, model) = own();
    TEXTS.iter().for_each(|text| assert_equal(&json, &model, text));
    assert_eq!(json.id_limit(), model.id_limit());
    assert_eq!(json.newline(), Some(13));
    assert_eq!(model.newline(), Some(13));
}

/// Reference implementation of SentencePiece: merges the leftmost pair with the highest score until none is
/// left.
fn plain_merges(text: &str) -> Vec<u32> {
    let pieces = pieces();
    let find = |text: &str| pieces.iter().position(|(piece, _)| piece == text && !piece.starts_with('<'));
    let text = if text.is_empty() { String::new() } else { format!(" {text}").replace(' ', "▁") };
    let mut parts: Vec<String> = text.chars().map(String::from).collect();
    loop {
        let mut best: Option<(f32, usize)> = None;
        for at in 1..parts.len() {
            if let Some(id) = find(&format!("{}{}", parts[at - 1], parts[at]))
                && best.is_none_or(|(score, _)| pieces[id].1 > score)
            {
                best = Some((pieces[id].1, at));
            }
        }
        let Some((_, at)) = best else { break };
        let right = parts.remove(at);
        parts[at - 1].push_str(&right);
    }
    let ids = |part: &String| match find(part) {
        Some(id) => vec![id as u32],
        None => part.bytes().map(|byte| u32::from(byte) + 3).collect(),
    };
    parts.iter().flat_map(ids).collect()
}

proptest! {
    #[test]
    fn any_text_merges_by_the_book(text in "[ther ina\u{e9}1o\n\u{1f642}x]{0,40}") {
        let (_, model) = own();
        prop_assert_eq!(model.encode(&text).unwrap(), plain_merges(&text));
    }
}

#[test]
fn the_pieces_of_a_gguf_file_equal_their_json() {
    let (json, model) = own();
    let engine = from_gguf(300, |_| ());
    TEXTS.iter().for_each(|text| assert_equal(&json, engine.tokenizer(), text));
    assert_eq!((engine.tokenizer().id_limit(), engine.tokenizer().newline()), (json.id_limit(), Some(13)));
    assert_eq!(engine.tokenizer().sha256(), model.sha256(), "the same pieces");
    let bare = from_gguf(300, |file| file.set("tokenizer.ggml.add_space_prefix", Value::Bool(false)));
    assert_eq!(bare.tokenizer().encode(" the").unwrap(), json.encode("the").unwrap());
    assert_ne!(bare.tokenizer().encode("the").unwrap(), json.encode("the").unwrap());
}

/// Loads a model with the vocabulary of a byte-pair tokenizer.json in a GGUF file.
fn byte_pairs(json: &serde_json::Value, pre: &str) -> Engine {
    let mut pieces: Vec<(u64, String, i32)> = Vec::new();
    for (piece, id) in json["model"]["vocab"].as_object().unwrap() {
        pieces.push((id.as_u64().unwrap(), piece.clone(), 1));
    }
    for added in json["added_tokens"].as_array().unwrap() {
        let (id, text) = (added["id"].as_u64().unwrap(), added["content"].as_str().unwrap());
        pieces.retain(|(known, _, _)| *known != id);
        pieces.push((id, text.to_owned(), if added["special"] == true { 3 } else { 4 }));
    }
    pieces.sort();
    let merges = json["model"]["merges"].as_array().unwrap().iter().map(|merge| match merge.as_array() {
        Some(parts) => text(&format!("{} {}", parts[0].as_str().unwrap(), parts[1].as_str().unwrap())),
        None => text(merge.as_str().unwrap()),
    });
    let merges = Value::Array(merges.collect());
    from_gguf(pieces.len(), |file| {
        file.set("tokenizer.ggml.model", text("gpt2"));
        file.set("tokenizer.ggml.pre", text(pre));
        file.set("tokenizer.ggml.merges", merges.clone());
        file.vocabulary(pieces.iter().map(|(_, piece, kind)| (piece.as_str(), *kind)));
    })
}

#[test]
fn byte_pairs_of_a_gguf_file_equal_their_json() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/assets/tiny/maths/tokenizer.json");
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let byte_level = |words: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": words});
    let digits = json!({"type": "Digits", "individual_digits": true});
    // As in the published tokenizer.json of Llama 3.
    let pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    // As in that of Phi-4-mini.
    let by_case = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let split = |pattern: &str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    let single = pattern.replace("{1,3}", "");
    let sequence = |steps: &[serde_json::Value]| json!({"type": "Sequence", "pretokenizers": steps});
    for (pre, words, whole) in [
        ("smollm", sequence(&[digits.clone(), byte_level(true)]), false),
        ("refact", sequence(&[digits, byte_level(true)]), false),
        ("gpt-2", byte_level(true), false),
        ("llama-bpe", sequence(&[split(pattern), byte_level(false)]), true),
        ("dbrx", sequence(&[split(pattern), byte_level(false)]), false),
        ("qwen2", sequence(&[split(&single), byte_level(false)]), false),
        ("gpt-4o", sequence(&[split(by_case), byte_level(false)]), false),
    ] {
        json["pre_tokenizer"] = words;
        json["normalizer"] = if pre == "qwen2" { json!({"type": "NFC"}) } else { json!(null) };
        json["model"]["ignore_merges"] = json!(whole);
        let expected =
            Tokenizer::from_json(json.to_string().as_bytes(), Path::new("tokenizer.json")).unwrap();
        let engine = byte_pairs(&json, pre);
        let more =
            ["It's 12345 o'clock, WE'LL see…\r\n\r\n  x", "<s>No, I will keep planning. \u{3b1}\u{300}"];
        TEXTS.iter().chain(&more).for_each(|text| assert_equal(&expected, engine.tokenizer(), text));
        let mut random = support::Uniform::new(7);
        for _ in 0..500 {
            let text: String = (0..random.below(40))
                .filter_map(|_| {
                    let limit = [0x3000, 128, 128][random.below(3)];
                    char::from_u32(random.below(limit) as u32)
                })
                .collect();
            assert_equal(&expected, engine.tokenizer(), &text);
        }
    }
    let error = std::panic::catch_unwind(|| byte_pairs(&json, "tekken")).unwrap_err();
    assert!(error.downcast_ref::<String>().unwrap().contains("tokenizer.ggml.pre"));
}

/// The fields of `tokenizer.model` that a GGUF file contains: texts, scores and types
/// (`sentencepiece_model.proto`).
#[derive(Clone, PartialEq, Message)]
struct PublishedModel {
    #[prost(message, repeated, tag = "1")]
    pieces: Vec<PublishedPiece>,
}

#[derive(Clone, PartialEq, Message)]
struct PublishedPiece {
    #[prost(string, tag = "1")]
    text: String,
    #[prost(float, tag = "2")]
    score: f32,
    #[prost(int32, tag = "3")]
    kind: i32,
}

#[test]
fn llama_2_equals_its_published_json() {
    let Some(data) = lumos_capabilities::shared("data") else { return };
    let folder = data.join("tokenizers/llama2");
    let json = Tokenizer::from_folder(&folder).unwrap();
    let model = from_model(&std::fs::read(folder.join("tokenizer.model")).unwrap());
    assert_eq!(json.id_limit(), 32_000);
    let published =
        PublishedModel::decode(&std::fs::read(folder.join("tokenizer.model")).unwrap()[..]).unwrap();
    let pieces: Vec<(String, f32)> =
        published.pieces.iter().map(|piece| (piece.text.clone(), piece.score)).collect();
    // The type of normal pieces may be omitted.
    assert!(published.pieces.iter().all(|piece| piece.kind.max(1) == kind(&piece.text)));
    let engine = from_gguf(32_000, |file| file.sentencepiece(&pieces, true));
    let assert_equal = |json: &Tokenizer, model: &Tokenizer, text: &str| {
        assert_equal(json, model, text);
        assert_equal(json, engine.tokenizer(), text);
    };
    TEXTS.iter().for_each(|text| assert_equal(&json, &model, text));
    let questions = std::fs::read_to_string(data.join("gsm8k/test.jsonl")).unwrap();
    for line in questions.lines() {
        let item: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_equal(&json, &model, item["question"].as_str().unwrap());
        assert_equal(&json, &model, item["answer"].as_str().unwrap());
    }
    let mut random = support::Uniform::new(3);
    for _ in 0..2000 {
        let text: String = (0..random.below(60))
            .filter_map(|_| match random.below(4) {
                0 => char::from_u32(random.below(0x11_0000) as u32),
                1 => Some(' '),
                2 => char::from_u32(random.below(0x3000) as u32),
                _ => char::from_u32(random.below(128) as u32),
            })
            .collect();
        assert_equal(&json, &model, &text);
    }
    // Texts whose length makes ties of equal scores likely.
    assert_equal(&json, &model, &" a".repeat(400));
    assert_equal(&json, &model, &"=-".repeat(300));
}

#[test]
fn added_tokens_get_their_ids() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    write("tokenizer.model", &sentencepiece(&pieces()));
    let next = pieces().len() as u32;
    write("added_tokens.json", format!(r#"{{"<pad>": {next}, "<call>": {}}}"#, next + 1).as_bytes());
    write("special_tokens_map.json", br#"{"pad_token": {"content": "<pad>"}, "eos_token": "</s>"}"#);
    let tokenizer = Tokenizer::from_folder(folder.path()).unwrap();
    assert_eq!(tokenizer.id("<pad>"), Some(next));
    let ids = tokenizer.encode("the<pad>a<call>").unwrap();
    assert!(ids.contains(&next) && ids.contains(&(next + 1)), "{ids:?}");
    let text = tokenizer.decode(&ids).unwrap();
    assert!(text.contains("<call>") && !text.contains("<pad>"), "{text}");
    write("added_tokens.json", br#"{"<pad>": 9000}"#);
    let error = Tokenizer::from_folder(folder.path()).err().unwrap();
    assert!(
        matches!(error, LoadError::InvalidTokenizer { .. }) && error.to_string().contains("9000"),
        "{error}"
    );
}

fn load_json(json: &serde_json::Value) -> Result<Tokenizer, LoadError> {
    Tokenizer::from_json(json.to_string().as_bytes(), Path::new("folder/tokenizer.json"))
}

/// The tokenizers crate panics on these files.
#[test]
fn damaged_files_are_refused_by_name() {
    type Damage = fn(&mut serde_json::Value);
    let damages: [(Damage, &str); 8] = [
        (|json| json["decoder"] = json!(5), "invalid decoder"),
        (|json| json["decoder"] = json!({"type": "Unknown"}), "unsupported decoder type"),
        (|json| json["decoder"] = json!({}), ""),
        (|json| json["model"]["merges"] = json!(["▁the ▁the"]), "not in the vocabulary"),
        (|json| json["model"]["merges"] = json!([["▁the", "▁the"]]), "not in the vocabulary"),
        (|json| json["model"]["continuing_subword_prefix"] = json!("##########"), "shorter"),
        // A prefix that ends within a character, which the crate would read as text.
        (|json| json["model"]["continuing_subword_prefix"] = json!("#"), "shorter"),
        (|json| json["normalizer"] = json!({"type": "Precompiled", "precompiled_charsmap": "!"}), ""),
    ];
    for (number, (damage, reason)) in damages.into_iter().enumerate() {
        let mut json = byte_tokenizer();
        damage(&mut json);
        let error = load_json(&json).err().unwrap_or_else(|| panic!("damage {number}"));
        let told = error.to_string();
        assert!(matches!(error, LoadError::InvalidTokenizer { .. }), "{number}: {error:?}");
        assert!(told.contains("folder/tokenizer.json") && told.contains(reason), "{number}: {told}");
    }
}

/// Replaces, removes or copies a part of a file.
fn damage(json: &mut serde_json::Value, random: &mut Uniform) {
    let parts: Vec<serde_json::Value> = vec![
        json!(null),
        json!(-1),
        json!(u64::MAX),
        json!(""),
        json!("é\u{0}"),
        json!([]),
        json!({}),
        json!(["a", "b", "c"]),
        json!({"type": "Sequence"}),
        json!({"type": "Strip", "content": "a", "start": 9, "stop": 9}),
        json!({"Regex": "(a*)*("}),
    ];
    let mut place = json;
    loop {
        let length = match &*place {
            serde_json::Value::Object(fields) => fields.len(),
            serde_json::Value::Array(items) => items.len(),
            _ => 0,
        };
        if length == 0 || random.below(5) == 0 {
            *place = parts[random.below(parts.len())].clone();
            return;
        }
        let index = random.below(length);
        place = match place {
            serde_json::Value::Object(fields) if random.below(9) == 0 => {
                let key = fields.keys().nth(index).unwrap().clone();
                fields.remove(&key);
                return;
            }
            serde_json::Value::Object(fields) => fields.values_mut().nth(index).unwrap(),
            serde_json::Value::Array(items) => &mut items[index],
            _ => unreachable!("not a container"),
        };
    }
}

#[test]
fn no_damage_panics() {
    let mut random = Uniform::new(21);
    let (mut refused, mut loaded) = (0, 0);
    for _ in 0..3000 {
        let mut json = byte_tokenizer();
        for _ in 0..=random.below(2) {
            damage(&mut json, &mut random);
        }
        match load_json(&json) {
            Err(error) => {
                assert!(error.to_string().contains("tokenizer.json"), "{error}");
                refused += 1;
            }
            Ok(tokenizer) => {
                for text in TEXTS {
                    let ids = tokenizer.encode(text).unwrap_or_default();
                    let _ = tokenizer.decode(&ids);
                }
                loaded += 1;
            }
        }
    }
    assert!(refused > 100 && loaded > 100, "{refused} refused, {loaded} loaded");
}
