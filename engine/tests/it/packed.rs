//! Checkpoints of AWQ and GPTQ compute what a folder of their dequantized weights computes, and faults are named.

use std::path::Path;

use half::f16;
use lumos_engine::{DType, Engine, LoadError, LoadOptions, ModelSource, Prompt};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::requests::{alone, greedy};
use crate::support::{Files, NamedTensor, Shape, Uniform, byte_tokenizer, safetensors};

const GROUP: usize = 16;

fn shape() -> Shape {
    Shape { hidden: 64, intermediate: 96, heads: 4, key_value_heads: 2, ..Shape::tiny() }
}

/// A tensor as a file stores it.
type StoredTensor = (String, Dtype, Vec<usize>, Vec<u8>);

/// A packed checkpoint, and the plain weights with the same values.
struct Packed {
    config: Value,
    stored: Vec<StoredTensor>,
    plain: Vec<NamedTensor>,
}

fn floats(name: &str, dims: &[usize], values: &[f32]) -> StoredTensor {
    let bytes = values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect();
    (name.to_owned(), Dtype::F16, dims.to_vec(), bytes)
}

fn words(name: String, dims: [usize; 2], words: &[u32]) -> StoredTensor {
    (name, Dtype::I32, dims.to_vec(), words.iter().flat_map(|word| word.to_le_bytes()).collect())
}

/// Quantizes the projections of a random model, each with its own codes. `ordered`: groups of GPTQ by `g_idx`.
fn packed(method: &str, bits: usize, ordered: bool) -> Packed {
    let mut random = Uniform::new(9);
    let (mut stored, mut plain) = (Vec::new(), Vec::new());
    for (name, dims, values) in shape().tensors(1) {
        let rounded: Vec<f32> = values.iter().map(|value| f16::from_f32(*value).to_f32()).collect();
        let module = name.trim_end_matches(".weight").to_owned();
        let &[outputs, inputs] = &dims[..] else {
            stored.push(floats(&name, &dims, &rounded));
            plain.push((name, dims, rounded));
            continue;
        };
        if !module.ends_with("_proj") {
            stored.push(floats(&name, &dims, &rounded));
            plain.push((name, dims, rounded));
            continue;
        }
        let (groups, per_word, top) = (inputs / GROUP, 32 / bits, 1 << bits);
        let codes: Vec<usize> = (0..outputs * inputs).map(|_| random.below(top)).collect();
        let zeros: Vec<usize> = (0..groups * outputs).map(|_| 1 + random.below(top - 1)).collect();
        let scales: Vec<f32> = random
            .values(groups * outputs, 1.0)
            .iter()
            .map(|value| f16::from_f32((1.5 + value) / (top as f32 * (inputs as f32).sqrt())).to_f32())
            .collect();
        let group = |input: usize| if ordered { input % groups } else { input / GROUP };
        let value = |at: usize| {
            let of_group = group(at % inputs) * outputs + at / inputs;
            (codes[at] as f32 - zeros[of_group] as f32) * scales[of_group]
        };
        plain.push((name, dims, (0..outputs * inputs).map(value).collect()));
        let awq = method == "awq";
        // Eight outputs of AWQ are in the order 0, 2, 4, 6, 1, 3, 5, 7.
        let position = |lane: usize| if awq { lane % 2 * 4 + lane / 2 } else { lane };
        let mut weight = vec![0u32; outputs * inputs / per_word];
        let mut zero_words = vec![0u32; groups * outputs / per_word];
        for output in 0..outputs {
            for input in 0..inputs {
                let (word, lane) = if awq {
                    (input * (outputs / per_word) + output / per_word, output % per_word)
                } else {
                    (input / per_word * outputs + output, input % per_word)
                };
                weight[word] |= (codes[output * inputs + input] as u32) << (bits * position(lane));
            }
            for group in 0..groups {
                let zero = zeros[group * outputs + output] - usize::from(!awq);
                let word = (group * outputs + output) / per_word;
                zero_words[word] |= (zero as u32) << (bits * position(output % per_word));
            }
        }
        let dims = if awq { [inputs, outputs / per_word] } else { [inputs / per_word, outputs] };
        stored.push(words(format!("{module}.qweight"), dims, &weight));
        stored.push(words(format!("{module}.qzeros"), [groups, outputs / per_word], &zero_words));
        stored.push(floats(&format!("{module}.scales"), &[groups, outputs], &scales));
        if !awq {
            let index: Vec<u8> = (0..inputs).flat_map(|input| (group(input) as u32).to_le_bytes()).collect();
            stored.push((format!("{module}.g_idx"), Dtype::I32, vec![inputs], index));
        }
    }
    let mut config = shape().config();
    config["quantization_config"] = match method {
        "awq" => {
            json!({"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": true})
        }
        _ => {
            json!({"quant_method": "gptq", "bits": bits, "group_size": GROUP, "desc_act": ordered, "sym": false})
        }
    };
    Packed { config, stored, plain }
}

impl Packed {
    fn written(&self) -> TempDir {
        let views = self.stored.iter().map(|(name, dtype, dims, bytes)| {
            (name.clone(), TensorView::new(*dtype, dims.clone(), bytes).unwrap())
        });
        folder(&self.config, safetensors::serialize(views, None).unwrap())
    }

    fn tensor(&mut self, end: &str) -> &mut StoredTensor {
        self.stored.iter_mut().find(|(name, ..)| name.ends_with(end)).unwrap()
    }
}

fn folder(config: &Value, weights: Vec<u8>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = byte_tokenizer().to_string().into_bytes();
    Files { config: config.to_string().into_bytes(), tokenizer, weights }.write(folder.path());
    folder
}

fn load(folder: &Path, dtype: DType) -> Result<Engine, LoadError> {
    let options = LoadOptions { dtype, ..LoadOptions::default() };
    Engine::load(ModelSource::Folder(folder.to_owned()), options)
}

#[tokio::test]
async fn packed_weights_equal_their_values_to_the_bit() {
    let requests: Vec<_> = [3usize, 40]
        .map(|length| greedy(Prompt::Tokens((3..3 + length as u32).collect()), 12, 300))
        .into_iter()
        .collect();
    for (method, bits, ordered, format) in [
        ("awq", 4, false, "AWQ 4-bit"),
        ("gptq", 4, false, "GPTQ 4-bit"),
        ("gptq", 4, true, "GPTQ 4-bit"),
        ("gptq", 8, true, "GPTQ 8-bit"),
    ] {
        let packed = packed(method, bits, ordered);
        let (found, plain) = (packed.written(), folder(&shape().config(), safetensors(&packed.plain)));
        for dtype in [DType::F32, DType::Bf16] {
            let (found, plain) = (load(found.path(), dtype).unwrap(), load(plain.path(), dtype).unwrap());
            let (of_found, of_plain) = (found.description(), plain.description());
            assert_eq!(of_found.quantization.as_deref(), Some(format));
            assert_eq!((of_plain.quantization.as_deref(), of_found.parameters), (None, of_plain.parameters));
            assert_eq!(alone(&found, &requests).await, alone(&plain, &requests).await, "{format} {dtype}");
        }
    }
}

#[test]
fn faults_are_named() {
    let fault = |method: &str, change: &dyn Fn(&mut Packed)| {
        let mut packed = packed(method, 4, method == "gptq");
        change(&mut packed);
        load(packed.written().path(), DType::F32).unwrap_err().to_string()
    };
    let unquantized = |packed: &mut Packed| packed.config["quantization_config"] = Value::Null;
    let fp8 = |packed: &mut Packed| packed.config["quantization_config"]["quant_method"] = json!("fp8");
    let groups = |packed: &mut Packed| packed.config["quantization_config"]["group_size"] = json!(32);
    let odd_groups = |packed: &mut Packed| packed.config["quantization_config"]["group_size"] = json!(24);
    let outside = |packed: &mut Packed| packed.tensor("layers.1.self_attn.v_proj.g_idx").3[0] = 200;
    let float = |packed: &mut Packed| packed.tensor("layers.0.self_attn.q_proj.qweight").1 = Dtype::F32;
    let missing = |packed: &mut Packed| {
        packed.stored.retain(|(name, ..)| name != "model.layers.1.mlp.up_proj.qzeros");
    };
    type Fault<'a> = (&'a str, &'a dyn Fn(&mut Packed), &'a [&'a str]);
    let faults: [Fault<'_>; 7] = [
        ("awq", &unquantized, &["model.safetensors", ".qweight", "quantization_config"]),
        ("awq", &fp8, &["config.json", "quantization_config.quant_method \"fp8\""]),
        ("awq", &groups, &["model.safetensors", ".qzeros has shape [4, ", "requires [2, "]),
        ("awq", &odd_groups, &["model.safetensors", "model.layers.0.", "group size 24"]),
        ("gptq", &outside, &["model.layers.1.self_attn.v_proj", "g_idx of input 0 is 200"]),
        ("gptq", &float, &["q_proj.qweight has type F32, not I32"]),
        ("gptq", &missing, &["model.layers.1.mlp.up_proj.qzeros", "not found"]),
    ];
    for (method, change, words) in faults {
        let message = fault(method, change);
        for word in words {
            assert!(message.contains(word), "{message:?} lacks {word:?}");
        }
    }
}

/// Adapters would change floats that the checkpoint does not have.
#[test]
fn adapters_of_packed_weights_are_refused() {
    let base = packed("awq", 4, false).written();
    let adapter = tempfile::tempdir().unwrap();
    let config = json!({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]});
    std::fs::write(adapter.path().join("adapter_config.json"), config.to_string()).unwrap();
    let source = ModelSource::adapted(base.path(), adapter.path()).unwrap();
    let error = Engine::load(source, LoadOptions::default()).unwrap_err();
    assert!(matches!(error, LoadError::UnsupportedAdapter { .. }), "{error}");
    assert!(error.to_string().contains("AWQ 4-bit"), "{error}");
}
