//! Small models of every family, and their GGUF files in the layout of llama.cpp's converters.

use candle_core::quantized::gguf_file::Value as Stored;
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use serde_json::{Value, json};

use super::NamedTensor;
use super::gguf::{GgufModel, interleaved, text};
use super::pieces;

/// llama.cpp's architectures and configurations of small models of every family. Rows of their matrices consist of whole blocks of any
/// format if `wide`.
#[allow(dead_code, reason = "used by the unit tests")]
pub(crate) fn configurations(wide: bool) -> Vec<(&'static str, Value)> {
    let (hidden, width, head) = if wide { (256, 256, 64) } else { (32, 48, 8) };
    let config = |class: &str, own: Value| {
        let mut config = json!({
            "architectures": [class], "hidden_size": hidden, "intermediate_size": width, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 128,
            "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "eos_token_id": 2, "rope_theta": 1e4,
        });
        if let (Some(config), Value::Object(own)) = (config.as_object_mut(), own) {
            config.extend(own);
        }
        config
    };
    let factors = |first: f64| -> Vec<f64> { (0..head / 4).map(|pair| first + 0.5 * pair as f64).collect() };
    let yarn = json!({"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32});
    let long = json!({
        "rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.5, "short_factor": factors(1.0),
        "long_factor": factors(2.0), "original_max_position_embeddings": 64,
    });
    let local = json!({
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    });
    vec![
        ("llama", config("LlamaForCausalLM", json!({"attention_bias": true, "mlp_bias": true}))),
        ("llama", config("MixtralForCausalLM", json!({"num_local_experts": 4, "num_experts_per_tok": 2}))),
        ("qwen2", config("Qwen2ForCausalLM", json!({"rope_parameters": yarn}))),
        ("qwen3", config("Qwen3ForCausalLM", json!({"head_dim": 2 * head, "tie_word_embeddings": true}))),
        (
            "qwen3moe",
            config(
                "Qwen3MoeForCausalLM",
                json!({
                    "head_dim": head, "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": width,
                    "norm_topk_prob": true,
                }),
            ),
        ),
        (
            "gemma2",
            config(
                "Gemma2ForCausalLM",
                json!({
                    "head_dim": head, "query_pre_attn_scalar": head, "sliding_window": 8, "tie_word_embeddings": true,
                    "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0,
                }),
            ),
        ),
        (
            "gemma3",
            config(
                "Gemma3ForCausalLM",
                json!({
                    "head_dim": head, "query_pre_attn_scalar": head, "sliding_window": 8, "num_hidden_layers": 6,
                    "rope_parameters": local, "tie_word_embeddings": true,
                }),
            ),
        ),
        ("phi3", config("Phi3ForCausalLM", json!({"rope_parameters": long, "sliding_window": 24}))),
        ("olmo2", config("Olmo2ForCausalLM", json!({"rope_theta": 5e5}))),
        (
            "granite",
            config(
                "GraniteForCausalLM",
                json!({
                    "attention_multiplier": 0.25, "embedding_multiplier": 3.0, "residual_multiplier": 0.22,
                    "logits_scaling": 2.0,
                }),
            ),
        ),
    ]
}

/// The file of a model with matrices in `dtype`, and the tests' tokenizer.
pub(crate) fn model(
    architecture: &str,
    config: &Value,
    weights: &[NamedTensor],
    dtype: GgmlDType,
) -> GgufModel {
    let mut model =
        GgufModel { metadata: Vec::new(), tensors: tensors(architecture, config, weights, dtype) };
    model.set("general.architecture", text(architecture));
    for (key, value) in parameters(config) {
        model.set(&format!("{architecture}.{key}"), value);
    }
    model.set("tokenizer.ggml.eos_token_id", Stored::U32(2));
    model.sentencepiece(&pieces(), true);
    let factors = &config["rope_parameters"];
    for kind in ["short", "long"] {
        let Some(values) = factors[format!("{kind}_factor")].as_array() else { continue };
        let values: Vec<f32> = values.iter().map(|value| value.as_f64().unwrap() as f32).collect();
        let tensor = Tensor::from_vec(values.clone(), values.len(), &Device::Cpu).unwrap();
        let tensor = QTensor::quantize(&tensor, GgmlDType::F32).unwrap();
        model.tensors.push((format!("rope_factors_{kind}.weight"), tensor));
    }
    model
}

/// The metadata of a model, as the converters write them: integers as u32, other numbers as f32.
fn parameters(config: &Value) -> Vec<(&'static str, Stored)> {
    let number = |field: &str| config[field].as_u64().map(|value| Stored::U32(value as u32));
    let float = |value: &Value| value.as_f64().map(|value| Stored::F32(value as f32));
    let heads = config["num_attention_heads"].as_u64().unwrap();
    let head = config["head_dim"].as_u64().unwrap_or(config["hidden_size"].as_u64().unwrap() / heads);
    let rope = &config["rope_parameters"];
    let global = if rope["full_attention"].is_object() { &rope["full_attention"] } else { rope };
    let theta = global["rope_theta"].as_f64().or(config["rope_theta"].as_f64());
    let partial = rope["partial_rotary_factor"].as_f64().unwrap_or(1.0);
    let kind = global["rope_type"].as_str().filter(|kind| ["linear", "yarn", "longrope"].contains(kind));
    let long = rope["long_factor"].is_array();
    let (context, original) = (128f64, rope["original_max_position_embeddings"].as_f64());
    let magnitude = original.map(|original| (1.0 + (context / original).ln() / original.ln()).sqrt());
    let scaled = kind.filter(|_| !long);
    let values = [
        ("context_length", number("max_position_embeddings")),
        ("embedding_length", number("hidden_size")),
        ("block_count", number("num_hidden_layers")),
        ("feed_forward_length", number("intermediate_size")),
        ("attention.head_count", number("num_attention_heads")),
        ("attention.head_count_kv", number("num_key_value_heads")),
        ("attention.layer_norm_rms_epsilon", float(&config["rms_norm_eps"])),
        ("attention.key_length", config["head_dim"].is_u64().then_some(Stored::U32(head as u32))),
        ("attention.value_length", config["head_dim"].is_u64().then_some(Stored::U32(head as u32))),
        ("rope.freq_base", theta.map(|theta| Stored::F32(theta as f32))),
        ("rope.freq_base_swa", float(&rope["sliding_attention"]["rope_theta"])),
        ("rope.dimension_count", long.then_some(Stored::U32((head as f64 * partial) as u32))),
        ("rope.scaling.type", scaled.map(text)),
        ("rope.scaling.factor", scaled.and_then(|_| float(&global["factor"]))),
        ("rope.scaling.original_context_length", original.map(|length| Stored::U32(length as u32))),
        ("rope.scaling.attn_factor", magnitude.filter(|_| long).map(|value| Stored::F32(value as f32))),
        ("expert_count", number("num_local_experts").or(number("num_experts"))),
        ("expert_used_count", number("num_experts_per_tok")),
        ("expert_feed_forward_length", number("moe_intermediate_size")),
        ("attention.sliding_window", number("sliding_window")),
        ("attn_logit_softcapping", float(&config["attn_logit_softcapping"])),
        ("final_logit_softcapping", float(&config["final_logit_softcapping"])),
        ("attention.scale", float(&config["attention_multiplier"])),
        ("embedding_scale", float(&config["embedding_multiplier"])),
        ("residual_scale", float(&config["residual_multiplier"])),
        ("logit_scale", float(&config["logits_scaling"])),
    ];
    values.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

fn tensors(
    architecture: &str,
    config: &Value,
    weights: &[NamedTensor],
    dtype: GgmlDType,
) -> Vec<(String, QTensor)> {
    let heads = |field: &str| config[field].as_u64().unwrap() as usize;
    let stored = |dims: usize| if dims > 1 { dtype } else { GgmlDType::F32 };
    let mut tensors: Vec<(String, QTensor)> = Vec::new();
    let mut stacks: Vec<(String, Vec<Tensor>)> = Vec::new();
    for (name, dims, values) in weights {
        let mut tensor = Tensor::from_slice(values, dims.clone(), &Device::Cpu).unwrap();
        if architecture.starts_with("gemma") && name.ends_with("norm.weight") {
            tensor = (tensor + 1.0).unwrap();
        }
        if ["llama", "granite"].contains(&architecture) && name.contains("q_proj") {
            tensor = interleaved(&tensor, heads("num_attention_heads"));
        } else if ["llama", "granite"].contains(&architecture) && name.contains("k_proj") {
            tensor = interleaved(&tensor, heads("num_key_value_heads"));
        }
        let name = gguf_name(architecture, name);
        if name.contains("_exps") {
            match stacks.iter_mut().find(|(known, _)| *known == name) {
                Some((_, experts)) => experts.push(tensor),
                None => stacks.push((name, vec![tensor])),
            }
        } else {
            let dtype = if name.contains("ffn_gate_inp") { GgmlDType::F32 } else { stored(dims.len()) };
            tensors.push((name, QTensor::quantize(&tensor, dtype).unwrap()));
        }
    }
    for (name, experts) in stacks {
        let stacked = Tensor::stack(&experts, 0).unwrap();
        tensors.push((name, QTensor::quantize(&stacked, dtype).unwrap()));
    }
    tensors
}

/// The converter's name of a tensor. Experts of a layer have the same one, in the order of their numbers.
pub(crate) fn gguf_name(architecture: &str, name: &str) -> String {
    let after = ["gemma2", "gemma3", "olmo2"].contains(&architecture);
    let parts = [
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
        ("model.layers.", "blk."),
        ("input_layernorm", "attn_norm"),
        ("self_attn.qkv_proj", "attn_qkv"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("post_attention_layernorm", if after { "post_attention_norm" } else { "ffn_norm" }),
        ("pre_feedforward_layernorm", "ffn_norm"),
        ("post_feedforward_layernorm", "post_ffw_norm"),
        ("mlp.gate_up_proj", "ffn_up"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
        ("mlp.gate.", "ffn_gate_inp."),
        ("block_sparse_moe.gate.", "ffn_gate_inp."),
    ];
    let name = parts.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to));
    let Some((layer, expert)) =
        name.split_once(".mlp.experts.").or(name.split_once(".block_sparse_moe.experts."))
    else {
        return name;
    };
    let (_, matrix) = expert.split_once('.').unwrap();
    let part = match matrix {
        "w1.weight" | "gate_proj.weight" => "gate",
        "w2.weight" | "down_proj.weight" => "down",
        _ => "up",
    };
    format!("{layer}.ffn_{part}_exps.weight")
}
