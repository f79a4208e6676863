//! Renders conversations with the chat templates of models.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// Separates the template from the message.
const BETWEEN: char = '\u{1}';

fuzz_target!(|input: &str| {
    let (template, content) = input.split_once(BETWEEN).unwrap_or((input, "How many?"));
    let _ = lumos_models::fuzzing::chat(template, content);
});
