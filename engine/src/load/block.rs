//! [`ModelConfig`]: the description of a model that loading, adapters and the forward pass share.
//!
//! One decoder computes all families. A family is a value of [`Block`] and [`LayerConfig`]: which norms a layer
//! has, which projections have biases, what a layer attends to, and how it feeds forward. The functions in
//! [`families`](super::families) write the description from config.json; [`tensors`](super::tensors) derives the
//! names and shapes of all tensors from it. The forward pass skips an operation that the description does not ask
//! for, so the results of one family do not depend on the others.

use crate::cache::KeyValueShape;

pub(crate) use lumos_kernels::Activation;

/// The description of a model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ModelConfig {
    /// Class name in config.json, such as `LlamaForCausalLM`.
    pub(crate) architecture: String,
    pub(crate) family: Family,
    pub(crate) hidden_size: usize,
    pub(crate) heads: usize,
    pub(crate) key_value_heads: usize,
    pub(crate) head_size: usize,
    pub(crate) norm_epsilon: f64,
    pub(crate) block: Block,
    pub(crate) layers: Vec<LayerConfig>,
    /// The rotary embeddings that layers choose from.
    pub(crate) ropes: Vec<RopeConfig>,
    /// Factor of the embeddings.
    pub(crate) embedding_scale: Option<f32>,
    /// Divisor of the logits.
    pub(crate) logit_divisor: Option<f32>,
    /// Soft cap of the logits.
    pub(crate) logit_cap: Option<f32>,
    pub(crate) tied_embeddings: bool,
    /// Maximum sequence length in tokens.
    pub(crate) context_length: usize,
    /// Ids that end a sequence.
    pub(crate) end_of_sequence: Vec<u32>,
}

/// A family of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Llama,
    Mistral,
    Mixtral,
    Qwen2,
    Qwen3,
    Qwen3Moe,
    Gemma2,
    Gemma3,
    Phi3,
    Olmo2,
    Granite,
}

/// What all layers of a model have in common.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Block {
    pub(crate) norms: Norms,
    /// Added to the weights of norms when they are loaded: 1 for Gemma's folders.
    pub(crate) norm_offset: f32,
    pub(crate) query_key_norm: QueryKeyNorm,
    pub(crate) biases: Biases,
    pub(crate) projections: Projections,
    /// Factor of the products of queries and keys.
    pub(crate) attention_scale: f32,
    /// Soft cap of the scores.
    pub(crate) attention_cap: Option<f32>,
    /// Factor of the outputs of attention and feed-forward before they are added to the residual stream.
    pub(crate) residual_scale: Option<f32>,
    pub(crate) activation: Activation,
}

/// Where a layer has norms of the hidden size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Norms {
    /// Before attention ([`Part::InputNorm`](super::tensors::Part)) and before the feed-forward
    /// (`PostAttentionNorm`, as Llama names it).
    Before,
    /// Before and after both.
    BeforeAndAfter,
    /// After attention and after the feed-forward.
    After,
}

/// Norms of queries and keys, before their rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueryKeyNorm {
    None,
    /// Over each head, with the same weights for all heads.
    PerHead,
    /// Over all heads together.
    Whole,
}

/// Which projections add a bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Biases {
    pub(crate) query_key_value: bool,
    pub(crate) attention_output: bool,
    pub(crate) feed_forward: bool,
}

/// Whether the projections from the same input are separate tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Projections {
    Separate,
    /// `qkv_proj` has the rows of queries, keys and values; `gate_up_proj` those of gate and up.
    Fused,
}

/// What is particular to one layer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LayerConfig {
    /// Sliding window in positions: a row attends to itself and the `window - 1` preceding positions.
    pub(crate) window: Option<usize>,
    /// Index in [`ModelConfig::ropes`].
    pub(crate) rope: usize,
    pub(crate) feed_forward: FeedForward,
}

/// The second half of a layer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FeedForward {
    Dense { width: usize },
    Experts(ExpertConfig),
}

/// A mixture of experts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExpertConfig {
    pub(crate) count: usize,
    /// Experts that compute each token.
    pub(crate) active: usize,
    /// Width of one expert.
    pub(crate) width: usize,
    /// Whether the weights of the active experts are divided by their sum.
    pub(crate) normalised: bool,
    pub(crate) names: ExpertNames,
}

/// How a checkpoint names the tensors of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpertNames {
    Mixtral,
    Qwen,
}

/// A rotary embedding.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RopeConfig {
    pub(crate) theta: f64,
    /// Leading values of a head that are rotated; even, at most the size of a head.
    pub(crate) rotary: usize,
    pub(crate) scaling: RopeScaling,
}

/// How rotary frequencies are scaled.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RopeScaling {
    None,
    Linear {
        factor: f64,
    },
    Llama3 {
        factor: f64,
        low_frequency_factor: f64,
        high_frequency_factor: f64,
        original_length: f64,
    },
    /// The divisor of each pair's frequency.
    Divisors(Vec<f32>),
    /// YaRN (<https://arxiv.org/abs/2309.00071>).
    Yarn {
        factor: f64,
        original_length: f64,
        beta_fast: f64,
        beta_slow: f64,
        /// Factor of cosines and sines.
        attention_factor: f32,
        /// Whether the bounds of the ramp are rounded to whole pairs.
        truncate: bool,
    },
    /// LongRoPE (<https://arxiv.org/abs/2402.13753>): divisors of each pair's frequency, for sequences of up to
    /// `original_length` tokens and for longer ones.
    LongRope {
        short: Vec<f32>,
        long: Vec<f32>,
        original_length: usize,
        /// Factor of cosines and sines.
        attention_factor: f32,
    },
}

impl ModelConfig {
    /// Numbers in a position's queries of all heads, and in its keys (or values) of all heads.
    pub(crate) fn widths(&self) -> (usize, usize) {
        (self.heads * self.head_size, self.key_value_heads * self.head_size)
    }

    /// Shape of the keys and values that the model stores per position.
    pub(crate) fn key_values(&self) -> KeyValueShape {
        KeyValueShape { layers: self.layers.len(), heads: self.key_value_heads, head_size: self.head_size }
    }

    /// The sequence length in tokens above which rotary frequencies differ; `None` if they are the same for all
    /// lengths.
    pub(crate) fn short_length(&self) -> Option<usize> {
        self.ropes.iter().find_map(|rope| match &rope.scaling {
            RopeScaling::LongRope { original_length, .. } => Some(*original_length),
            _ => None,
        })
    }

    /// Whether every layer computes what Llama's and Mistral's layers compute: norms before, no biases, one rotary
    /// embedding over whole heads, SiLU.
    pub(crate) fn is_plain(&self) -> bool {
        let plain = Block {
            norms: Norms::Before,
            norm_offset: 0.0,
            query_key_norm: QueryKeyNorm::None,
            biases: Biases::default(),
            projections: Projections::Separate,
            attention_scale: Block::usual_scale(self.head_size),
            attention_cap: None,
            residual_scale: None,
            activation: Activation::Silu,
        };
        let scales = [self.embedding_scale, self.logit_divisor, self.logit_cap];
        self.block == plain
            && scales == [None; 3]
            && self.short_length().is_none()
            && matches!(&self.ropes[..], [rope] if rope.rotary == self.head_size)
            && self.layers.iter().all(|layer| matches!(layer.feed_forward, FeedForward::Dense { .. }))
    }
}

impl Block {
    /// The usual factor of scores: the inverse square root of the size of a head.
    pub(crate) fn usual_scale(head_size: usize) -> f32 {
        1.0 / (head_size as f32).sqrt()
    }
}

impl FeedForward {
    /// Intermediate width that one token passes through: of the layer, or of one expert.
    pub(crate) fn width(&self) -> usize {
        match self {
            Self::Dense { width } => *width,
            Self::Experts(experts) => experts.width,
        }
    }
}
