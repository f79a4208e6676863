//! Loads weights in safetensors with a valid configuration and tokenizer.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lumos_engine::{Engine, LoadOptions, MemoryBudget, ModelSource};

const CONFIG: &str = r#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8,
    "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
    "vocab_size": 16, "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": true, "torch_dtype": "float32", "eos_token_id": 2, "bos_token_id": 1}"#;
const TOKENIZER: &str = r#"{"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null,
    "post_processor": null, "decoder": null, "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "[UNK]": 2},
    "unk_token": "[UNK]"}}"#;

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir_in("/dev/shm").expect("failed to create a folder");
    let write = |name: &str, content: &[u8]| std::fs::write(folder.path().join(name), content).expect("room");
    write("config.json", CONFIG.as_bytes());
    write("tokenizer.json", TOKENIZER.as_bytes());
    write("model.safetensors", bytes);
    let options = LoadOptions {
        threads: Some(1),
        max_batch: 1,
        kv_cache_bytes: Some(1 << 20),
        memory: Some(MemoryBudget::new(64 << 20)),
        ..LoadOptions::default()
    };
    if let Ok(engine) = Engine::load(ModelSource::Folder(folder.path().to_owned()), options) {
        engine.shutdown();
    }
});
