//! Models of known shapes with random weights, for benchmarks and tests without files.

use std::fmt;
use std::str::FromStr;

use serde_json::{Value, json};

/// The shape of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RandomShape {
    /// Llama 2 with 7 billion parameters: `llama2-7b`.
    Llama2With7B,
    /// Llama 2 with 13 billion parameters: `llama2-13b`.
    Llama2With13B,
    /// TinyLlama with 1.1 billion parameters: `tinyllama`.
    TinyLlama,
    /// A Llama of the size of GPT-2, with tied embeddings: `110m`.
    With110M,
    /// A Qwen3 of 107 million parameters: `qwen3-110m`.
    Qwen3With110M,
    /// A Gemma 3 of 87 million parameters, with the heads of Gemma 3 270M: `gemma3-110m`.
    Gemma3With110M,
    /// One million parameters, for tests: `1m`.
    With1M,
    /// A Qwen3 for tests: `qwen3-1m`.
    Qwen3With1M,
    /// A Gemma 3 for tests: `gemma3-1m`.
    Gemma3With1M,
    /// A Qwen3-MoE for tests: `moe-1m`.
    MoeWith1M,
}

impl RandomShape {
    /// All shapes.
    pub(crate) const ALL: [Self; 10] = [
        Self::Llama2With7B,
        Self::Llama2With13B,
        Self::TinyLlama,
        Self::With110M,
        Self::Qwen3With110M,
        Self::Gemma3With110M,
        Self::With1M,
        Self::Qwen3With1M,
        Self::Gemma3With1M,
        Self::MoeWith1M,
    ];

    /// The name that [`FromStr`] parses.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Llama2With7B => "llama2-7b",
            Self::Llama2With13B => "llama2-13b",
            Self::TinyLlama => "tinyllama",
            Self::With110M => "110m",
            Self::Qwen3With110M => "qwen3-110m",
            Self::Gemma3With110M => "gemma3-110m",
            Self::With1M => "1m",
            Self::Qwen3With1M => "qwen3-1m",
            Self::Gemma3With1M => "gemma3-1m",
            Self::MoeWith1M => "moe-1m",
        }
    }

    /// Hidden size, intermediate size, layers, heads, key-value heads, vocabulary, context length.
    fn sizes(self) -> [usize; 7] {
        match self {
            Self::Llama2With7B => [4096, 11_008, 32, 32, 32, 32_000, 4096],
            Self::Llama2With13B => [5120, 13_824, 40, 40, 40, 32_000, 4096],
            Self::TinyLlama => [2048, 5632, 22, 32, 4, 32_000, 2048],
            Self::With110M => [768, 2048, 12, 12, 12, 32_000, 2048],
            Self::Qwen3With110M => [768, 2304, 12, 12, 4, 32_000, 2048],
            Self::Gemma3With110M => [640, 2048, 12, 4, 1, 32_000, 2048],
            Self::With1M | Self::Qwen3With1M => [128, 352, 4, 4, 2, 1024, 1024],
            // Six layers, of which the last has no window.
            Self::Gemma3With1M => [128, 352, 6, 4, 1, 1024, 1024],
            Self::MoeWith1M => [128, 128, 4, 4, 2, 1024, 1024],
        }
    }

    /// Rows of the embedding.
    pub(crate) fn vocabulary(self) -> usize {
        let [.., vocabulary, _] = self.sizes();
        vocabulary
    }

    /// The contents of config.json.
    pub(crate) fn config(self) -> Value {
        let [hidden, intermediate, layers, heads, key_value_heads, vocabulary, context] = self.sizes();
        let mut config = json!({
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            "hidden_size": hidden,
            "intermediate_size": intermediate,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": key_value_heads,
            "vocab_size": vocabulary,
            "max_position_embeddings": context,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10_000.0,
            "tie_word_embeddings": self == Self::With110M,
            "bos_token_id": 1,
            "eos_token_id": 2,
        });
        if let (Some(config), Value::Object(own)) = (config.as_object_mut(), self.family()) {
            config.extend(own);
        }
        config
    }

    /// The fields of config.json in which the shape differs from a Llama.
    fn family(self) -> Value {
        let qwen3 = |head: usize| {
            json!({
                "architectures": ["Qwen3ForCausalLM"],
                "model_type": "qwen3",
                "head_dim": head,
                "attention_bias": false,
                "rms_norm_eps": 1e-6,
                "rope_theta": 1e6,
                "tie_word_embeddings": true,
            })
        };
        let gemma3 = |head: usize, window: usize| {
            json!({
                "architectures": ["Gemma3ForCausalLM"],
                "model_type": "gemma3_text",
                "hidden_act": null,
                "hidden_activation": "gelu_pytorch_tanh",
                "head_dim": head,
                "query_pre_attn_scalar": head,
                "attention_bias": false,
                "sliding_window": window,
                "sliding_window_pattern": 6,
                "rms_norm_eps": 1e-6,
                "rope_theta": 1e6,
                "rope_local_base_freq": 10_000.0,
                "tie_word_embeddings": true,
            })
        };
        match self {
            Self::Qwen3With110M => qwen3(64),
            Self::Qwen3With1M => qwen3(32),
            Self::Gemma3With110M => gemma3(256, 512),
            Self::Gemma3With1M => gemma3(64, 64),
            Self::MoeWith1M => json!({
                "architectures": ["Qwen3MoeForCausalLM"],
                "model_type": "qwen3_moe",
                "head_dim": 32,
                "attention_bias": false,
                "num_experts": 8,
                "num_experts_per_tok": 2,
                "moe_intermediate_size": 64,
                "norm_topk_prob": true,
                "decoder_sparse_step": 1,
                "mlp_only_layers": [],
                "rms_norm_eps": 1e-6,
                "rope_theta": 1e6,
            }),
            _ => json!({}),
        }
    }
}

impl fmt::Display for RandomShape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for RandomShape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|shape| shape.name() == text).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.into_iter().map(Self::name).collect();
            format!("unknown shape {text:?}: expected one of {}", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_the_published_sizes() {
        let millions = RandomShape::ALL.map(|shape| shape.parameters() / 1_000_000);
        assert_eq!(millions, [6738, 13_015, 1100, 109, 107, 87, 1, 0, 1, 1]);
        for shape in RandomShape::ALL {
            assert_eq!(shape.to_string().parse(), Ok(shape));
        }
        assert!("gpt2".parse::<RandomShape>().unwrap_err().contains("tinyllama"));
    }
}
