//! The tests' tokenizer, as a tokenizer.json and as a SentencePiece model.

use serde_json::{Value, json};

/// Pieces of the tests' tokenizer: three control pieces, all bytes, and some Llama-like pieces with their
/// scores.
pub(crate) fn pieces() -> Vec<(String, f32)> {
    let mut pieces: Vec<(String, f32)> =
        ["<unk>", "<s>", "</s>"].map(|text| (text.to_owned(), 0.0)).into_iter().collect();
    pieces.extend((0..=255).map(|byte| (format!("<0x{byte:02X}>"), 0.0)));
    let merged = ["▁t", "er", "in", "▁a", "th", "▁th", "he", "▁the", "▁▁", "▁▁▁", "the", "aa"];
    pieces.extend(merged.iter().enumerate().map(|(rank, text)| ((*text).to_owned(), -(rank as f32))));
    let single = ["▁", "t", "e", "r", "i", "n", "a", "h", "s", "o", "1", "é"];
    pieces.extend(single.iter().enumerate().map(|(rank, text)| ((*text).to_owned(), -(100.0 + rank as f32))));
    pieces
}

/// Returns the same vocabulary as a tokenizer.json, with explicit merges.
pub(crate) fn byte_tokenizer() -> Value {
    let vocabulary: serde_json::Map<String, Value> =
        pieces().into_iter().enumerate().map(|(id, (text, _))| (text, json!(id))).collect();
    let special = |id: usize, text: &str| {
        json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    let merges = [
        "▁ t",
        "e r",
        "i n",
        "▁ a",
        "t h",
        "▁t h",
        "▁ th",
        "h e",
        "▁th e",
        "▁t he",
        "▁ the",
        "▁ ▁",
        "▁▁ ▁",
        "▁ ▁▁",
        "th e",
        "t he",
        "a a",
    ];
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocabulary, "merges": merges},
    })
}

/// Type of a piece, as numbered in `sentencepiece_model.proto`.
fn kind(text: &str) -> u8 {
    match text {
        "<unk>" => 2,
        "<s>" | "</s>" => 3,
        _ if text.starts_with("<0x") => 6,
        _ => 1,
    }
}

/// Writes a SentencePiece model: byte pairs with byte fallback and a space prefix, like Llama's.
pub(crate) fn sentencepiece(pieces: &[(String, f32)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (text, score) in pieces {
        let mut piece = vec![0x0a];
        length(&mut piece, text.len());
        piece.extend(text.as_bytes());
        piece.push(0x15);
        piece.extend(score.to_le_bytes());
        piece.extend([0x18, kind(text)]);
        out.push(0x0a);
        length(&mut out, piece.len());
        out.extend(piece);
    }
    out.extend([0x12, 5, 0x18, 2, 0x98, 0x02, 1]); // trainer: byte pairs, byte fallback
    out.extend([0x1a, 4, 0x18, 1, 0x20, 0]); // normalizer: space prefix, spaces kept
    out
}

fn length(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
