//! Every layout of a model folder loads, and every error names the file and a remedy.

use std::path::Path;

use crate::support::tokenizer::sentencepiece;
use crate::support::{NamedTensor, Shape, pickle, pieces, safetensors};
use lumos_engine::{
    DType, Engine, GenerateRequest, Generation, LoadError, LoadOptions, ModelFiles, ModelSource, Prompt,
    SamplingParams, StopCondition,
};
use serde_json::json;
use tempfile::TempDir;

/// A change to a valid folder, and words that the error must contain.
type Fault<'a> = (&'a dyn Fn(&Path), &'a [&'a str]);

fn load(folder: &Path) -> Result<Engine, LoadError> {
    Engine::load(ModelSource::Folder(folder.to_owned()), LoadOptions::default())
}

fn folder(shape: &Shape) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    shape.files(1).write(folder.path());
    folder
}

async fn generation(engine: &Engine) -> Generation {
    let request = GenerateRequest {
        input: Prompt::Text("the inn\n in the é 🙂".to_owned()),
        stop: StopCondition::Never,
        max_new_tokens: 20,
        sampling: SamplingParams::GREEDY,
        ignore_eos: true,
        first_logits: 300,
        forced: Vec::new(),
        deadline: None,
    };
    engine.generate(request).await.unwrap()
}

#[tokio::test]
async fn every_layout_gives_the_same() {
    let shape = Shape::tiny();
    let tensors = shape.tensors(1);
    let original = folder(&shape);
    let engine = load(original.path()).unwrap();
    let expected = generation(&engine).await;
    let parameters: usize = tensors.iter().map(|(_, _, values)| values.len()).sum();
    let description = engine.description();
    assert_eq!(description.parameters, parameters as u64);
    assert_eq!((description.architecture.as_str(), description.vocabulary), ("LlamaForCausalLM", 300));
    assert_eq!((description.context_length, description.dtype), (2048, DType::F32));
    assert_eq!(description.weight_files[0].name, "model.safetensors");
    assert_eq!(description.weight_files[0].sha256.len(), 64);

    // Sharded safetensors.
    let sharded = folder(&shape);
    std::fs::remove_file(sharded.path().join("model.safetensors")).unwrap();
    let (first, second) = tensors.split_at(7);
    let mut map = serde_json::Map::new();
    for (part, name) in [(first, "model-1.safetensors"), (second, "model-2.safetensors")] {
        std::fs::write(sharded.path().join(name), safetensors(part)).unwrap();
        map.extend(part.iter().map(|(tensor, _, _)| (tensor.clone(), json!(name))));
    }
    let index = json!({"weight_map": map}).to_string();
    std::fs::write(sharded.path().join("model.safetensors.index.json"), index).unwrap();
    let engine = load(sharded.path()).unwrap();
    assert_eq!(generation(&engine).await, expected);
    assert_eq!(engine.description().weight_files.len(), 2);

    // An index that names the file beside it.
    let index = json!({"weight_map": {"model.norm.weight": "model.safetensors"}}).to_string();
    std::fs::write(original.path().join("model.safetensors.index.json"), index).unwrap();
    assert_eq!(generation(&load(original.path()).unwrap()).await, expected);

    // One pickle and a SentencePiece model.
    let pickled = folder(&shape);
    for name in ["model.safetensors", "tokenizer.json"] {
        std::fs::remove_file(pickled.path().join(name)).unwrap();
    }
    std::fs::write(pickled.path().join("pytorch_model.bin"), pickle::pickle(&tensors, false)).unwrap();
    std::fs::write(pickled.path().join("tokenizer.model"), sentencepiece(&pieces())).unwrap();
    assert_eq!(generation(&load(pickled.path()).unwrap()).await, expected);

    // Sharded pickles.
    std::fs::remove_file(pickled.path().join("pytorch_model.bin")).unwrap();
    let mut map = serde_json::Map::new();
    for (part, name) in [(first, "pytorch_model-1.bin"), (second, "pytorch_model-2.bin")] {
        std::fs::write(pickled.path().join(name), pickle::pickle(part, false)).unwrap();
        map.extend(part.iter().map(|(tensor, _, _)| (tensor.clone(), json!(name))));
    }
    let index = json!({"weight_map": map}).to_string();
    std::fs::write(pickled.path().join("pytorch_model.bin.index.json"), index).unwrap();
    assert_eq!(generation(&load(pickled.path()).unwrap()).await, expected);

    // Safetensors take precedence over pickles of another model.
    let both = folder(&shape);
    let other = pickle::pickle(&shape.tensors(2), false);
    std::fs::write(both.path().join("pytorch_model.bin"), other).unwrap();
    assert_eq!(generation(&load(both.path()).unwrap()).await, expected);

    // Embedded in the binary.
    let files = shape.files(1);
    let leak = |bytes: Vec<u8>| -> &'static [u8] { Box::leak(bytes.into_boxed_slice()) };
    let files = ModelFiles {
        config: leak(files.config),
        tokenizer: leak(files.tokenizer),
        weights: leak(files.weights),
    };
    let engine = Engine::load(ModelSource::Memory(files), LoadOptions::default()).unwrap();
    assert_eq!(generation(&engine).await, expected);
}

#[tokio::test]
async fn weights_of_half_width_stay_close() {
    let folder = folder(&Shape::tiny());
    let exact = generation(&load(folder.path()).unwrap()).await.first_logits;
    for (dtype, tolerance) in [(DType::F16, 0.05), (DType::Bf16, 0.4)] {
        let options = LoadOptions { dtype, ..LoadOptions::default() };
        let engine = Engine::load(ModelSource::Folder(folder.path().to_owned()), options).unwrap();
        let logits = generation(&engine).await.first_logits;
        for (id, logit) in &exact {
            let found = logits.iter().find(|(found, _)| found == id).unwrap().1;
            assert!((found - logit).abs() < tolerance, "{dtype}: {found} against {logit}");
        }
    }
}

#[test]
fn half_precision_pickles_load() {
    let shape = Shape::tiny();
    let folder = folder(&shape);
    std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    std::fs::write(folder.path().join("pytorch_model.bin"), pickle::pickle(&shape.tensors(1), true)).unwrap();
    assert_eq!(load(folder.path()).unwrap().description().vocabulary, 300);
}

#[test]
fn faults_are_named() {
    let edit = |change: &dyn Fn(&Path)| -> String {
        let folder = folder(&Shape::tiny());
        change(folder.path());
        load(folder.path()).unwrap_err().to_string()
    };
    let remove = |name: &'static str| move |folder: &Path| std::fs::remove_file(folder.join(name)).unwrap();
    let write = |name: &'static str, bytes: &'static [u8]| {
        move |folder: &Path| std::fs::write(folder.join(name), bytes).unwrap()
    };
    let cut = |name: &'static str| {
        move |folder: &Path| {
            let bytes = std::fs::read(folder.join(name)).unwrap();
            std::fs::write(folder.join(name), &bytes[..bytes.len() / 2]).unwrap();
        }
    };
    let config = |change: serde_json::Value| {
        move |folder: &Path| {
            let shape = Shape { extra: change.clone(), ..Shape::tiny() };
            std::fs::write(folder.join("config.json"), shape.config().to_string()).unwrap();
        }
    };
    let tensors = |change: &'static dyn Fn(&mut Vec<NamedTensor>)| {
        move |folder: &Path| {
            let mut tensors = Shape::tiny().tensors(1);
            change(&mut tensors);
            std::fs::write(folder.join("model.safetensors"), safetensors(&tensors)).unwrap();
        }
    };
    let bad_pickle = |folder: &Path| {
        std::fs::remove_file(folder.join("model.safetensors")).unwrap();
        std::fs::write(folder.join("pytorch_model.bin"), b"not a zip file").unwrap();
    };
    let index = |folder: &Path, shards: &[&str]| {
        let map: serde_json::Map<_, _> =
            shards.iter().enumerate().map(|(number, shard)| (number.to_string(), json!(shard))).collect();
        let index = json!({"weight_map": map}).to_string();
        std::fs::write(folder.join("model.safetensors.index.json"), index).unwrap();
    };
    let missing_shard = |folder: &Path| {
        std::fs::remove_file(folder.join("model.safetensors")).unwrap();
        index(folder, &["model-00007.safetensors"]);
    };
    let whole_and_shard = |folder: &Path| {
        std::fs::copy(folder.join("model.safetensors"), folder.join("1.safetensors")).unwrap();
        index(folder, &["1.safetensors"]);
    };
    let tensors_twice = |folder: &Path| {
        std::fs::copy(folder.join("model.safetensors"), folder.join("1.safetensors")).unwrap();
        std::fs::rename(folder.join("model.safetensors"), folder.join("2.safetensors")).unwrap();
        index(folder, &["1.safetensors", "2.safetensors"]);
    };
    let whole_and_shard_of_pickles = |folder: &Path| {
        std::fs::remove_file(folder.join("model.safetensors")).unwrap();
        std::fs::write(folder.join("pytorch_model.bin"), "").unwrap();
        let index = json!({"weight_map": {"model.norm.weight": "1.bin"}}).to_string();
        std::fs::write(folder.join("pytorch_model.bin.index.json"), index).unwrap();
    };
    let no_folder = |folder: &Path| std::fs::remove_dir_all(folder).unwrap();
    let file_for_folder = |folder: &Path| {
        std::fs::remove_dir_all(folder).unwrap();
        std::fs::write(folder, "").unwrap();
    };
    let folder_for_file = |folder: &Path| {
        std::fs::remove_file(folder.join("config.json")).unwrap();
        std::fs::create_dir(folder.join("config.json")).unwrap();
    };
    let sentencepiece_fault = |folder: &Path| {
        std::fs::remove_file(folder.join("tokenizer.json")).unwrap();
        std::fs::write(folder.join("tokenizer.model"), b"\xff\xff").unwrap();
    };
    let cases: [Fault<'_>; 23] = [
        (&no_folder, &["does not exist", "pass the folder"]),
        (&file_for_folder, &["failed to read model folder", "check"]),
        (&folder_for_file, &["config.json", "failed to read"]),
        (&remove("config.json"), &["config.json", "copy it"]),
        (&remove("tokenizer.json"), &["tokenizer.json or tokenizer.model", "copy the tokenizer"]),
        (&remove("model.safetensors"), &["model.safetensors", "pytorch_model.bin", "copy the weight"]),
        (&missing_shard, &["model-00007.safetensors", "index"]),
        (&whole_and_shard, &["has model.safetensors and model.safetensors.index.json", "remove"]),
        (&whole_and_shard_of_pickles, &["pytorch_model.bin and pytorch_model.bin.index.json", "remove"]),
        (&tensors_twice, &["1.safetensors", "2.safetensors", "is also in"]),
        (&cut("model.safetensors"), &["model.safetensors", "damaged or incomplete"]),
        (&write("model.safetensors", b""), &["model.safetensors", "damaged or incomplete"]),
        (&bad_pickle, &["pytorch_model.bin", "damaged or incomplete"]),
        (&cut("config.json"), &["config.json", "not valid", "line 1"]),
        (
            &write("config.json", br#"{"architectures": ["LlamaForCausalLM"]}"#),
            &["config.json", "hidden_size"],
        ),
        (&write("model.safetensors.index.json", b"{"), &["model.safetensors.index.json", "not valid"]),
        (&cut("tokenizer.json"), &["tokenizer.json", "copy the tokenizer"]),
        (&sentencepiece_fault, &["tokenizer.model", "SentencePiece"]),
        (&config(json!({"architectures": ["GPT2LMHeadModel"]})), &["GPT2LMHeadModel", "Llama"]),
        (&config(json!({"attention_bias": true})), &["layers.0.self_attn.q_proj.bias", "model.safetensors"]),
        (&config(json!({"intermediate_size": 101})), &["gate_proj", "[100, 48]", "[101, 48]"]),
        (
            &tensors(&|tensors| tensors.retain(|(name, _, _)| name != "lm_head.weight")),
            &["lm_head.weight", "tie_word_embeddings", "missing"],
        ),
        (
            &tensors(&|tensors| {
                for (name, shape, values) in tensors {
                    if name.contains("embed_tokens") || name.contains("lm_head") {
                        shape[0] = 200;
                        values.truncate(200 * 48);
                    }
                }
            }),
            &["tokenizer.json", "283 pieces", "200 rows"],
        ),
    ];
    for (change, words) in cases {
        let message = edit(change);
        for word in words {
            assert!(message.contains(word), "{message:?} lacks {word:?}");
        }
    }
}

/// A family, a change to its configuration or its tensors, and words that the error must contain.
type FamilyFault<'a> = (&'static str, serde_json::Value, &'a dyn Fn(&mut Vec<NamedTensor>), &'a [&'a str]);

#[test]
fn faults_of_families_are_named() {
    let keep = |_: &mut Vec<NamedTensor>| {};
    let without =
        |name: &'static str| move |tensors: &mut Vec<NamedTensor>| tensors.retain(|tensor| tensor.0 != name);
    let short = |name: &'static str| {
        move |tensors: &mut Vec<NamedTensor>| {
            let (_, shape, values) = tensors.iter_mut().find(|tensor| tensor.0 == name).unwrap();
            let row: usize = shape[1..].iter().product();
            shape[0] -= 1;
            values.truncate(shape[0] * row);
        }
    };
    let longrope = json!({"type": "longrope", "short_factor": [1.0], "long_factor": [1.0, 2.0]});
    let expert = "model.layers.0.mlp.experts.3.up_proj.weight";
    let w2 = "model.layers.1.block_sparse_moe.experts.4.w2.weight";
    let bias = "model.layers.1.self_attn.k_proj.bias";
    let norm = "model.layers.0.self_attn.q_norm.weight";
    let cases: [FamilyFault<'_>; 31] = [
        (
            "llama",
            json!({"architectures": ["GemmaForCausalLM"]}),
            &keep,
            &["`architectures`", "GemmaForCausalLM", "Qwen3Moe"],
        ),
        (
            "llama",
            json!({"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
            &keep,
            &["rope_scaling.type", "dynamic", "yarn"],
        ),
        (
            "qwen3",
            json!({"rope_parameters": {"rope_type": "foo"}}),
            &keep,
            &["rope_parameters.rope_type", "foo"],
        ),
        ("qwen2", json!({"rope_scaling": {"type": "yarn"}}), &keep, &["rope_scaling.factor", "positive"]),
        ("qwen2", json!({"rope_theta": -1.0, "rope_scaling": null}), &keep, &["rope_theta", "-1"]),
        (
            "phi3",
            json!({"rope_scaling": longrope}),
            &keep,
            &["rope_scaling.short_factor", "1 numbers instead of 2"],
        ),
        ("phi3", json!({"partial_rotary_factor": 0.4}), &keep, &["partial_rotary_factor", "0.4"]),
        ("llama", json!({"partial_rotary_factor": 0.5}), &keep, &["partial_rotary_factor", "0.5"]),
        (
            "mistral",
            json!({"sliding_window": 4096}),
            &keep,
            &["sliding_window", "4096", "max_position_embeddings", "2048"],
        ),
        (
            "gemma2",
            json!({"sliding_window": 3000}),
            &keep,
            &["sliding_window", "3000", "max_position_embeddings"],
        ),
        (
            "qwen3",
            json!({"use_sliding_window": true, "sliding_window": 4096, "max_window_layers": 1}),
            &keep,
            &["sliding_window", "4096"],
        ),
        (
            "gemma3_text",
            json!({"layer_types": ["full_attention"]}),
            &keep,
            &["layer_types", "1 entries for 2 layers"],
        ),
        (
            "gemma3_text",
            json!({"layer_types": ["full_attention", "linear_attention"]}),
            &keep,
            &["layer_types", "linear_attention"],
        ),
        ("gemma3_text", json!({"sliding_window_pattern": 0}), &keep, &["sliding_window_pattern"]),
        ("gemma2", json!({"query_pre_attn_scalar": 0}), &keep, &["query_pre_attn_scalar"]),
        ("gemma2", json!({"attn_logit_softcapping": -3.0}), &keep, &["attn_logit_softcapping", "-3"]),
        ("gemma2", json!({"hidden_activation": "relu"}), &keep, &["hidden_activation", "relu", "silu"]),
        ("qwen2", json!({"hidden_act": "gelu"}), &keep, &["hidden_act", "gelu", "silu"]),
        (
            "mixtral",
            json!({"num_experts_per_tok": 6}),
            &keep,
            &["num_experts_per_tok", "6", "num_local_experts"],
        ),
        ("qwen3_moe", json!({"num_experts": 0}), &keep, &["num_experts", "positive"]),
        ("qwen3_moe", json!({"num_experts": 100_000}), &keep, &["num_experts", "65536"]),
        ("qwen3_moe", json!({"decoder_sparse_step": 0}), &keep, &["decoder_sparse_step"]),
        ("granite", json!({"logits_scaling": 0.0}), &keep, &["logits_scaling"]),
        ("llama", json!({"num_hidden_layers": 5000}), &keep, &["num_hidden_layers", "5000", "4096"]),
        ("llama", json!({"intermediate_size": null}), &keep, &["intermediate_size", "missing"]),
        ("llama", json!({"num_attention_heads": 5}), &keep, &["hidden_size", "48", "num_attention_heads 5"]),
        ("qwen3_moe", json!({}), &without(expert), &[expert, "not found"]),
        ("qwen3_moe", json!({}), &short(expert), &["model.safetensors", expert, "[35, 48]", "[36, 48]"]),
        ("mixtral", json!({}), &short(w2), &["model.safetensors", w2, "[47, 100]", "[48, 100]"]),
        ("qwen2", json!({}), &without(bias), &[bias, "not found"]),
        ("olmo2", json!({}), &short(norm), &["model.safetensors", norm, "[47]", "[48]"]),
    ];
    for (family, fields, change, words) in cases {
        let shape = Shape { extra: fields, ..Shape::of(family) };
        let folder = tempfile::tempdir().unwrap();
        Shape::of(family).files(1).write(folder.path());
        std::fs::write(folder.path().join("config.json"), shape.config().to_string()).unwrap();
        let mut tensors = Shape::of(family).tensors(1);
        change(&mut tensors);
        std::fs::write(folder.path().join("model.safetensors"), safetensors(&tensors)).unwrap();
        let message = load(folder.path()).unwrap_err().to_string();
        let file = if shape.extra == json!({}) { "model.safetensors" } else { "config.json" };
        assert!(message.contains(file), "{family}: {message}");
        for word in words {
            assert!(message.contains(word), "{family}: {message:?} lacks {word:?}");
        }
    }
}
