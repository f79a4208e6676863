//! Names and shapes of a model's tensors, derived from its description.
//!
//! A [`Place`] is one tensor's place in a model. Loading, adapters, random weights and memory estimates all use
//! [`ModelConfig::tensors`], so that they cannot disagree.

use super::block::{ExpertNames, FeedForward, ModelConfig, Norms, Projections, QueryKeyNorm};

/// Names of the tensors outside of the layers.
pub(crate) const EMBEDDING: &str = "model.embed_tokens.weight";
pub(crate) const NORM: &str = "model.norm.weight";
pub(crate) const HEAD: &str = "lm_head.weight";

/// The place of a tensor in a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Embedding,
    FinalNorm,
    Head,
    Layer(usize, Part),
}

/// A part of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    InputNorm,
    PostAttentionNorm,
    PreFeedForwardNorm,
    PostFeedForwardNorm,
    QueryNorm,
    KeyNorm,
    Query,
    Key,
    Value,
    QueryKeyValue,
    AttentionOutput,
    Gate,
    Up,
    GateUp,
    Down,
    Router,
    ExpertGate(usize),
    ExpertUp(usize),
    ExpertDown(usize),
}

/// The end of a tensor's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suffix {
    Weight,
    Bias,
}

impl ModelConfig {
    /// Hugging Face's name of a tensor.
    pub(crate) fn name(&self, place: Place, suffix: Suffix) -> String {
        let (layer, part) = match place {
            Place::Embedding => return EMBEDDING.to_owned(),
            Place::FinalNorm => return NORM.to_owned(),
            Place::Head => return HEAD.to_owned(),
            Place::Layer(layer, part) => (layer, part),
        };
        let suffix = match suffix {
            Suffix::Weight => "weight",
            Suffix::Bias => "bias",
        };
        format!("model.layers.{layer}.{}.{suffix}", part.name(self.expert_names(layer)))
    }

    fn expert_names(&self, layer: usize) -> ExpertNames {
        match &self.layers[layer].feed_forward {
            FeedForward::Experts(experts) => experts.names,
            FeedForward::Dense { .. } => ExpertNames::Qwen,
        }
    }

    /// The parts of a layer, in the order of the forward pass; biases belong to their part.
    pub(crate) fn parts(&self, layer: usize) -> Vec<Part> {
        let block = &self.block;
        let mut parts = Vec::new();
        if block.norms != Norms::After {
            parts.push(Part::InputNorm);
        }
        match block.projections {
            Projections::Separate => parts.extend([Part::Query, Part::Key, Part::Value]),
            Projections::Fused => parts.push(Part::QueryKeyValue),
        }
        if block.query_key_norm != QueryKeyNorm::None {
            parts.extend([Part::QueryNorm, Part::KeyNorm]);
        }
        parts.extend([Part::AttentionOutput, Part::PostAttentionNorm]);
        if block.norms == Norms::BeforeAndAfter {
            parts.push(Part::PreFeedForwardNorm);
        }
        match &self.layers[layer].feed_forward {
            FeedForward::Dense { .. } if block.projections == Projections::Fused => {
                parts.extend([Part::GateUp, Part::Down]);
            }
            FeedForward::Dense { .. } => parts.extend([Part::Gate, Part::Up, Part::Down]),
            FeedForward::Experts(experts) => {
                parts.push(Part::Router);
                parts.extend((0..experts.count).flat_map(|expert| {
                    [Part::ExpertGate(expert), Part::ExpertUp(expert), Part::ExpertDown(expert)]
                }));
            }
        }
        if block.norms != Norms::Before {
            parts.push(Part::PostFeedForwardNorm);
        }
        parts
    }

    /// The shape of a part's weight: outputs and inputs of a matrix, or the length of a vector.
    pub(crate) fn shape(&self, layer: usize, part: Part) -> Vec<usize> {
        let hidden = self.hidden_size;
        let (queries, keys) = self.widths();
        let feed_forward = &self.layers[layer].feed_forward;
        let width = feed_forward.width();
        let norm = |whole: usize| match self.block.query_key_norm {
            QueryKeyNorm::Whole => vec![whole],
            QueryKeyNorm::PerHead | QueryKeyNorm::None => vec![self.head_size],
        };
        match part {
            Part::InputNorm
            | Part::PostAttentionNorm
            | Part::PreFeedForwardNorm
            | Part::PostFeedForwardNorm => vec![hidden],
            Part::QueryNorm => norm(queries),
            Part::KeyNorm => norm(keys),
            Part::Query => vec![queries, hidden],
            Part::Key | Part::Value => vec![keys, hidden],
            Part::QueryKeyValue => vec![queries + 2 * keys, hidden],
            Part::AttentionOutput => vec![hidden, queries],
            Part::Gate | Part::Up | Part::ExpertGate(_) | Part::ExpertUp(_) => vec![width, hidden],
            Part::GateUp => vec![2 * width, hidden],
            Part::Down | Part::ExpertDown(_) => vec![hidden, width],
            Part::Router => match feed_forward {
                FeedForward::Experts(experts) => vec![experts.count, hidden],
                FeedForward::Dense { .. } => vec![0, hidden],
            },
        }
    }

    /// Whether a part has a bias, with one number per output.
    pub(crate) fn has_bias(&self, part: Part) -> bool {
        let biases = &self.block.biases;
        match part {
            Part::Query | Part::Key | Part::Value | Part::QueryKeyValue => biases.query_key_value,
            Part::AttentionOutput => biases.attention_output,
            Part::Gate | Part::Up | Part::GateUp | Part::Down => biases.feed_forward,
            _ => false,
        }
    }

    /// Names and shapes of all tensors, in the order of the layers. The rows of the embedding and of the head are a
    /// parameter, because a configuration does not fix them.
    pub(crate) fn tensors(&self, rows: usize) -> Vec<(String, Vec<usize>)> {
        let hidden = self.hidden_size;
        let mut tensors = vec![(self.name(Place::Embedding, Suffix::Weight), vec![rows, hidden])];
        for layer in 0..self.layers.len() {
            for part in self.parts(layer) {
                let (place, shape) = (Place::Layer(layer, part), self.shape(layer, part));
                let bias = self.has_bias(part).then(|| (self.name(place, Suffix::Bias), vec![shape[0]]));
                tensors.push((self.name(place, Suffix::Weight), shape));
                tensors.extend(bias);
            }
        }
        tensors.push((self.name(Place::FinalNorm, Suffix::Weight), vec![hidden]));
        if !self.tied_embeddings {
            tensors.push((self.name(Place::Head, Suffix::Weight), vec![rows, hidden]));
        }
        tensors
    }

    /// Number of values in all vectors: norms and biases.
    pub(crate) fn vector_values(&self) -> usize {
        let vectors = self.tensors(1).into_iter().filter(|(_, shape)| shape.len() == 1);
        vectors.map(|(_, shape)| shape[0]).sum()
    }
}

impl Part {
    /// The name within a layer, without the suffix.
    fn name(self, experts: ExpertNames) -> String {
        let expert = |expert: usize, mixtral: &str, qwen: &str| match experts {
            ExpertNames::Mixtral => format!("block_sparse_moe.experts.{expert}.{mixtral}"),
            ExpertNames::Qwen => format!("mlp.experts.{expert}.{qwen}"),
        };
        let name = match self {
            Self::InputNorm => "input_layernorm",
            Self::PostAttentionNorm => "post_attention_layernorm",
            Self::PreFeedForwardNorm => "pre_feedforward_layernorm",
            Self::PostFeedForwardNorm => "post_feedforward_layernorm",
            Self::QueryNorm => "self_attn.q_norm",
            Self::KeyNorm => "self_attn.k_norm",
            Self::Query => "self_attn.q_proj",
            Self::Key => "self_attn.k_proj",
            Self::Value => "self_attn.v_proj",
            Self::QueryKeyValue => "self_attn.qkv_proj",
            Self::AttentionOutput => "self_attn.o_proj",
            Self::Gate => "mlp.gate_proj",
            Self::Up => "mlp.up_proj",
            Self::GateUp => "mlp.gate_up_proj",
            Self::Down => "mlp.down_proj",
            Self::Router => match experts {
                ExpertNames::Mixtral => "block_sparse_moe.gate",
                ExpertNames::Qwen => "mlp.gate",
            },
            Self::ExpertGate(index) => return expert(index, "w1", "gate_proj"),
            Self::ExpertUp(index) => return expert(index, "w3", "up_proj"),
            Self::ExpertDown(index) => return expert(index, "w2", "down_proj"),
        };
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::fixtures::{Shape, families};
    use crate::model::Matrices;
    use lumos_kernels::DType;

    /// The list has the tensors of a checkpoint of each family, and their sizes are those of the estimates.
    #[test]
    fn the_tensors_are_those_of_the_files() {
        let biased = serde_json::json!({"attention_bias": true, "mlp_bias": true});
        let biased = Shape { extra: biased, ..Shape::tiny() };
        for shape in families::ALL.map(Shape::of).into_iter().chain([biased]) {
            let config = shape.config().to_string();
            let config = ModelConfig::parse(config.as_bytes(), None, Path::new("config.json")).unwrap();
            let mut listed = config.tensors(shape.vocabulary);
            let mut stored: Vec<(String, Vec<usize>)> =
                shape.tensors(1).into_iter().map(|(name, dims, _)| (name, dims)).collect();
            stored.sort();
            listed.sort();
            assert_eq!(listed, stored, "{}", shape.family);
            let values = |dimensions: usize| -> usize {
                let of_kind = stored.iter().filter(|(_, dims)| dims.len() == dimensions);
                of_kind.map(|(_, dims)| dims.iter().product::<usize>()).sum()
            };
            // An embedding that is not the head is not multiplied.
            let embedding = if shape.tied { 0 } else { shape.vocabulary * shape.hidden };
            let matrices = Matrices::new(&config, shape.vocabulary, DType::F32);
            assert_eq!(matrices.total_bytes, 4 * (values(2) - embedding), "{}", shape.family);
            assert_eq!(config.vector_values(), values(1), "{}", shape.family);
            let unread = matrices.total_bytes / 4 - matrices.layers - matrices.head;
            let inactive = match shape.family {
                "mixtral" => 2 * 3 * 3 * 48 * 100,
                "qwen3_moe" => 3 * 3 * 48 * 36,
                _ => 0,
            };
            assert_eq!(unread, inactive, "{}", shape.family);
        }
    }
}
