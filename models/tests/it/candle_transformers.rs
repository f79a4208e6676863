//! The second backend compared with recorded results of transformers, and with the engine.
//!
//! The reference folders are in `$LUMOS_SHARED/golden`; without that variable their tests are skipped.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::GzDecoder;
use lumos_engine::{
    Engine, GenerateError, GenerateRequest, Generation, LoadError, LoadOptions, ModelSource, Prompt,
    StopCondition,
};
use lumos_models::{
    BuiltinDomain, CandleTransformersBackend, EngineSettings, InProcessModel, ModelRegistry, ModelsSettings,
    builtin_source,
};
use lumos_tasks::{BackendChoice, Formulation, Role};
use serde::Deserialize;
use serde_json::{Value, json};

/// Folders that the crate computes like transformers.
const EQUAL: [&str; 10] = [
    "engine/llama-mha",
    "engine/llama-gqa-tied",
    "engine/llama3-rope",
    "families/mixtral",
    "families/qwen2",
    "families/qwen3",
    "families/qwen3-moe",
    "families/gemma3",
    "families/phi3",
    "families/olmo2",
];

/// Folders that it computes differently, the field that is the reason, and the smallest error of logits over the cases.
const REFUSED: [(&str, &str); 4] = [
    ("families/granite", "embedding_multiplier"),
    ("families/qwen2-yarn", "rope_parameters.rope_type"),
    ("families/mistral", "sliding_window"),
    ("families/gemma2", "sliding_window"),
];

/// Longest prompt in tokens: longer ones take much time in builds without optimization.
const LONGEST: usize = 250;

#[derive(Deserialize)]
struct Case {
    prompt: String,
    ids: Vec<u32>,
    greedy: Vec<u32>,
    first_top8: Vec<(u32, f32)>,
    safe_tokens: usize,
}

fn cases(folder: &Path) -> Vec<Case> {
    let mut text = String::new();
    let file = std::fs::File::open(folder.join("cases.jsonl.gz")).unwrap();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn settings(max_sequence_length: Option<usize>) -> EngineSettings {
    EngineSettings {
        backend: BackendChoice::CandleTransformers,
        max_sequence_length,
        ..EngineSettings::default()
    }
}

fn folder_of(path: impl Into<PathBuf>) -> ModelSource {
    ModelSource::Folder(path.into())
}

fn request(prompt: Prompt, new_tokens: usize) -> GenerateRequest {
    GenerateRequest {
        input: prompt,
        stop: StopCondition::Never,
        ignore_eos: true,
        first_logits: 4096,
        ..GenerateRequest::text("", new_tokens)
    }
}

/// The largest error of the recorded logits.
fn error(case: &Case, generation: &Generation) -> f32 {
    let logit = |id: u32| generation.first_logits.iter().find(|(found, _)| *found == id).unwrap().1;
    case.first_top8.iter().map(|(id, expected)| (logit(*id) - expected).abs()).fold(0.0, f32::max)
}

/// Every fourth case; all of them with `LUMOS_VARIATIONS=all`.
#[tokio::test(flavor = "multi_thread")]
async fn reference_folders_are_computed_like_transformers() {
    let all = lumos_capabilities::all_variations();
    for name in EQUAL {
        let Some(folder) = lumos_capabilities::shared(&format!("golden/{name}")) else { return };
        let model = InProcessModel::load(folder_of(&folder), &settings(None)).unwrap();
        let cases = cases(&folder);
        let fitting = cases.iter().filter(|case| case.ids.len() <= LONGEST);
        for case in fitting.step_by(if all { 1 } else { 4 }) {
            let generated = model.generate(request(Prompt::Text(case.prompt.clone()), 48)).await.unwrap();
            assert_eq!(generated.prompt_tokens, case.ids, "{name}");
            assert_eq!(generated.tokens[..case.safe_tokens], case.greedy[..case.safe_tokens], "{name}");
            let error = error(case, &generated);
            assert!(error < 1e-3, "{name}, prompt of {}: {error}", case.ids.len());
        }
    }
}

/// Fails when the crate computes one of these like transformers, so that its rule can be removed.
#[tokio::test(flavor = "multi_thread")]
async fn refused_folders_are_named_and_computed_differently() {
    for (name, field) in REFUSED {
        let Some(folder) = lumos_capabilities::shared(&format!("golden/{name}")) else { return };
        let refused = InProcessModel::load(folder_of(&folder), &settings(None)).unwrap_err();
        assert!(matches!(refused, LoadError::UnsupportedByBackend { .. }), "{refused}");
        let message = refused.to_string();
        for part in ["config.json", field, "hint: "] {
            assert!(message.contains(part), "{message}");
        }
        let unchecked = CandleTransformersBackend::load_unchecked(&folder_of(&folder), &settings(None));
        let backend = Arc::new(unchecked.unwrap());
        let mut most = 0.0_f32;
        for case in cases(&folder).iter().filter(|case| (60..LONGEST).contains(&case.ids.len())).take(3) {
            let generated = backend.generate(request(Prompt::Tokens(case.ids.clone()), 1)).await.unwrap();
            most = most.max(error(case, &generated));
        }
        assert!(most > 1e-2, "{name} is computed like transformers now ({most}): remove its rule");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_do_not_matter_in_sequences_that_fit() {
    for name in ["mistral", "gemma2"] {
        let Some(folder) = lumos_capabilities::shared(&format!("golden/families/{name}")) else { return };
        let model = InProcessModel::load(folder_of(&folder), &settings(Some(48))).unwrap();
        let mut compared = 0;
        for case in cases(&folder).iter().filter(|case| case.ids.len() < 48) {
            let generated = model.generate(request(Prompt::Tokens(case.ids.clone()), 48)).await.unwrap();
            assert_eq!(generated.tokens.len(), 48 - case.ids.len());
            let safe = case.safe_tokens.min(generated.tokens.len());
            assert_eq!(generated.tokens[..safe], case.greedy[..safe], "{name}");
            assert!(error(case, &generated) < 1e-3, "{name}");
            compared += 1;
        }
        assert_eq!(compared, 3);
        let long = model.generate(request(Prompt::Tokens(vec![5; 48]), 1)).await;
        assert_eq!(long, Err(GenerateError::PromptTooLong { tokens: 48, limit: 48 }));
    }
}

/// Families that the engine does not have; the folders are made by `tests/data/write_references.py`.
#[tokio::test(flavor = "multi_thread")]
async fn further_families_are_computed_like_transformers() {
    #[derive(Deserialize)]
    struct Further {
        ids: Vec<u32>,
        greedy: Vec<u32>,
        safe_tokens: usize,
        logits: Vec<f32>,
    }
    for name in ["gemma", "olmo", "qwen2-moe", "starcoder2"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
        let model = InProcessModel::load(folder_of(&folder), &settings(None)).unwrap();
        for line in std::fs::read_to_string(folder.join("cases.jsonl")).unwrap().lines() {
            let case: Further = serde_json::from_str(line).unwrap();
            let length = case.ids.len();
            let generated = model.generate(request(Prompt::Tokens(case.ids), 16)).await.unwrap();
            assert_eq!(
                generated.tokens[..case.safe_tokens],
                case.greedy[..case.safe_tokens],
                "{name}, {length}"
            );
            assert_eq!(generated.first_logits.len(), case.logits.len());
            for (id, logit) in &generated.first_logits {
                let error = (logit - case.logits[*id as usize]).abs();
                assert!(error < 1e-3, "{name}, prompt of {length}: {error}");
            }
        }
    }
}

fn tiny() -> ModelSource {
    builtin_source(BuiltinDomain::Maths, Role::Planner, Formulation::Iterative).unwrap()
}

/// The built-in planner as a folder, with changes of config.json.
fn tiny_folder(changes: &Value) -> tempfile::TempDir {
    let ModelSource::Memory(files) = tiny() else { panic!("the built-in model is embedded") };
    let folder = tempfile::tempdir().unwrap();
    let mut config: Value = serde_json::from_slice(files.config).unwrap();
    for (name, value) in changes.as_object().unwrap() {
        config[name] = value.clone();
    }
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), files.tokenizer).unwrap();
    std::fs::write(folder.path().join("model.safetensors"), files.weights).unwrap();
    folder
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engine_and_the_reference_agree() {
    let engine = Engine::load(tiny(), LoadOptions::default()).unwrap();
    let model = InProcessModel::load(tiny(), &settings(None)).unwrap();
    assert_eq!(model.description().parameters, engine.description().parameters);
    let InProcessModel::CandleTransformers(backend) = &model else { panic!("not the requested backend") };
    let text = "<|user|>\nPlease provide a reasonable subgoal-based plan to solve the given task.\n";
    let requests = [text, "7", "Question: How many pears?\n<|assistant|>\n"].map(|text| GenerateRequest {
        stop: StopCondition::Newline,
        ..request(Prompt::Text(text.into()), 24)
    });
    // Sequences wait for each other and do not depend on each other.
    let running = requests.clone().map(|request| {
        tokio::spawn({
            let model = model.clone();
            async move { model.generate(request).await.unwrap() }
        })
    });
    for (request, running) in requests.into_iter().zip(running) {
        let (native, reference) = (engine.generate(request).await.unwrap(), running.await.unwrap());
        assert_eq!(
            (&native.tokens, &native.text, native.finish),
            (&reference.tokens, &reference.text, reference.finish)
        );
        for (id, logit) in &native.first_logits {
            let other = reference.first_logits.iter().find(|(other, _)| other == id).unwrap().1;
            assert!((logit - other).abs() < 1e-3, "{id}: {logit} and {other}");
        }
        let trace = backend.trace(native.prompt_tokens.clone(), native.tokens.clone()).await.unwrap();
        let choices: Vec<u32> = trace.choices.iter().map(|choice| choice.token).collect();
        assert_eq!(choices, native.tokens);
        assert!(trace.choices.iter().all(|choice| choice.margin == 0.0));
    }
    let changed = backend.trace(vec![5, 6], vec![7, 8]).await.unwrap();
    assert!(changed.choices.iter().all(|choice| choice.margin > 0.0 || [7, 8].contains(&choice.token)));
    assert!(backend.trace(vec![5; 1000], vec![7; 25]).await.is_err());
    assert!(backend.trace(vec![5], vec![9999]).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_request_does_not_keep_its_turn() {
    let model = InProcessModel::load(tiny(), &settings(None)).unwrap();
    let mut dropped = Box::pin(model.generate(request(Prompt::Tokens(vec![5; 900]), 100)));
    assert!(futures::poll!(&mut dropped).is_pending());
    drop(dropped);
    assert_eq!(model.generate(request(Prompt::Tokens(vec![5]), 2)).await.unwrap().tokens.len(), 2);
}

#[test]
fn bad_configurations_name_file_and_field() {
    let refused = |changes: Value, field: &str| {
        let folder = tiny_folder(&changes);
        let error = InProcessModel::load(folder_of(folder.path()), &settings(None)).unwrap_err().to_string();
        assert!(error.contains(field), "{changes}: {error}");
        assert!(error.contains("config.json") || error.contains("model.safetensors"), "{changes}: {error}");
    };
    // Bounded before memory is spent.
    refused(json!({"num_hidden_layers": 1_000_000_000_000_u64}), "num_hidden_layers");
    refused(json!({"hidden_size": 0}), "hidden_size");
    refused(json!({"num_attention_heads": -4}), "num_attention_heads");
    refused(json!({"num_key_value_heads": 3}), "num_key_value_heads");
    refused(json!({"max_position_embeddings": 1_u64 << 40}), "max_position_embeddings");
    refused(json!({"rope_theta": 0}), "rope_theta");
    refused(json!({"hidden_size": "many"}), "hidden_size");
    refused(json!({"intermediate_size": null}), "intermediate_size");
    // Not in the files.
    refused(json!({"num_hidden_layers": 8}), "model.layers.7.");
    refused(json!({"intermediate_size": 640}), "mlp.gate_proj.weight");
    refused(json!({"tie_word_embeddings": false}), "lm_head.weight");
    refused(json!({"architectures": ["Qwen3ForCausalLM"], "head_dim": 32}), "q_norm.weight");
    // Computed differently.
    refused(json!({"architectures": ["GPT2LMHeadModel"]}), "GPT2LMHeadModel");
    refused(json!({"hidden_act": "gelu"}), "hidden_act is gelu");
    refused(json!({"attention_bias": true}), "attention_bias");
    refused(json!({"quantization_config": {"quant_method": "awq"}}), "quantization_config");
    refused(json!({"rope_scaling": {"type": "linear", "factor": 2.0}}), "rope_scaling.type is linear");
    refused(json!({"head_dim": 64}), "head_dim");
    let qwen = |field: &str, value: Value| json!({"architectures": ["Qwen2ForCausalLM"], field: value});
    refused(qwen("use_sliding_window", json!(true)), "use_sliding_window");
    refused(qwen("layer_types", json!(vec!["sliding_attention"; 5])), "layer_types");
    let phi = |field: &str, value: Value| json!({"architectures": ["Phi3ForCausalLM"], field: value});
    let longrope = json!({"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]});
    refused(phi("rope_scaling", longrope), "longrope");
    refused(phi("sliding_window", json!(64)), "sliding_window is 64");
    let gemma = |field: &str, value: Value| json!({"architectures": ["Gemma3ForCausalLM"], "hidden_act": null, field: value});
    refused(gemma("query_pre_attn_scalar", json!(168)), "query_pre_attn_scalar");
    let scaled = json!({"full_attention": {"rope_type": "linear", "factor": 8.0}});
    refused(gemma("rope_parameters", scaled), "rope_parameters.full_attention.rope_type");
    let mixtral = json!({"architectures": ["MixtralForCausalLM"], "num_local_experts": 1_000_000});
    refused(mixtral, "num_local_experts");
}

#[test]
fn unsupported_settings_are_refused() {
    let load = |settings| InProcessModel::load(tiny(), &settings).unwrap_err().to_string();
    let half = EngineSettings { dtype: lumos_engine::DType::Bf16, ..settings(None) };
    assert!(load(half).contains("--dtype f32"));
    let gpu = EngineSettings { device: lumos_tasks::Device::Cuda(0), ..settings(None) };
    assert!(load(gpu).contains(if cfg!(feature = "candle-cuda") { "cuda:0" } else { "`candle-cuda`" }));
    let memory = lumos_models::MemoryShare { bytes: 1000, cache_bytes: 10 };
    assert!(load(EngineSettings { memory: Some(memory), ..settings(None) }).contains("weights"));
    let gguf = InProcessModel::load(ModelSource::Gguf("model.gguf".into()), &settings(None)).unwrap_err();
    assert!(
        gguf.to_string().contains("model.gguf") && gguf.to_string().contains("float checkpoint"),
        "{gguf}"
    );
}

/// The built-in model has the tensors of a Gemma 1, which the engine does not have.
fn gemma() -> tempfile::TempDir {
    tiny_folder(&json!({
        "architectures": ["GemmaForCausalLM"], "model_type": "gemma", "head_dim": 32,
        "hidden_act": "gelu_pytorch_tanh",
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn architectures_that_the_engine_lacks_are_chosen_automatically() {
    let folder = gemma();
    let native = EngineSettings { backend: BackendChoice::Native, ..EngineSettings::default() };
    let refused = InProcessModel::load(folder_of(folder.path()), &native).unwrap_err();
    assert!(
        matches!(&refused, LoadError::UnsupportedFamily { architecture, .. } if architecture == "GemmaForCausalLM")
    );
    let automatic = InProcessModel::load(folder_of(folder.path()), &EngineSettings::default()).unwrap();
    assert!(matches!(automatic, InProcessModel::CandleTransformers(_)));
    assert!(matches!(
        InProcessModel::load(tiny(), &EngineSettings::default()).unwrap(),
        InProcessModel::Native(_)
    ));

    // The identity records the backend, and a worker follows it whatever its own setting is.
    let name = format!("candle:{}", folder.path().display());
    let registry = |engine: EngineSettings| ModelRegistry::new(ModelsSettings::from(engine));
    let identity = |engine, name: &str| {
        registry(engine).identify(name, Role::Planner, Formulation::Iterative).unwrap().identity
    };
    let planned = identity(EngineSettings::default(), &name);
    assert_eq!(planned.dtype.as_deref(), Some("f32+candle-transformers-0.11.1"));
    assert_eq!(identity(settings(None), &name), planned);
    assert_eq!(identity(native, &name).dtype.as_deref(), Some("f32+full-rotary"));
    let builtin = identity(EngineSettings::default(), "builtin:tiny");
    assert_eq!(builtin.dtype.as_deref(), Some("f32+full-rotary"));
    let forced = identity(settings(None), "builtin:tiny");
    assert_eq!(forced.dtype, planned.dtype);
    assert_eq!(
        registry(native).engine_settings(&planned, Role::Planner).unwrap().backend,
        BackendChoice::CandleTransformers
    );
    assert_eq!(
        registry(settings(None)).engine_settings(&builtin, Role::Planner).unwrap().backend,
        BackendChoice::Native
    );
}
