//! Answers queries to the mathematics service, as models write them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lumos_environments::maths::{answer, number, same_value};

fuzz_target!(|query: &str| {
    if let Ok(found) = answer(query) {
        for text in found.texts() {
            let _ = number(text);
            let _ = same_value(text, query);
        }
    }
});
