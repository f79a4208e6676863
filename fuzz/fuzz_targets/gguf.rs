//! Reads GGUF files: metadata, tokenizer and weights.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lumos_engine::{Engine, LoadOptions, MemoryBudget, ModelSource, StoredChat};
use lumos_fuzz::allow_caught_panics_of_dependencies;

fuzz_target!(init: allow_caught_panics_of_dependencies(), |bytes: &[u8]| {
    let folder = tempfile::tempdir_in("/dev/shm").expect("failed to create a folder");
    let file = folder.path().join("model.gguf");
    std::fs::write(&file, bytes).expect("failed to write the file");
    let _ = StoredChat::read(&file);
    let options = LoadOptions {
        threads: Some(1),
        max_batch: 1,
        max_sequence_length: Some(16),
        kv_cache_bytes: Some(1 << 20),
        memory: Some(MemoryBudget::new(64 << 20)),
        ..LoadOptions::default()
    };
    if let Ok(engine) = Engine::load(ModelSource::Gguf(file), options) {
        engine.shutdown();
    }
});
