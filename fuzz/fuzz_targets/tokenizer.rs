//! Loads `tokenizer.json` files and SentencePiece models, and encodes and decodes texts.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use lumos_engine::Tokenizer;
use lumos_engine::fuzzing::sentencepiece;
use lumos_fuzz::allow_caught_panics_of_dependencies;

/// Separates a tokenizer.json from the text.
const BETWEEN: u8 = 0;
const TEXT: &str = "Subgoal 1: Calculate 3 + 4.\n";

fuzz_target!(init: allow_caught_panics_of_dependencies(), |input: &[u8]| {
    let (tokenizer, text) = if input.trim_ascii_start().starts_with(b"{") {
        let mut parts = input.splitn(2, |byte| *byte == BETWEEN);
        let file = parts.next().unwrap_or_default();
        (Tokenizer::from_json(file, Path::new("tokenizer.json")), parts.next())
    } else {
        (sentencepiece(input), None)
    };
    let Ok(tokenizer) = tokenizer else { return };
    let text = String::from_utf8_lossy(text.unwrap_or(TEXT.as_bytes()));
    if let Ok(ids) = tokenizer.encode(&text) {
        let _ = tokenizer.decode(&ids);
    }
    let _ = tokenizer.newline();
});
