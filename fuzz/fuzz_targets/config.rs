//! Reads configurations of models: architecture, sizes, rotary embeddings, windows, experts and packed weights.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = lumos_engine::fuzzing::config(bytes);
});
