//! Chat templates of models, and conversations in them.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// Separates the template from what is said.
const BETWEEN: char = '\u{1}';

fuzz_target!(|input: &str| {
    let (template, content) = input.split_once(BETWEEN).unwrap_or((input, "How many?"));
    let _ = lumos_worker::fuzzing::chat(template, content);
});
