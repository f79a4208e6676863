//! Compares GGUF files with folders of the same weights: equal to the bit if the type is exact, and within
//! the error of the format if not. Also tests tokenizers, names and errors.

use crate::cases;
use crate::support;
use std::path::{Path, PathBuf};

use crate::requests::{alone, greedy, together};
use crate::support::gguf::{GgufModel, text};
use crate::support::gguf_families;
use crate::support::{NamedTensor, Shape, Uniform};
use candle_core::quantized::gguf_file::Value;
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use lumos_engine::{
    DType, Engine, GenerateRequest, Generation, LoadError, LoadOptions, ModelSource, Prompt, StoredChat,
};
use serde_json::json;
use tempfile::TempDir;

/// A shape whose rows consist of whole blocks in every format.
fn wide() -> Shape {
    Shape { hidden: 256, intermediate: 512, layers: 3, heads: 8, key_value_heads: 4, ..Shape::tiny() }
}

fn folder(shape: &Shape) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    shape.files(1).write(folder.path());
    folder
}

fn written(model: &GgufModel) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    model.write(&path);
    (folder, path)
}

fn load(source: ModelSource) -> Engine {
    Engine::load(source, LoadOptions::default()).unwrap()
}

fn prompts() -> Vec<GenerateRequest> {
    let mut random = Uniform::new(5);
    let mut requests = vec![greedy(Prompt::Text("the inn\n in the é 🙂".to_owned()), 20, 300)];
    for length in [1, 2, 17, 40, 90] {
        let ids = (0..length).map(|_| random.below(300) as u32).collect();
        requests.push(greedy(Prompt::Tokens(ids), 20, 300));
    }
    requests
}

#[tokio::test]
async fn floats_equal_the_folder_to_the_bit() {
    for shape in [Shape::tiny(), wide(), Shape { tied: true, ..Shape::tiny() }] {
        let folder = folder(&shape);
        for (stored, dtype) in
            [(GgmlDType::F32, DType::F32), (GgmlDType::F16, DType::F16), (GgmlDType::F32, DType::Bf16)]
        {
            let options = LoadOptions { dtype, ..LoadOptions::default() };
            let expected =
                Engine::load(ModelSource::Folder(folder.path().to_owned()), options.clone()).unwrap();
            let (_folder, path) = written(&GgufModel::new(&shape, 1, stored));
            let found = Engine::load(ModelSource::Gguf(path), options).unwrap();
            assert_eq!(found.description().quantization, None);
            let (expected, found) = (alone(&expected, &prompts()).await, alone(&found, &prompts()).await);
            // Embeddings are computed in float32 for every type, so embeddings stored in half precision
            // differ.
            if stored == GgmlDType::F32 {
                assert_eq!(found, expected, "{dtype}");
            } else {
                let distance = distance(&found, &expected);
                assert!(distance < 2e-3, "{distance}");
            }
        }
    }
}

#[tokio::test]
async fn halves_are_exact_in_float32() {
    // Both the folder and the file contain the weights rounded to half precision.
    let shape = wide();
    let folder = folder_of(&shape, &widened(&shape.tensors(1), GgmlDType::F16));
    let expected = alone(&load(ModelSource::Folder(folder.path().to_owned())), &prompts()).await;
    let (_folder, path) = written(&GgufModel::new(&shape, 1, GgmlDType::F16));
    let engine = load(ModelSource::Gguf(path));
    assert_eq!(alone(&engine, &prompts()).await, expected);
    let description = engine.description();
    assert_eq!((description.architecture.as_str(), description.vocabulary), ("LlamaForCausalLM", 300));
    assert_eq!((description.context_length, description.weight_files[0].name.as_str()), (2048, "model.gguf"));
}

/// Root mean square of the differences between the first logits, relative to that of the logits.
fn distance(found: &[Generation], expected: &[Generation]) -> f64 {
    let logits = |generation: &Generation| {
        let mut logits = generation.first_logits.clone();
        logits.sort_unstable_by_key(|(id, _)| *id);
        logits
    };
    let (mut square, mut size) = (0.0, 0.0);
    for (found, expected) in found.iter().zip(expected) {
        for ((_, found), (_, expected)) in logits(found).iter().zip(logits(expected)) {
            square += f64::from(found - expected).powi(2);
            size += f64::from(expected).powi(2);
        }
    }
    (square / size).sqrt()
}

/// Writes the folder of a shape with the given weights.
fn folder_of(shape: &Shape, weights: &[NamedTensor]) -> TempDir {
    let folder = folder(shape);
    std::fs::write(folder.path().join("model.safetensors"), support::safetensors(weights)).unwrap();
    folder
}

/// The reference models of all families, in files whose layout was compared with llama.cpp.
#[tokio::test]
async fn reference_models_equal_their_folders_to_the_bit() {
    let families = [
        ("llama", "mixtral"),
        ("qwen2", "qwen2"),
        ("qwen2", "qwen2-yarn"),
        ("qwen3", "qwen3"),
        ("qwen3moe", "qwen3-moe"),
        ("gemma2", "gemma2"),
        ("gemma3", "gemma3"),
        ("phi3", "phi3"),
        ("olmo2", "olmo2"),
        ("granite", "granite"),
    ];
    for (architecture, name) in families {
        let Some(folder) = cases::family(name) else { return };
        let config = serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
        let tensors = candle_core::safetensors::load(folder.join("model.safetensors"), &Device::Cpu).unwrap();
        let mut weights: Vec<NamedTensor> = tensors
            .into_iter()
            .map(|(name, tensor)| {
                let values = tensor.to_dtype(candle_core::DType::F32).unwrap().flatten_all().unwrap();
                (name, tensor.dims().to_vec(), values.to_vec1().unwrap())
            })
            .collect();
        weights.sort_by(|(one, _, _), (other, _, _)| one.cmp(other));
        let (_file, path) = written(&gguf_families::model(architecture, &config, &weights, GgmlDType::F32));
        let requests: Vec<GenerateRequest> = cases::cases(&folder)
            .iter()
            .map(|case| greedy(Prompt::Tokens(case.ids.clone()), 8, 768))
            .collect();
        // The file has another tokenizer, so texts differ.
        let computed = |generations: Vec<Generation>| {
            let computed = |generation: Generation| (generation.tokens, generation.first_logits);
            generations.into_iter().map(computed).collect::<Vec<_>>()
        };
        let expected = computed(alone(&load(ModelSource::Folder(folder)), &requests).await);
        let found = computed(alone(&load(ModelSource::Gguf(path)), &requests).await);
        assert!(found == expected, "{name}");
    }
}

/// Returns weights after quantization to a format and dequantization.
fn widened(weights: &[NamedTensor], dtype: GgmlDType) -> Vec<NamedTensor> {
    let widen = |(name, dims, values): &NamedTensor| {
        let tensor = Tensor::from_slice(values, dims.clone(), &Device::Cpu).unwrap();
        let dtype = if dims.len() > 1 { dtype } else { GgmlDType::F32 };
        let widened = QTensor::quantize(&tensor, dtype).unwrap().dequantize(&Device::Cpu).unwrap();
        (name.clone(), dims.clone(), widened.flatten_all().unwrap().to_vec1().unwrap())
    };
    weights.iter().map(widen).collect()
}

/// Root mean square of the differences between the matrices, relative to that of their values.
fn weight_error(found: &[NamedTensor], expected: &[NamedTensor]) -> f64 {
    let (mut square, mut size) = (0.0, 0.0);
    for ((_, _, found), (_, _, expected)) in
        found.iter().zip(expected).filter(|(_, (_, dims, _))| dims.len() > 1)
    {
        for (found, expected) in found.iter().zip(expected) {
            square += f64::from(found - expected).powi(2);
            size += f64::from(*expected).powi(2);
        }
    }
    (square / size).sqrt()
}

/// Compared with float32, logits differ by the error of the format, for three layers of random, evenly spread
/// weights. Compared with a folder of the dequantized weights, they differ by the error of the kernels.
#[tokio::test]
async fn quantized_logits_keep_within_the_error_of_the_format() {
    let shape = wide();
    let mut weights = shape.tensors(1);
    // Smaller values, as in trained models. Otherwise attention jumps from one position to another.
    for (_, dims, values) in weights.iter_mut().filter(|(_, dims, _)| dims.len() > 1) {
        values.iter_mut().for_each(|value| *value /= 3.0);
        assert_eq!(dims.len(), 2);
    }
    let exact = folder_of(&shape, &weights);
    let exact = alone(&load(ModelSource::Folder(exact.path().to_owned())), &prompts()).await;
    for (dtype, name) in [
        (GgmlDType::Q8_0, "Q8_0"),
        (GgmlDType::Q6K, "Q6_K"),
        (GgmlDType::Q5K, "Q5_K"),
        (GgmlDType::Q4K, "Q4_K"),
        (GgmlDType::Q4_0, "Q4_0"),
    ] {
        let (_folder, path) = written(&GgufModel::of(&shape, &weights, dtype));
        let engine = load(ModelSource::Gguf(path));
        assert_eq!(engine.description().quantization.as_deref(), Some(name));
        let found = alone(&engine, &prompts()).await;
        let widened = widened(&weights, dtype);
        let stood_for = folder_of(&shape, &widened);
        let stood_for = alone(&load(ModelSource::Folder(stood_for.path().to_owned())), &prompts()).await;
        let (error, added) = (distance(&found, &exact), distance(&found, &stood_for));
        let weight = weight_error(&widened, &weights);
        println!(
            "{name}: weights {weight:.4}, logits {error:.4}, compared with dequantized weights {added:.4}"
        );
        // Squared errors of independent matrices add up: seven per layer, the embedding and the head.
        let most = weight * ((7 * shape.layers + 2) as f64).sqrt();
        assert!(error > weight / 2.0 && error < most, "{name}: {error}, weights {weight}");
        assert!(added < 0.02, "{name}: {added}");
        // Every result is the same in a batch.
        assert_eq!(together(&engine, &prompts()).await, found, "{name}");
    }
}

#[tokio::test]
async fn rotary_frequencies_are_divided_as_the_file_says() {
    let scaling = json!({
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
    });
    let shape = Shape { extra: json!({"rope_parameters": scaling}), ..wide() };
    let folder = folder(&shape);
    let expected = alone(&load(ModelSource::Folder(folder.path().to_owned())), &prompts()).await;
    let mut model = GgufModel::new(&shape, 1, GgmlDType::F32);
    let plain = written(&model);
    let size = shape.head_size();
    // Computed as by the converter.
    let factors: Vec<f32> = (0..size / 2)
        .map(|pair| {
            let length = 2.0 * std::f64::consts::PI * 10_000f64.powf(2.0 * pair as f64 / size as f64);
            let smooth = (64.0 / length - 1.0) / 3.0;
            match length {
                length if length < 16.0 => 1.0,
                length if length > 64.0 => 8.0,
                _ => (1.0 / ((1.0 - smooth) / 8.0 + smooth)) as f32,
            }
        })
        .collect();
    let factors = Tensor::from_vec(factors, size / 2, &Device::Cpu).unwrap();
    let factors = QTensor::quantize(&factors, GgmlDType::F32).unwrap();
    model.tensors.push(("rope_freqs.weight".to_owned(), factors));
    let (_folder, path) = written(&model);
    let found = alone(&load(ModelSource::Gguf(path)), &prompts()).await;
    assert!(distance(&found, &expected) < 1e-5, "{}", distance(&found, &expected));
    let without = alone(&load(ModelSource::Gguf(plain.1)), &prompts()).await;
    assert!(distance(&without, &expected) > 1e-2);
}

#[tokio::test]
async fn linear_scaling_and_ends_are_read() {
    let extra = json!({"rope_scaling": {"type": "linear", "factor": 4.0}, "rope_theta": 5e5});
    let shape = Shape { extra, ..Shape::tiny() };
    let folder = folder(&shape);
    let expected = alone(&load(ModelSource::Folder(folder.path().to_owned())), &prompts()).await;
    let mut model = GgufModel::new(&shape, 1, GgmlDType::F32);
    model.set("llama.rope.freq_base", Value::F32(5e5));
    model.set("llama.rope.scaling.type", text("linear"));
    model.set("llama.rope.scaling.factor", Value::F32(4.0));
    let (_folder, path) = written(&model);
    let engine = load(ModelSource::Gguf(path));
    assert_eq!(alone(&engine, &prompts()).await, expected);
    // A reply ends at the end-of-turn token of the file.
    let first = expected[1].tokens[0];
    model.set("tokenizer.ggml.eot_token_id", Value::U32(first));
    let (_folder, path) = written(&model);
    let request = GenerateRequest { ignore_eos: false, ..prompts()[1].clone() };
    let ended = load(ModelSource::Gguf(path)).generate(request).await.unwrap();
    assert_eq!(ended.finish, lumos_engine::FinishReason::EndOfSequence);
    assert!(ended.tokens.len() <= 1);
}

#[test]
fn a_folder_with_one_file_is_that_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.gguf");
    GgufModel::new(&Shape::tiny(), 1, GgmlDType::F16).write(&path);
    load(ModelSource::Folder(folder.path().to_owned()));
    // An adapter in the same folder is not a second model, and is not merged.
    std::fs::write(folder.path().join("adapter_model.safetensors"), "").unwrap();
    assert!(matches!(ModelSource::of_path(folder.path()), Ok(ModelSource::Gguf(_))));
    let error = ModelSource::adapted(folder.path(), folder.path()).unwrap_err();
    assert!(matches!(error, LoadError::UnsupportedAdapter { .. }), "{error}");
    std::fs::copy(&path, folder.path().join("b.gguf")).unwrap();
    let error = ModelSource::of_path(folder.path()).unwrap_err();
    assert!(matches!(error, LoadError::SeveralModels { .. }), "{error}");
    assert!(
        error.to_string().contains("a.gguf, b.gguf") && error.to_string().contains("name one of them"),
        "{error}"
    );
    Shape::tiny().files(1).write(folder.path());
    assert!(matches!(ModelSource::of_path(folder.path()), Ok(ModelSource::Folder(_))));
    assert!(matches!(ModelSource::of_path(&path), Ok(ModelSource::Gguf(_))));
}

#[test]
fn the_chat_template_is_read() {
    let mut model = GgufModel::new(&Shape::tiny(), 1, GgmlDType::F32);
    let (_folder, path) = written(&model);
    assert_eq!(StoredChat::read(&path).unwrap(), None);
    model.set("tokenizer.chat_template", text("{{ bos_token }}"));
    let (_folder, path) = written(&model);
    let chat = StoredChat::read(&path).unwrap().unwrap();
    assert_eq!((chat.template.as_str(), chat.bos_token.as_str()), ("{{ bos_token }}", "<s>"));
    assert_eq!(chat.eos_token, "</s>");
}

#[test]
fn faults_are_named() {
    let edit = |change: &dyn Fn(&mut GgufModel)| {
        let mut model = GgufModel::new(&Shape::tiny(), 1, GgmlDType::F32);
        change(&mut model);
        let (_folder, path) = written(&model);
        Engine::load(ModelSource::Gguf(path), LoadOptions::default()).unwrap_err()
    };
    let set = |key: &'static str, value: Value| move |model: &mut GgufModel| model.set(key, value.clone());
    let unset = |key: &'static str| move |model: &mut GgufModel| model.unset(key);
    let bias = |model: &mut GgufModel| {
        let (_, norm) = model.tensors.pop().unwrap();
        model.tensors.push(("blk.0.attn_q.bias".to_owned(), norm));
    };
    type Fault<'a> = (&'a dyn Fn(&mut GgufModel), &'a str);
    let unsupported: [Fault<'_>; 9] = [
        (&set("general.architecture", text("mamba")), "expected one of llama, qwen2"),
        (&set("general.type", text("adapter")), "adapter"),
        (&set("split.count", Value::U16(3)), "llama-gguf-split"),
        (&set("llama.rope.dimension_count", Value::U32(4)), "llama.rope.dimension_count"),
        (&set("llama.rope.scaling.type", text("dynamic")), "dynamic"),
        (&set("llama.attention.causal", Value::Bool(false)), "causal"),
        (&set("tokenizer.ggml.model", text("bert")), "bert"),
        (&set("tokenizer.ggml.model", text("no_vocab")), "tokenizer.ggml.model"),
        (&bias, "blk.0.attn_q.bias"),
    ];
    for (change, word) in unsupported {
        let error = edit(change);
        assert!(matches!(error, LoadError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(word) && error.to_string().contains("model.gguf"), "{error}");
    }
    let others: [Fault<'_>; 10] = [
        (&unset("general.architecture"), "general.architecture"),
        (&unset("llama.block_count"), "llama.block_count"),
        (&set("llama.block_count", text("2")), "not a whole number"),
        (&set("llama.block_count", Value::U32(3)), "model.layers.2"),
        (&set("llama.block_count", Value::U64(1 << 60)), "exceeds the maximum of 4096"),
        (&set("llama.expert_count", Value::U32(8)), "llama.expert_used_count"),
        (&set("llama.attention.head_count_kv", Value::U32(4)), "heads"),
        (&set("llama.feed_forward_length", Value::U32(64)), "shape"),
        (&unset("tokenizer.ggml.tokens"), "tokenizer.ggml.tokens"),
        (&set("tokenizer.ggml.scores", Value::Array(vec![Value::F32(1.0)])), "tokenizer.ggml.scores"),
    ];
    for (change, word) in others {
        let error = edit(change).to_string();
        assert!(error.contains(word) && error.contains("model.gguf"), "{error}");
    }
    let missing = Engine::load(ModelSource::Gguf(Path::new("no.gguf").to_owned()), LoadOptions::default());
    assert!(missing.unwrap_err().to_string().contains("failed to read no.gguf"));
}
