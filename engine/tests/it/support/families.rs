//! What random models of each family add to a Llama: fields of config.json and tensors.

use serde_json::{Value, json};

use super::Shape;

/// All values of [`Shape::family`].
#[allow(dead_code, reason = "not used by the benches")]
pub(crate) const ALL: [&str; 11] = [
    "llama",
    "mistral",
    "mixtral",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "gemma2",
    "gemma3_text",
    "phi3",
    "olmo2",
    "granite",
];

/// Experts of a mixture.
const EXPERTS: usize = 5;

/// The class name of a family.
pub(crate) fn architecture(family: &str) -> String {
    let name = match family {
        "qwen3_moe" => "Qwen3Moe",
        "gemma3_text" => "Gemma3",
        _ => return format!("{}{}ForCausalLM", family[..1].to_uppercase(), &family[1..]),
    };
    format!("{name}ForCausalLM")
}

/// The fields of config.json that a Llama does not have. Windows are shorter than the prompts of tests.
pub(crate) fn fields(shape: &Shape) -> Value {
    let size = shape.head_size();
    let factors = |first: f64| -> Vec<f64> { (0..size / 4).map(|pair| first + pair as f64).collect() };
    match shape.family {
        "mistral" => json!({"sliding_window": 20}),
        "mixtral" => json!({"rope_theta": 1e6, "num_local_experts": EXPERTS, "num_experts_per_tok": 2}),
        "qwen2" => json!({
            "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
        }),
        "qwen3" => json!({"head_dim": size}),
        "qwen3_moe" => json!({
            "head_dim": size, "num_experts": EXPERTS, "num_experts_per_tok": 2, "mlp_only_layers": [1],
            "moe_intermediate_size": shape.expert_width(),
        }),
        "gemma2" => json!({
            "head_dim": size, "query_pre_attn_scalar": 12, "sliding_window": 20, "attn_logit_softcapping": 3.0,
            "final_logit_softcapping": 5.0, "hidden_activation": "gelu_pytorch_tanh",
        }),
        "gemma3_text" => json!({
            "head_dim": size, "query_pre_attn_scalar": 12, "sliding_window": 20, "sliding_window_pattern": 2,
            "rope_theta": 1e6, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        }),
        "phi3" => json!({
            "partial_rotary_factor": 0.5, "original_max_position_embeddings": 64,
            "rope_scaling": {"type": "longrope", "short_factor": factors(1.0), "long_factor": factors(2.5)},
        }),
        "granite" => json!({
            "embedding_multiplier": 6.0, "residual_multiplier": 0.4, "attention_multiplier": 0.2,
            "logits_scaling": 4.0, "attention_bias": true, "mlp_bias": true,
        }),
        _ => json!({}),
    }
}

/// A matrix: name, rows and columns.
type Matrix = (String, usize, usize);
/// A vector: name, length and mean value.
type Vector = (String, usize, f32);

/// All matrices and vectors of a shape.
pub(crate) fn tensors(shape: &Shape) -> (Vec<Matrix>, Vec<Vector>) {
    let Shape { family, hidden, intermediate, vocabulary, .. } = *shape;
    let config = shape.config();
    let (queries, keys) = (shape.heads * shape.head_size(), shape.key_value_heads * shape.head_size());
    let gemma = family.starts_with("gemma");
    let (mut matrices, mut vectors) = (Vec::new(), Vec::new());
    matrices.push(("model.embed_tokens.weight".to_owned(), vocabulary, hidden));
    if !shape.tied {
        matrices.push(("lm_head.weight".to_owned(), vocabulary, hidden));
    }
    let is_set = |field: &str| config[field] == true;
    for layer in 0..shape.layers {
        let name = |part: &str| format!("model.layers.{layer}.{part}");
        let mut matrix = |part: &str, rows, columns, bias: bool| {
            matrices.push((name(&format!("{part}.weight")), rows, columns));
            if bias {
                vectors.push((name(&format!("{part}.bias")), rows, 0.0));
            }
        };
        let bias = is_set("attention_bias");
        if family == "phi3" {
            matrix("self_attn.qkv_proj", queries + 2 * keys, hidden, false);
        } else {
            for (part, rows) in [("q_proj", queries), ("k_proj", keys), ("v_proj", keys)] {
                matrix(&format!("self_attn.{part}"), rows, hidden, bias || family == "qwen2");
            }
        }
        matrix("self_attn.o_proj", hidden, queries, bias);
        let dense = family != "mixtral" && (family != "qwen3_moe" || layer == 1);
        if !dense {
            let (mixture, gate, up, down) = match family {
                "mixtral" => ("block_sparse_moe", "w1", "w3", "w2"),
                _ => ("mlp", "gate_proj", "up_proj", "down_proj"),
            };
            matrix(&format!("{mixture}.gate"), EXPERTS, hidden, false);
            let width = shape.expert_width();
            for expert in 0..EXPERTS {
                let name = |part: &str| format!("{mixture}.experts.{expert}.{part}");
                matrix(&name(gate), width, hidden, false);
                matrix(&name(up), width, hidden, false);
                matrix(&name(down), hidden, width, false);
            }
        } else if family == "phi3" {
            matrix("mlp.gate_up_proj", 2 * intermediate, hidden, false);
            matrix("mlp.down_proj", hidden, intermediate, false);
        } else {
            let bias = is_set("mlp_bias");
            matrix("mlp.gate_proj", intermediate, hidden, bias);
            matrix("mlp.up_proj", intermediate, hidden, bias);
            matrix("mlp.down_proj", hidden, intermediate, bias);
        }
    }
    // Gemma adds 1 to the weights of norms.
    let center = if gemma { 0.0 } else { 1.0 };
    for layer in 0..shape.layers {
        let mut norm = |part: &str, length: usize| {
            vectors.push((format!("model.layers.{layer}.{part}.weight"), length, center));
        };
        if family != "olmo2" {
            norm("input_layernorm", hidden);
        }
        norm("post_attention_layernorm", hidden);
        if gemma {
            norm("pre_feedforward_layernorm", hidden);
        }
        if gemma || family == "olmo2" {
            norm("post_feedforward_layernorm", hidden);
        }
        let size = shape.head_size();
        match family {
            "qwen3" | "qwen3_moe" | "gemma3_text" => {
                norm("self_attn.q_norm", size);
                norm("self_attn.k_norm", size);
            }
            "olmo2" => {
                norm("self_attn.q_norm", queries);
                norm("self_attn.k_norm", keys);
            }
            _ => {}
        }
    }
    vectors.push(("model.norm.weight".to_owned(), hidden, center));
    (matrices, vectors)
}

impl Shape {
    /// A tiny shape of a family.
    #[allow(dead_code, reason = "not used by the benches")]
    pub(crate) fn of(family: &'static str) -> Self {
        Self { family, tied: family.starts_with("gemma"), ..Self::tiny() }
    }

    /// Intermediate width of an expert: that of the layer in a Mixtral.
    fn expert_width(&self) -> usize {
        if self.family == "mixtral" { self.intermediate } else { 36 }
    }
}
