//! LoRA adapters: merging gives the same bits as merging by hand, adapters are distinguished by content, and
//! errors name the file and the tensor.

use crate::support;
use std::path::{Path, PathBuf};

use crate::requests::greedy;
use crate::support::adapter::Adapter;
use crate::support::{Shape, Uniform, pickle, safetensors};
use lumos_engine::{DType, Engine, Generation, LoadError, LoadOptions, ModelSource, Prompt, adapter_base};
use serde::Deserialize;
use serde_json::json;
use tempfile::TempDir;

/// A base model and an adapter in separate folders.
struct Folders {
    base: TempDir,
    adapter: TempDir,
}

impl Folders {
    fn new(shape: &Shape, adapter: &Adapter) -> Self {
        let folders = Self { base: tempfile::tempdir().unwrap(), adapter: tempfile::tempdir().unwrap() };
        shape.files(1).write(folders.base.path());
        adapter.write(folders.adapter.path());
        folders
    }

    fn source(&self) -> ModelSource {
        ModelSource::Adapted { base: self.base.path().into(), adapter: self.adapter.path().into() }
    }

    fn load(&self) -> Result<Engine, LoadError> {
        Engine::load(self.source(), LoadOptions::default())
    }
}

/// Writes the base model, with the adapter merged by hand, to a folder.
fn by_hand(shape: &Shape, adapter: &Adapter) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut files = shape.files(1);
    files.weights = safetensors(&adapter.merge(shape.tensors(1)));
    files.write(folder.path());
    folder
}

async fn generation(source: ModelSource, dtype: DType) -> Generation {
    let engine = Engine::load(source, LoadOptions { dtype, ..LoadOptions::default() }).unwrap();
    engine.generate(greedy(Prompt::Tokens((3..60).collect()), 24, 300)).await.unwrap()
}

/// Checks that the engine's merged model generates the same bits as the one merged by hand, and that the base
/// does not.
async fn assert_merged(shape: &Shape, adapter: &Adapter, dtype: DType) {
    let (folders, hand) = (Folders::new(shape, adapter), by_hand(shape, adapter));
    let merged = generation(folders.source(), dtype).await;
    assert_eq!(merged, generation(ModelSource::Folder(hand.path().into()), dtype).await);
    let base = generation(ModelSource::Folder(folders.base.path().into()), dtype).await;
    assert_ne!(merged.first_logits, base.first_logits);
}

#[tokio::test]
async fn merged_weights_are_those_by_hand_in_every_type() {
    let (shape, tied) = (Shape::tiny(), Shape { tied: true, ..Shape::tiny() });
    for dtype in [DType::F32, DType::Bf16, DType::F16] {
        assert_merged(&shape, &Adapter::usual(&shape, 2), dtype).await;
        assert_merged(&tied, &Adapter::usual(&tied, 2), dtype).await;
    }
    // All matrices, with grouped heads: queries, keys and values have different sizes.
    let all = Adapter::random(&shape, 3, |_| Some((4, 2.0)));
    assert_merged(&shape, &all, DType::F32).await;
}

/// Adapters for all matrices of the layers, whatever a family names them: fused projections, routers and experts.
#[tokio::test]
async fn merged_weights_are_those_by_hand_in_every_family() {
    for family in ["qwen3", "gemma3_text", "qwen3_moe", "mixtral", "phi3"] {
        let shape = Shape::of(family);
        let in_layer = |module: &str| module.starts_with("model.layers.").then_some((4, 2.0));
        let adapter = Adapter::random(&shape, 8, in_layer);
        assert_merged(&shape, &adapter, DType::F32).await;
        let attention = |module: &str| module.contains("self_attn").then_some((4, 2.0));
        assert_merged(&shape, &Adapter::random(&shape, 9, attention), DType::Bf16).await;
    }
}

#[tokio::test]
async fn ranks_and_scales_are_those_of_their_patterns() {
    let shape = Shape::tiny();
    let patterns = json!({
        "target_modules": r".*\.(q_proj|down_proj)",
        "rank_pattern": {"down_proj": 3, "layers.1.self_attn.q_proj": 16},
        "alpha_pattern": {r"layers\.0\..*": 6, "down_proj": 12},
    });
    let adapter = Adapter::random(&shape, 4, |module| match module {
        "model.layers.0.self_attn.q_proj" => Some((4, 6.0 / 4.0)),
        "model.layers.1.self_attn.q_proj" => Some((16, 8.0 / 16.0)),
        "model.layers.0.mlp.down_proj" => Some((3, 6.0 / 3.0)),
        "model.layers.1.mlp.down_proj" => Some((3, 12.0 / 3.0)),
        _ => None,
    });
    assert_merged(&shape, &adapter.with(&patterns), DType::F32).await;
    let stabilised = json!({"use_rslora": true, "rank_pattern": {"v_proj": 2}, "lora_alpha": 5});
    let adapter = Adapter::random(&shape, 5, |module| match module.rsplit('.').next() {
        Some("q_proj") => Some((4, (5.0 / 4f64.sqrt()) as f32)),
        Some("v_proj") => Some((2, (5.0 / 2f64.sqrt()) as f32)),
        _ => None,
    });
    assert_merged(&shape, &adapter.with(&stabilised), DType::F32).await;
}

#[tokio::test]
async fn modules_that_were_trained_as_a_whole_take_their_places() {
    let shape = Shape::tiny();
    let mut random = Uniform::new(6);
    let mut matrix = |name: &str, rows| (name.to_owned(), vec![rows, 48], random.values(rows * 48, 0.4));
    let mut adapter =
        Adapter::usual(&shape, 6).with(&json!({"modules_to_save": ["embed_tokens", "lm_head"]}));
    // Two tokens were added.
    adapter.whole = vec![matrix("model.embed_tokens.weight", 302), matrix("lm_head.weight", 302)];
    assert_merged(&shape, &adapter, DType::F32).await;
    adapter.whole.push(("model.norm.weight".to_owned(), vec![48], Uniform::new(7).values(48, 1.0)));
    assert_merged(&shape, &adapter, DType::F32).await;
    let folders = Folders::new(&shape, &adapter);
    assert_eq!(folders.load().unwrap().description().vocabulary, 302);
}

#[tokio::test]
async fn pickled_adapters_and_tokenizers_of_their_own_are_read() {
    let shape = Shape::tiny();
    let adapter = Adapter::usual(&shape, 2);
    let folders = Folders::new(&shape, &adapter);
    let expected = generation(folders.source(), DType::F32).await;
    let file = |name: &str| folders.adapter.path().join(name);
    std::fs::remove_file(file("adapter_model.safetensors")).unwrap();
    std::fs::write(file("adapter_model.bin"), pickle::pickle(&adapter.tensors(), false)).unwrap();
    assert_eq!(generation(folders.source(), DType::F32).await, expected);
    let before = folders.load().unwrap().description().tokenizer_sha256.clone();
    let mut tokenizer = support::byte_tokenizer();
    tokenizer["added_tokens"][1]["content"] = json!("<begin>");
    std::fs::write(file("tokenizer.json"), tokenizer.to_string()).unwrap();
    assert_ne!(folders.load().unwrap().description().tokenizer_sha256, before);
}

#[test]
fn models_are_told_apart_by_adapter() {
    let shape = Shape::tiny();
    let adapter = Adapter::usual(&shape, 2);
    let (one, copy) = (Folders::new(&shape, &adapter), Folders::new(&shape, &adapter));
    let weights = Folders::new(&shape, &Adapter::usual(&shape, 3));
    let scale = Folders::new(&shape, &adapter.clone().with(&json!({"lora_alpha": 9})));
    let description = |folders: &Folders| folders.load().unwrap().description().clone();
    let first = description(&one);
    let names: Vec<&str> = first.weight_files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["model.safetensors", "adapter_config.json", "adapter_model.safetensors"]);
    assert!(first.weight_files.iter().all(|file| file.sha256.len() == 64));
    assert_eq!(description(&copy), first);
    for other in [&weights, &scale] {
        assert_ne!(description(other).weight_files, first.weight_files);
    }
}

#[test]
fn the_base_stands_in_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let named = json!({"base_model_name_or_path": "org/base", "revision": "main"}).to_string();
    std::fs::write(folder.path().join("adapter_config.json"), named).unwrap();
    let base = adapter_base(folder.path()).unwrap();
    assert_eq!((base.name.as_str(), base.revision.as_deref()), ("org/base", Some("main")));
    let alone = Engine::load(ModelSource::Folder(folder.path().into()), LoadOptions::default());
    let error = alone.unwrap_err().to_string();
    assert!(error.contains("config.json") && error.contains("adapter") && error.contains("base"), "{error}");
    let empty = tempfile::tempdir().unwrap();
    assert!(adapter_base(empty.path()).unwrap_err().to_string().contains("adapter_config.json"));
}

/// A change to a valid adapter, and words that the error must contain.
type Fault<'a> = (&'a dyn Fn(&mut Adapter), &'a [&'a str]);

#[test]
fn faults_are_named() {
    let shape = Shape::tiny();
    let message = |shape: &Shape, change: &dyn Fn(&mut Adapter)| {
        let mut adapter = Adapter::usual(shape, 2);
        change(&mut adapter);
        let folders = Folders::new(shape, &adapter);
        folders.load().unwrap_err().to_string()
    };
    let field =
        |fields: serde_json::Value| move |adapter: &mut Adapter| *adapter = adapter.clone().with(&fields);
    let whole = |name: &'static str, shape: &'static [usize]| {
        move |adapter: &mut Adapter| {
            let values = vec![0.5; shape.iter().product()];
            adapter.whole.push((name.to_owned(), shape.to_vec(), values));
        }
    };
    let module =
        |name: &'static str| move |adapter: &mut Adapter| adapter.products[0].module = name.to_owned();
    let narrow = |adapter: &mut Adapter| {
        let product = &mut adapter.products[1];
        product.up.truncate(product.up.len() / 2);
    };
    let remedy = "merge_and_unload";
    let other = "another base model";
    let cases: [Fault<'_>; 17] = [
        (&field(json!({"use_dora": true})), &["adapter_config.json", "use_dora", remedy]),
        (&field(json!({"target_parameters": ["mlp.experts.gate_up_proj"]})), &["target_parameters", remedy]),
        (&field(json!({"peft_type": "PROMPT_TUNING"})), &["adapter_config.json", "PROMPT_TUNING", remedy]),
        (&field(json!({"bias": "all"})), &["adapter_config.json", "bias is \"all\"", remedy]),
        (&field(json!({"r": "many"})), &["adapter_config.json", "not valid", "many"]),
        (&field(json!({"r": 8})), &["adapter_model.safetensors", "lora_A", "[4, 48]", "[8, 48]", other]),
        (&field(json!({"rank_pattern": {"v_proj": 2}})), &["v_proj.lora_A.weight", "[2, 48]", other]),
        (&field(json!({"modules_to_save": ["lm_head"]})), &["modules_to_save", "lm_head", other]),
        (&narrow, &["layers.0.self_attn.v_proj.lora_B.weight", "[8, 4]", "[16, 4]", other]),
        (
            &module("model.layers.9.self_attn.q_proj"),
            &["layers.9.self_attn.q_proj.weight", "missing in the base", other],
        ),
        (&module("model.layers.0.self_attn.qkv"), &["self_attn.qkv.weight", "missing in the base", other]),
        (&module("model.norm"), &["model.norm.weight", "not a matrix", remedy]),
        (&module("model.embed_tokens"), &["model.embed_tokens", "embedding", remedy]),
        (&whole("lm_head.weight", &[200, 48]), &["lm_head.weight", "[200, 48]", "[300, 48]", other]),
        (&whole("score.weight", &[2, 48]), &["score.weight", "missing in the base", other]),
        (
            &whole("model.layers.0.mlp.up_proj.lora_magnitude_vector", &[100]),
            &["lora_magnitude_vector", remedy],
        ),
        (&|adapter| adapter.products.clear(), &["adapter_model.safetensors", "no tensor", other]),
    ];
    for (change, words) in cases {
        let message = message(&shape, change);
        for word in words {
            assert!(message.contains(word), "{message:?} lacks {word:?}");
        }
    }
    // If embedding and head are tied, an adapter for one of them cannot be merged.
    let tied = Shape { tied: true, ..shape };
    for change in [&module("lm_head") as &dyn Fn(&mut Adapter), &whole("lm_head.weight", &[300, 48])] {
        let message = message(&tied, change);
        assert!(message.contains("tie_word_embeddings") && message.contains(remedy), "{message}");
    }
}

#[test]
fn faults_of_files_are_named() {
    let shape = Shape::tiny();
    let adapter = Adapter::usual(&shape, 2);
    let tensors = |keep: &dyn Fn(&str) -> bool| {
        safetensors(&adapter.tensors().into_iter().filter(|(name, _, _)| keep(name)).collect::<Vec<_>>())
    };
    let message = |name: &str, content: Option<Vec<u8>>| {
        let folders = Folders::new(&shape, &adapter);
        let file = folders.adapter.path().join(name);
        match content {
            Some(content) => std::fs::write(file, content).unwrap(),
            None => std::fs::remove_file(file).unwrap(),
        }
        folders.load().unwrap_err().to_string()
    };
    let weights = "adapter_model.safetensors";
    let alone =
        |factor: &'static str| tensors(&|name| !(name.contains("layers.1.") && name.contains(factor)));
    for (message, words) in [
        (message("adapter_config.json", None), ["adapter_config.json", "copy the adapter"]),
        (message(weights, None), [weights, "adapter_model.bin"]),
        (message("adapter_config.json", Some(b"{".to_vec())), ["adapter_config.json", "not valid"]),
        (message(weights, Some(b"no tensors".to_vec())), [weights, "damaged"]),
        (message(weights, Some(alone("lora_A"))), ["lora_B.weight", "no matching lora_A"]),
        (message(weights, Some(alone("lora_B"))), ["lora_A.weight", "no matching lora_B"]),
    ] {
        assert!(words.iter().all(|word| message.contains(word)), "{message:?} lacks one of {words:?}");
    }
    let folders = Folders::new(&shape, &adapter);
    let quantized = folders.base.path().join("model.Q4_K_M.gguf");
    let source = ModelSource::adapted(&quantized, folders.adapter.path());
    let error = source.unwrap_err().to_string();
    assert!(error.contains("model.Q4_K_M.gguf") && error.contains("float checkpoint"), "{error}");
    let gone = ModelSource::Adapted { base: folders.base.path().into(), adapter: "/nowhere/at/all".into() };
    let error = Engine::load(gone, LoadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("/nowhere/at/all does not exist"), "{error}");
}

/// Results of peft for an adapter and its base, in float32 (`tests/tools/adapters.py`).
#[derive(Deserialize)]
struct Case {
    adapter: String,
    prompt: String,
    ids: Vec<u32>,
    greedy: Vec<u32>,
    /// Number of leading tokens whose distance from the second best exceeds rounding errors.
    safe_tokens: usize,
    first_top8: Vec<(u32, f32)>,
}

#[tokio::test]
async fn peft_computes_the_same() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/adapters");
    let cases = std::fs::read_to_string(data.join("cases.jsonl")).unwrap();
    let cases: Vec<Case> = cases.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(cases.len(), 8);
    let mut farthest = 0.0f32;
    for Case { adapter, prompt, ids, greedy: expected, safe_tokens, first_top8 } in cases {
        let adapter: PathBuf = data.join(adapter);
        assert_eq!(adapter_base(&adapter).unwrap().name, "../base");
        let source = ModelSource::adapted(&data.join("base"), &adapter).unwrap();
        let engine = Engine::load(source, LoadOptions::default()).unwrap();
        assert_eq!(engine.tokenizer().encode(&prompt).unwrap(), ids);
        let found = engine.generate(greedy(Prompt::Tokens(ids), expected.len(), 259)).await.unwrap();
        assert_eq!(found.tokens[..safe_tokens], expected[..safe_tokens], "{prompt}");
        for (token, logit) in first_top8 {
            let ours = found.first_logits.iter().find(|(found, _)| *found == token).unwrap().1;
            farthest = farthest.max((ours - logit).abs());
        }
    }
    assert!(farthest < 1e-4, "{farthest}");
}
