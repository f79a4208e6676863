//! Model folders that cannot be loaded: `complete` names the file and the field or tensor, and exits with 2.
//!
//! The folders are edited copies of a model that ships with the program.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Lumos, lumos, read_json, repository};

/// A tensor of a safetensors file: type, shape and bytes.
type Stored = (Value, Value, Vec<u8>);

/// The configuration and the weights of a model, which a test edits.
struct Model {
    config: Value,
    tensors: BTreeMap<String, Stored>,
}

impl Model {
    fn tiny() -> Self {
        let assets = repository("models/assets/tiny/web");
        let file = fs::read(assets.join("model.safetensors")).unwrap();
        let (length, rest) = file.split_first_chunk::<8>().unwrap();
        let (header, data) = rest.split_at(usize::try_from(u64::from_le_bytes(*length)).unwrap());
        let mut header: Value = serde_json::from_slice(header).unwrap();
        let header = header.as_object_mut().unwrap();
        header.remove("__metadata__");
        let stored = |(name, entry): (&String, &Value)| {
            let [start, end] =
                [0, 1].map(|index| usize::try_from(entry["data_offsets"][index].as_u64().unwrap()).unwrap());
            let stored = (entry["dtype"].clone(), entry["shape"].clone(), data[start..end].to_vec());
            (name.clone(), stored)
        };
        Self { config: read_json(&assets.join("config.json")), tensors: header.iter().map(stored).collect() }
    }

    /// The model as a mixture of two equal experts.
    fn mixture() -> Self {
        let Self { mut config, tensors } = Self::tiny();
        for (field, value) in [
            ("architectures", json!(["MixtralForCausalLM"])),
            ("model_type", json!("mixtral")),
            ("num_local_experts", json!(2)),
            ("num_experts_per_tok", json!(1)),
        ] {
            config[field] = value;
        }
        let mut mixed = BTreeMap::new();
        for (name, stored) in tensors {
            let Some((layer, matrix)) = name.split_once(".mlp.") else {
                mixed.insert(name, stored);
                continue;
            };
            let matrix = match matrix.split_once('_').unwrap().0 {
                "gate" => "w1",
                "down" => "w2",
                _ => "w3",
            };
            for expert in 0..2 {
                let name = format!("{layer}.block_sparse_moe.experts.{expert}.{matrix}.weight");
                mixed.insert(name, stored.clone());
            }
            let router = (json!("F16"), json!([2, 160]), vec![0; 2 * 2 * 160]);
            mixed.insert(format!("{layer}.block_sparse_moe.gate.weight"), router);
        }
        Self { config, tensors: mixed }
    }

    fn with(mut self, field: &str, value: Value) -> Self {
        self.config[field] = value;
        self
    }

    /// Writes the model and returns a command that generates text with it.
    fn complete(&self, folder: &Path) -> Lumos {
        let assets = repository("models/assets/tiny/web");
        fs::copy(assets.join("tokenizer.json"), folder.join("tokenizer.json")).unwrap();
        fs::write(folder.join("config.json"), self.config.to_string()).unwrap();
        let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
        for (name, (dtype, shape, bytes)) in &self.tensors {
            let start = data.len();
            data.extend(bytes);
            let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]});
            header.insert(name.clone(), entry);
        }
        let header = Value::Object(header).to_string();
        let length = u64::try_from(header.len()).unwrap().to_le_bytes();
        fs::write(folder.join("model.safetensors"), [&length[..], header.as_bytes(), &data].concat())
            .unwrap();
        let complete = lumos().args("complete --max-new-tokens 3 'How many pears?' --model");
        complete.arg(format!("candle:{}", folder.display()))
    }

    /// Expects an error with these words.
    fn refused<const N: usize>(&self, words: [&str; N]) {
        let folder = tempfile::tempdir().unwrap();
        let ended = self.complete(folder.path()).exits(2);
        ended.reports(words).reports(["error: ", folder.path().to_str().unwrap(), "hint: "]);
    }
}

#[test]
fn folders_that_cannot_be_computed_are_refused_with_file_and_field() {
    let tiny = Model::tiny;
    tiny().with("architectures", json!(["GPT2LMHeadModel"])).with("model_type", json!("gpt2")).refused([
        "config.json",
        "`architectures`",
        "GPT2LMHeadModel",
        "Qwen3ForCausalLM",
    ]);
    tiny().with("rope_scaling", json!({"rope_type": "spiral", "factor": 2.0})).refused([
        "config.json",
        "`rope_scaling.rope_type`",
        "`spiral`",
        "yarn",
    ]);
    let mistral =
        tiny().with("architectures", json!(["MistralForCausalLM"])).with("model_type", json!("mistral"));
    mistral.with("sliding_window", json!(4096)).refused([
        "config.json",
        "`sliding_window`",
        "4096",
        "max_position_embeddings 2048",
    ]);
    tiny().with("intermediate_size", json!(256)).refused([
        "model.safetensors",
        "model.layers.0.mlp.gate_proj.weight",
        "[448, 160]",
        "[256, 160]",
    ]);
}

#[test]
fn quantized_folders_of_other_formats_are_refused_by_name() {
    for (quantization, words) in [
        (
            json!({"quant_method": "awq", "version": "gemm", "bits": 3, "group_size": 128}),
            ["quantization_config.bits", "3"],
        ),
        (
            json!({"quant_method": "gptq", "bits": 2, "group_size": 128}),
            ["quantization_config.bits", "4 or 8"],
        ),
        (
            json!({"quant_method": "gptq", "bits": 4, "group_size": 128, "checkpoint_format": "marlin"}),
            ["quantization_config.checkpoint_format", "marlin"],
        ),
        (json!({"quant_method": "fp8"}), ["quantization_config.quant_method", "fp8"]),
    ] {
        let model = Model::tiny().with("quantization_config", quantization);
        model.refused(["config.json", words[0], words[1]]);
    }
}

#[test]
fn experts_are_refused_by_name() {
    let whole = tempfile::tempdir().unwrap();
    Model::mixture().complete(whole.path()).ok();

    let missing = "model.layers.2.block_sparse_moe.experts.1.w2.weight";
    let mut model = Model::mixture();
    model.tensors.remove(missing).unwrap();
    model.refused(["model.safetensors", missing, "not found"]);

    let wrong = "model.layers.1.block_sparse_moe.experts.0.w1.weight";
    let mut model = Model::mixture();
    model.tensors.get_mut(wrong).unwrap().1 = json!([224, 320]);
    model.refused(["model.safetensors", wrong, "[224, 320]", "[448, 160]"]);

    Model::mixture().with("num_experts_per_tok", json!(3)).refused(["config.json", "`num_experts_per_tok`"]);
}
