//! A GGUF file of every family has the description, the tensors and the results of the folder that it was made from.

use std::path::Path;

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use serde_json::Value;

use super::open;
use crate::error::LoadError;
use crate::fixtures::gguf::GgufModel;
use crate::fixtures::gguf_families::{configurations, model};
use crate::fixtures::{Files, NamedTensor, Uniform, byte_tokenizer, safetensors};
use crate::load::block::{Block, ModelConfig};
use crate::load::weights::{Weights, to_f32};
use crate::{Engine, GenerateRequest, LoadOptions, ModelSource, Prompt, SamplingParams, StopCondition};

fn parsed(config: &Value) -> ModelConfig {
    ModelConfig::parse(config.to_string().as_bytes(), None, Path::new("config.json")).unwrap()
}

/// Random weights: matrices with a deviation that keeps the size of what they are multiplied with.
fn weights(config: &ModelConfig) -> Vec<NamedTensor> {
    let mut random = Uniform::new(5);
    let tensor = |(name, dims): (String, Vec<usize>)| {
        let count = dims.iter().product();
        let values = match &dims[..] {
            [_, columns] => random.values(count, 1.5 / (*columns as f32).sqrt()),
            _ if name.ends_with("bias") => random.values(count, 0.1),
            _ => {
                random.values(count, 0.2).iter().map(|value| 1.0 - config.block.norm_offset + value).collect()
            }
        };
        (name, dims, values)
    };
    config.tensors(300).into_iter().map(tensor).collect()
}

fn folder(config: &Value, weights: &[NamedTensor]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let files = Files {
        config: config.to_string().into_bytes(),
        tokenizer: byte_tokenizer().to_string().into_bytes(),
        weights: safetensors(weights),
    };
    files.write(folder.path());
    folder
}

fn written(model: &GgufModel) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    model.write(&path);
    (folder, path)
}

/// Logits after a prompt, and the tokens that follow it.
type Computed = (Vec<(u32, f32)>, Vec<u32>);

/// The results for a short and a long prompt, which exceeds the windows and LongRoPE's original length.
fn results(source: ModelSource) -> Vec<Computed> {
    let engine = Engine::load(source, LoadOptions::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let results = [7, 90].map(|length| {
        let request = GenerateRequest {
            input: Prompt::Tokens((3..3 + length).collect()),
            stop: StopCondition::Never,
            max_new_tokens: 12,
            sampling: SamplingParams::GREEDY,
            ignore_eos: true,
            first_logits: 300,
            forced: Vec::new(),
            deadline: None,
        };
        let mut generation = runtime.block_on(engine.generate(request)).unwrap();
        generation.first_logits.sort_unstable_by_key(|(id, _)| *id);
        (generation.first_logits, generation.tokens)
    });
    engine.shutdown();
    results.into()
}

#[test]
fn files_of_every_family_equal_their_folders_to_the_bit() {
    for (architecture, config) in configurations(false) {
        let original = parsed(&config);
        let weights = weights(&original);
        let folder = folder(&config, &weights);
        let (_file, path) = written(&model(architecture, &config, &weights, GgmlDType::F32));
        let (found, _, _) = open(&path).unwrap();
        let expected = ModelConfig {
            // The file has 32 bits of it.
            norm_epsilon: f64::from(original.norm_epsilon as f32),
            block: Block { norm_offset: 0.0, ..original.block.clone() },
            ..original
        };
        assert_eq!(found, expected);
        let expected = results(ModelSource::Folder(folder.path().to_owned()));
        assert!(expected.iter().all(|(logits, _)| logits.iter().all(|(_, logit)| logit.is_finite())));
        assert_eq!(results(ModelSource::Gguf(path)), expected, "{}", config["architectures"]);
    }
}

/// Weights after quantization to a type and dequantization.
fn widened(weights: &[NamedTensor], dtype: GgmlDType) -> Vec<NamedTensor> {
    let widen = |(name, dims, values): &NamedTensor| {
        let tensor = Tensor::from_slice(values, dims.clone(), &Device::Cpu).unwrap();
        // Routers are not quantized.
        let whole = dims.len() == 1 || name.ends_with("mlp.gate.weight") || name.ends_with("moe.gate.weight");
        let dtype = if whole { GgmlDType::F32 } else { dtype };
        let widened = QTensor::quantize(&tensor, dtype).unwrap().dequantize(&Device::Cpu).unwrap();
        (name.clone(), dims.clone(), to_f32(&widened).unwrap())
    };
    weights.iter().map(widen).collect()
}

/// Every expert and every fused or interleaved matrix has its own blocks, and products of blocks stay within the error
/// of rounded activations.
#[test]
fn quantized_files_have_the_values_of_the_folder() {
    for (index, (architecture, config)) in configurations(true).into_iter().enumerate() {
        let weights = weights(&parsed(&config));
        let of_256 = [GgmlDType::Q4K, GgmlDType::Q6K];
        let of_256 = if lumos_capabilities::all_variations() { &of_256 } else { &of_256[index % 2..][..1] };
        for dtype in [GgmlDType::Q8_0].into_iter().chain(of_256.iter().copied()) {
            let (_file, path) = written(&model(architecture, &config, &weights, dtype));
            let (_, _, tensors) = open(&path).unwrap();
            let gemma = architecture.starts_with("gemma");
            let found = Weights::of_gguf(tensors, &path);
            let widened = widened(&weights, dtype);
            for (name, dims, values) in &widened {
                let offset = if gemma && name.ends_with("norm.weight") { 1.0 } else { 0.0 };
                let expected: Vec<f32> = values.iter().map(|value| value + offset).collect();
                assert_eq!(found.values(name, dims).unwrap(), expected, "{name} {dtype:?}");
                if let (&[rows, columns], false) = (&dims[..], name.ends_with(".gate.weight")) {
                    assert!(found.quantized(name, [rows, columns]).unwrap().is_some(), "{name} {dtype:?}");
                }
            }
            if dtype == GgmlDType::Q8_0 {
                let folder = folder(&config, &widened);
                let expected = results(ModelSource::Folder(folder.path().to_owned()));
                let found = results(ModelSource::Gguf(path));
                let (mut square, mut size) = (0.0, 0.0);
                for ((found, _), (expected, _)) in found.iter().zip(&expected) {
                    for ((_, found), (_, expected)) in found.iter().zip(expected) {
                        square += f64::from(found - expected).powi(2);
                        size += f64::from(*expected).powi(2);
                    }
                }
                let distance = (square / size).sqrt();
                println!("{}: {distance:.4}", config["architectures"]);
                assert!(distance < 0.03, "{}: {distance}", config["architectures"]);
            }
        }
    }
}

fn mixture() -> (Value, Vec<NamedTensor>, GgufModel) {
    let (_, config) = configurations(false).into_iter().nth(1).unwrap();
    let weights = weights(&parsed(&config));
    let model = model("llama", &config, &weights, GgmlDType::F32);
    (config, weights, model)
}

/// Files from before April 2024 have one tensor for each expert.
#[test]
fn separate_experts_are_found() {
    let (_, weights, mut model) = mixture();
    let (_file, path) = written(&model);
    let expected = results(ModelSource::Gguf(path));
    model.tensors.retain(|(name, _)| !name.contains("_exps"));
    for (name, dims, values) in weights.iter().filter(|(name, _, _)| name.contains("experts")) {
        let parts: Vec<&str> = name.split('.').collect();
        let part = match parts[6] {
            "w1" => "gate",
            "w2" => "down",
            _ => "up",
        };
        let tensor = Tensor::from_slice(values, dims.clone(), &Device::Cpu).unwrap();
        let name = format!("blk.{}.ffn_{part}.{}.weight", parts[2], parts[5]);
        model.tensors.push((name, QTensor::quantize(&tensor, GgmlDType::F32).unwrap()));
    }
    let (_file, path) = written(&model);
    assert_eq!(results(ModelSource::Gguf(path)), expected);
}

/// A token reads the active experts only.
#[test]
fn sizes_count_active_experts() {
    let (_, config) = configurations(true).into_iter().nth(1).unwrap();
    let weights = weights(&parsed(&config));
    let (_file, path) = written(&model("llama", &config, &weights, GgmlDType::Q8_0));
    let (_, _, tensors) = open(&path).unwrap();
    let (read, all) = tensors.quantized_bytes(Some("model.embed_tokens.weight"), 4).unwrap();
    let expert = 256 * 256 / 32 * 34;
    // Two layers, three matrices, two of four experts.
    assert_eq!(all - read, 2 * 3 * 2 * expert);
    assert!(read > 2 * 3 * 2 * expert);
}

#[test]
fn faults_of_families_are_named() {
    let fault = |architecture: &str, change: &dyn Fn(&mut GgufModel)| -> LoadError {
        let found = configurations(false).into_iter().find(|(name, _)| *name == architecture);
        let (_, config) = found.unwrap();
        let mut model = model(architecture, &config, &weights(&parsed(&config)), GgmlDType::F32);
        change(&mut model);
        let (_file, path) = written(&model);
        Engine::load(ModelSource::Gguf(path), LoadOptions::default()).unwrap_err()
    };
    let number = candle_core::quantized::gguf_file::Value::U32;
    let set = |key: &'static str, value: u32| move |model: &mut GgufModel| model.set(key, number(value));
    let unset = |key: &'static str| move |model: &mut GgufModel| model.unset(key);
    let without = |part: &'static str| {
        move |model: &mut GgufModel| model.tensors.retain(|(name, _)| !name.contains(part))
    };
    type Fault<'a> = (&'a str, &'a dyn Fn(&mut GgufModel), &'a str);
    let faults: [Fault<'_>; 11] = [
        ("qwen3moe", &set("qwen3moe.expert_count", 4), "6 experts, but the metadata has 4"),
        ("qwen3moe", &set("qwen3moe.expert_used_count", 7), "num_experts_per_tok"),
        ("qwen3moe", &unset("qwen3moe.expert_count"), "qwen3moe.expert_count"),
        ("qwen3moe", &unset("qwen3moe.expert_feed_forward_length"), "qwen3moe.expert_feed_forward_length"),
        ("qwen3moe", &without("blk.1.ffn_up_exps"), "model.layers.1.mlp.experts.0.up_proj.weight"),
        ("qwen3", &set("qwen3.expert_count", 8), "qwen3.expert_count 8 is not supported"),
        ("qwen2", &without("blk.0.attn_k.bias"), "model.layers.0.self_attn.k_proj.bias"),
        ("phi3", &set("phi3.rope.dimension_count", 6), "short_factor"),
        ("olmo2", &set("olmo2.attention.sliding_window", 8), "olmo2.attention.sliding_window"),
        ("granite", &unset("granite.attention.scale"), "granite.attention.scale"),
        ("gemma2", &set("gemma2.attention.sliding_window", 4096), "sliding_window"),
    ];
    for (architecture, change, words) in faults {
        let message = fault(architecture, change).to_string();
        assert!(message.contains(words) && message.contains("model.gguf"), "{message} lacks {words}");
    }
}
