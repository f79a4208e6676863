//! SentencePiece models give the ids of the tokenizer.json that belongs to them.

mod support;

use std::path::Path;

use lumos_engine::{LoadError, Tokenizer};
use proptest::prelude::*;
use support::{byte_tokenizer, pieces, sentencepiece};

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

fn own() -> (Tokenizer, Tokenizer) {
    let json = byte_tokenizer().to_string();
    let json = Tokenizer::from_json(json.as_bytes(), Path::new("tokenizer.json")).unwrap();
    (json, from_model(&sentencepiece::model(&pieces())))
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

/// SentencePiece by the book: merge the leftmost pair of the highest score until none is left.
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
fn llama_2_equals_its_published_json() {
    let Some(shared) = std::env::var_os("LUMOS_SHARED") else {
        eprintln!("skipped: LUMOS_SHARED is not set");
        return;
    };
    let data = Path::new(&shared).join("data");
    let folder = data.join("tokenizers/llama2");
    let json = Tokenizer::from_folder(&folder).unwrap();
    let model = from_model(&std::fs::read(folder.join("tokenizer.model")).unwrap());
    assert_eq!(json.id_limit(), 32_000);
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
    // A text whose length makes ties of equal scores likely.
    assert_equal(&json, &model, &" a".repeat(400));
    assert_equal(&json, &model, &"=-".repeat(300));
}

#[test]
fn added_tokens_get_their_ids() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    write("tokenizer.model", &sentencepiece::model(&pieces()));
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
