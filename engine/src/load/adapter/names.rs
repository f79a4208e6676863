//! Maps tensor names in an adapter's file to their function.

use std::collections::HashMap;

use crate::load::config::ModelConfig;

/// The prefix that peft adds to the names of the model that it wraps.
const PREFIX: &str = "base_model.model.";

/// The function of one tensor of an adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The right factor of a module's product, `rank` × inputs.
    Down { module: String },
    /// The left factor, outputs × `rank`.
    Up { module: String },
    /// Replaces the base's tensor.
    Whole { tensor: String },
}

impl Part {
    /// Parses a name in peft's layout; `None` for other names.
    pub(super) fn of(name: &str) -> Option<Self> {
        let name = name.strip_prefix(PREFIX)?;
        if let Some(module) = name.strip_suffix(".lora_A.weight") {
            return Some(Self::Down { module: module.to_owned() });
        }
        if let Some(module) = name.strip_suffix(".lora_B.weight") {
            return Some(Self::Up { module: module.to_owned() });
        }
        let module = name.strip_suffix(".weight").filter(|module| !module.contains("lora_"))?;
        let module = module.strip_suffix(".modules_to_save").unwrap_or(module);
        Some(Self::Whole { tensor: format!("{module}.weight") })
    }
}

/// The tensors that a model of this shape reads, with the required sizes. The rows of the embedding and of
/// the head are a parameter, because a configuration does not fix them.
pub(super) fn tensors(config: &ModelConfig, rows: usize) -> HashMap<String, Vec<usize>> {
    let (hidden, intermediate) = (config.hidden_size, config.intermediate_size);
    let (queries, keys) = (config.heads * config.head_size, config.key_value_heads * config.head_size);
    let mut tensors = HashMap::from([
        ("model.embed_tokens.weight".to_owned(), vec![rows, hidden]),
        ("model.norm.weight".to_owned(), vec![hidden]),
    ]);
    if !config.tied_embeddings {
        tensors.insert("lm_head.weight".to_owned(), vec![rows, hidden]);
    }
    for layer in 0..config.layers {
        for (part, shape) in [
            ("input_layernorm", vec![hidden]),
            ("self_attn.q_proj", vec![queries, hidden]),
            ("self_attn.k_proj", vec![keys, hidden]),
            ("self_attn.v_proj", vec![keys, hidden]),
            ("self_attn.o_proj", vec![hidden, queries]),
            ("post_attention_layernorm", vec![hidden]),
            ("mlp.gate_proj", vec![intermediate, hidden]),
            ("mlp.up_proj", vec![intermediate, hidden]),
            ("mlp.down_proj", vec![hidden, intermediate]),
        ] {
            tensors.insert(format!("model.layers.{layer}.{part}.weight"), shape);
        }
    }
    tensors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_a_tensor_does() {
        let module = "model.layers.3.self_attn.q_proj".to_owned();
        let of = |rest: &str| Part::of(&format!("base_model.model.{rest}"));
        let down = of("model.layers.3.self_attn.q_proj.lora_A.weight");
        assert_eq!(down, Some(Part::Down { module: module.clone() }));
        assert_eq!(of("model.layers.3.self_attn.q_proj.lora_B.weight"), Some(Part::Up { module }));
        for name in ["lm_head.weight", "lm_head.modules_to_save.weight"] {
            assert_eq!(of(name), Some(Part::Whole { tensor: "lm_head.weight".to_owned() }));
        }
        for name in ["model.embed_tokens.lora_embedding_A", "x.lora_magnitude_vector", "x.lora_A.bias"] {
            assert_eq!(of(name), None, "{name}");
        }
        assert_eq!(Part::of("model.layers.0.self_attn.q_proj.lora_A.weight"), None);
    }
}
