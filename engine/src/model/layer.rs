//! [`Layer`]: the weights of one decoder layer, on any device, and how they are loaded.

use crate::error::LoadError;
use crate::load::block::{FeedForward, LayerConfig, ModelConfig, Norms, Projections, QueryKeyNorm};
use crate::load::tensors::{Part, Place, Suffix};

/// One decoder layer, with vectors `V` and matrices `M`.
pub(crate) struct Layer<V, M> {
    pub(crate) norms: LayerNorms<V>,
    pub(crate) query_key_value: M,
    pub(crate) query_key_value_bias: Option<V>,
    pub(crate) query_norm: Option<V>,
    pub(crate) key_norm: Option<V>,
    pub(crate) attention_output: M,
    pub(crate) attention_output_bias: Option<V>,
    pub(crate) feed_forward: FeedForwardWeights<V, M>,
    /// Sliding window in positions.
    pub(crate) window: Option<usize>,
    /// The rotary embedding.
    pub(crate) rope: usize,
}

/// The norms around attention and feed-forward.
pub(crate) struct LayerNorms<V> {
    pub(crate) attention: Option<V>,
    pub(crate) after_attention: Option<V>,
    pub(crate) feed_forward: Option<V>,
    pub(crate) after_feed_forward: Option<V>,
}

/// The second half of a layer.
pub(crate) enum FeedForwardWeights<V, M> {
    Dense(Dense<V, M>),
    Experts(Experts<M>),
}

/// A feed-forward that all tokens share.
pub(crate) struct Dense<V, M> {
    pub(crate) gate_up: M,
    pub(crate) gate_up_bias: Option<V>,
    pub(crate) down: M,
    pub(crate) down_bias: Option<V>,
}

/// A mixture of experts.
pub(crate) struct Experts<M> {
    pub(crate) router: M,
    pub(crate) experts: Vec<Expert<M>>,
    /// Experts that compute each token.
    pub(crate) active: usize,
    /// Whether the weights of the active experts are divided by their sum.
    pub(crate) normalised: bool,
}

/// One expert.
pub(crate) struct Expert<M> {
    pub(crate) gate_up: M,
    pub(crate) down: M,
}

/// The type of a matrix in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// The requested type of weights.
    Weights,
    /// Float32: routers, because rounding would change which experts compute a token.
    Full,
}

/// A tensor's name, and its outputs or its length.
pub(crate) type Named = (String, usize);

impl<V, M> Layer<V, M> {
    /// Loads all layers. `vector` reads tensors one after the other and adds a number to each value; `matrix` reads
    /// tensors with their outputs, for a number of inputs, and stacks them along their outputs.
    pub(crate) fn load_all(
        config: &ModelConfig,
        vector: impl Fn(&[Named], f32) -> Result<V, LoadError>,
        matrix: impl Fn(&[Named], usize, Precision) -> Result<M, LoadError>,
    ) -> Result<Vec<Self>, LoadError> {
        let source = Source { config, vector, matrix };
        (0..config.layers.len()).map(|index| source.layer(index)).collect()
    }
}

/// Reads the tensors of layers.
struct Source<'a, F, G> {
    config: &'a ModelConfig,
    vector: F,
    matrix: G,
}

impl<F, G> Source<'_, F, G> {
    fn named(&self, layer: usize, parts: &[Part], suffix: Suffix) -> Vec<Named> {
        let named = |part: &Part| {
            (self.config.name(Place::Layer(layer, *part), suffix), self.config.shape(layer, *part)[0])
        };
        parts.iter().map(named).collect()
    }

    fn matrix<M>(&self, layer: usize, parts: &[Part], precision: Precision) -> Result<M, LoadError>
    where
        G: Fn(&[Named], usize, Precision) -> Result<M, LoadError>,
    {
        let inputs = self.config.shape(layer, parts[0])[1];
        (self.matrix)(&self.named(layer, parts, Suffix::Weight), inputs, precision)
    }

    fn bias<V>(&self, layer: usize, parts: &[Part]) -> Result<Option<V>, LoadError>
    where
        F: Fn(&[Named], f32) -> Result<V, LoadError>,
    {
        let has = self.config.has_bias(parts[0]);
        has.then(|| (self.vector)(&self.named(layer, parts, Suffix::Bias), 0.0)).transpose()
    }

    fn norm<V>(&self, layer: usize, part: Option<Part>) -> Result<Option<V>, LoadError>
    where
        F: Fn(&[Named], f32) -> Result<V, LoadError>,
    {
        let offset = self.config.block.norm_offset;
        part.map(|part| (self.vector)(&self.named(layer, &[part], Suffix::Weight), offset)).transpose()
    }

    fn layer<V, M>(&self, index: usize) -> Result<Layer<V, M>, LoadError>
    where
        F: Fn(&[Named], f32) -> Result<V, LoadError>,
        G: Fn(&[Named], usize, Precision) -> Result<M, LoadError>,
    {
        let LayerConfig { window, rope, feed_forward } = &self.config.layers[index];
        let block = &self.config.block;
        let (query_key_value, gate_up): (&[Part], &[Part]) = match block.projections {
            Projections::Separate => (&[Part::Query, Part::Key, Part::Value], &[Part::Gate, Part::Up]),
            Projections::Fused => (&[Part::QueryKeyValue], &[Part::GateUp]),
        };
        let (before, both) = (block.norms != Norms::After, block.norms == Norms::BeforeAndAfter);
        let after = block.norms != Norms::Before;
        let before_feed_forward = if both { Part::PreFeedForwardNorm } else { Part::PostAttentionNorm };
        let norms = LayerNorms {
            attention: self.norm(index, before.then_some(Part::InputNorm))?,
            after_attention: self.norm(index, after.then_some(Part::PostAttentionNorm))?,
            feed_forward: self.norm(index, before.then_some(before_feed_forward))?,
            after_feed_forward: self.norm(index, after.then_some(Part::PostFeedForwardNorm))?,
        };
        let normed = block.query_key_norm != QueryKeyNorm::None;
        let feed_forward = match feed_forward {
            FeedForward::Dense { .. } => FeedForwardWeights::Dense(Dense {
                gate_up: self.matrix(index, gate_up, Precision::Weights)?,
                gate_up_bias: self.bias(index, gate_up)?,
                down: self.matrix(index, &[Part::Down], Precision::Weights)?,
                down_bias: self.bias(index, &[Part::Down])?,
            }),
            FeedForward::Experts(experts) => {
                let expert = |expert: usize| {
                    let gate_up = [Part::ExpertGate(expert), Part::ExpertUp(expert)];
                    Ok(Expert {
                        gate_up: self.matrix(index, &gate_up, Precision::Weights)?,
                        down: self.matrix(index, &[Part::ExpertDown(expert)], Precision::Weights)?,
                    })
                };
                FeedForwardWeights::Experts(Experts {
                    router: self.matrix(index, &[Part::Router], Precision::Full)?,
                    experts: (0..experts.count).map(expert).collect::<Result<_, LoadError>>()?,
                    active: experts.active,
                    normalised: experts.normalised,
                })
            }
        };
        Ok(Layer {
            norms,
            query_key_value: self.matrix(index, query_key_value, Precision::Weights)?,
            query_key_value_bias: self.bias(index, query_key_value)?,
            query_norm: self.norm(index, normed.then_some(Part::QueryNorm))?,
            key_norm: self.norm(index, normed.then_some(Part::KeyNorm))?,
            attention_output: self.matrix(index, &[Part::AttentionOutput], Precision::Weights)?,
            attention_output_bias: self.bias(index, &[Part::AttentionOutput])?,
            feed_forward,
            window: *window,
            rope: *rope,
        })
    }
}

impl<V, M> Layer<V, M> {
    /// All matrices of the layer.
    pub(crate) fn matrices(&self) -> Vec<&M> {
        let mut matrices = vec![&self.query_key_value, &self.attention_output];
        match &self.feed_forward {
            FeedForwardWeights::Dense(dense) => matrices.extend([&dense.gate_up, &dense.down]),
            FeedForwardWeights::Experts(experts) => {
                matrices.push(&experts.router);
                matrices.extend(experts.experts.iter().flat_map(|expert| [&expert.gate_up, &expert.down]));
            }
        }
        matrices
    }
}
