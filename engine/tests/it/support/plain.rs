//! A plain decoder in double precision: the formulas of all families, over a whole sequence without a cache. It shares
//! no code with the engine.

use std::collections::HashMap;

use serde_json::Value;

use super::Shape;

type Row = Vec<f64>;

/// A model of random weights.
pub(crate) struct Plain {
    family: &'static str,
    config: Value,
    tensors: HashMap<String, (Vec<usize>, Vec<f32>)>,
}

impl Plain {
    pub(crate) fn new(shape: &Shape, seed: u64) -> Self {
        let tensors = shape.tensors(seed).into_iter().map(|(name, dims, values)| (name, (dims, values)));
        Self { family: shape.family, config: shape.config(), tensors: tensors.collect() }
    }

    fn number(&self, field: &str, default: f64) -> f64 {
        self.config[field].as_f64().unwrap_or(default)
    }

    fn size(&self, field: &str) -> usize {
        self.number(field, 0.0) as usize
    }

    /// `name.weight · input + name.bias`.
    fn linear(&self, name: &str, input: &[f64]) -> Row {
        let (dims, values) = &self.tensors[&format!("{name}.weight")];
        let bias = self.tensors.get(&format!("{name}.bias"));
        let row = |output: usize| {
            let weights = &values[output * dims[1]..][..dims[1]];
            let sum: f64 = weights.iter().zip(input).map(|(weight, input)| f64::from(*weight) * input).sum();
            sum + bias.map_or(0.0, |(_, bias)| f64::from(bias[output]))
        };
        (0..dims[0]).map(row).collect()
    }

    /// The norm, in stretches as long as its weights.
    fn norm(&self, name: &str, input: &[f64]) -> Row {
        let (_, weights) = &self.tensors[&format!("{name}.weight")];
        let offset = if self.family.starts_with("gemma") { 1.0 } else { 0.0 };
        let epsilon = self.number("rms_norm_eps", 0.0);
        let head = |head: &[f64]| -> Row {
            let mean = head.iter().map(|value| value * value).sum::<f64>() / head.len() as f64;
            let scaled = head.iter().map(|value| value / (mean + epsilon).sqrt());
            scaled.zip(weights).map(|(value, weight)| value * (f64::from(*weight) + offset)).collect()
        };
        input.chunks(weights.len()).flat_map(head).collect()
    }

    /// Whether a layer has a window.
    fn is_windowed(&self, layer: usize) -> bool {
        match self.family {
            "gemma2" => layer.is_multiple_of(2),
            "gemma3_text" => !(layer + 1).is_multiple_of(self.size("sliding_window_pattern")),
            _ => self.config["sliding_window"].is_number(),
        }
    }

    /// Angles per position of each pair, and the factor of cosines and sines.
    fn frequencies(&self, layer: usize, size: usize, long: bool) -> (Row, f64) {
        let size = (size as f64 * self.number("partial_rotary_factor", 1.0)) as usize;
        let rope = &self.config["rope_scaling"];
        let local = self.family == "gemma3_text" && self.is_windowed(layer);
        let theta = if local { 10_000.0 } else { self.number("rope_theta", 10_000.0) };
        let plain: Row = (0..size / 2).map(|pair| theta.powf(-2.0 * pair as f64 / size as f64)).collect();
        let kind = rope["type"].as_str().or(rope["rope_type"].as_str()).filter(|_| !local);
        let factor = rope["factor"].as_f64().unwrap_or(1.0);
        let field = "original_max_position_embeddings";
        let original = rope[field].as_f64().or(self.config[field].as_f64()).unwrap_or(1.0);
        match kind {
            Some("linear") => (plain.iter().map(|frequency| frequency / factor).collect(), 1.0),
            Some("longrope") => {
                let divisors = &rope[if long { "long_factor" } else { "short_factor" }];
                let divided = |(pair, frequency): (usize, &f64)| frequency / divisors[pair].as_f64().unwrap();
                let extension = self.number("max_position_embeddings", 0.0) / original;
                let magnitude = (1.0 + extension.ln() / original.ln()).sqrt();
                (plain.iter().enumerate().map(divided).collect(), magnitude)
            }
            Some("yarn") => {
                let dimension = |rotations: f64| {
                    let length = original / (rotations * std::f64::consts::TAU);
                    size as f64 * length.ln() / (2.0 * theta.ln())
                };
                let low = dimension(32.0).floor().max(0.0);
                let high = dimension(1.0).ceil().min(size as f64 - 1.0);
                let high = if high == low { low + 0.001 } else { high };
                let mixed = |(pair, frequency): (usize, &f64)| {
                    let ramp = ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    frequency / factor * ramp + frequency * (1.0 - ramp)
                };
                (plain.iter().enumerate().map(mixed).collect(), 0.1 * factor.ln() + 1.0)
            }
            _ => (plain, 1.0),
        }
    }

    fn feed_forward(&self, layer: usize, input: &[f64]) -> Row {
        let name = |part: &str| format!("model.layers.{layer}.{part}");
        let gelu = self.family.starts_with("gemma");
        let activation = |x: f64| match gelu {
            true => {
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
                x / 2.0 * (1.0 + inner.tanh())
            }
            false => x / (1.0 + (-x).exp()),
        };
        let gated = |gate: &[f64], up: &[f64]| -> Row {
            gate.iter().zip(up).map(|(gate, up)| activation(*gate) * up).collect()
        };
        let dense = |gate: &str, up: &str, down: &str| {
            let inner = gated(&self.linear(gate, input), &self.linear(up, input));
            self.linear(down, &inner)
        };
        let (mixture, parts) = match self.family {
            "mixtral" => (name("block_sparse_moe"), ["w1", "w3", "w2"]),
            _ => (name("mlp"), ["gate_proj", "up_proj", "down_proj"]),
        };
        if self.family == "phi3" {
            let both = self.linear(&name("mlp.gate_up_proj"), input);
            let (gate, up) = both.split_at(both.len() / 2);
            return self.linear(&name("mlp.down_proj"), &gated(gate, up));
        }
        if !self.tensors.contains_key(&format!("{mixture}.gate.weight")) {
            let [gate, up, down] = parts.map(|part| name(&format!("mlp.{part}")));
            return dense(&gate, &up, &down);
        }
        let weights = softmax(&self.linear(&format!("{mixture}.gate"), input));
        let mut order: Vec<usize> = (0..weights.len()).collect();
        order.sort_by(|one, other| weights[*other].total_cmp(&weights[*one]));
        order.truncate(self.size("num_experts_per_tok"));
        let normalised = self.family == "mixtral" || self.config["norm_topk_prob"] == true;
        let total: f64 = if normalised { order.iter().map(|expert| weights[*expert]).sum() } else { 1.0 };
        let mut sum = vec![0.0; input.len()];
        for expert in order {
            let [gate, up, down] = parts.map(|part| format!("{mixture}.experts.{expert}.{part}"));
            add(&mut sum, &dense(&gate, &up, &down), weights[expert] / total);
        }
        sum
    }

    /// The logits after a sequence. `long`: whether it may exceed the original context.
    pub(crate) fn logits(&self, tokens: &[u32], long: bool) -> Row {
        let (hidden, heads) = (self.size("hidden_size"), self.size("num_attention_heads"));
        let key_heads = self.size("num_key_value_heads");
        let size = hidden / heads;
        let (gemma, olmo) = (self.family.starts_with("gemma"), self.family == "olmo2");
        let (_, embedding) = &self.tensors["model.embed_tokens.weight"];
        let scale = if gemma { (hidden as f64).sqrt() } else { self.number("embedding_multiplier", 1.0) };
        let embed = |token: &u32| -> Row {
            let row = &embedding[*token as usize * hidden..][..hidden];
            row.iter().map(|value| f64::from(*value) * scale).collect()
        };
        let mut rows: Vec<Row> = tokens.iter().map(embed).collect();
        let usual = 1.0 / (size as f64).sqrt();
        let attention_scale = match self.family {
            _ if gemma => 1.0 / self.number("query_pre_attn_scalar", 0.0).sqrt(),
            _ => self.number("attention_multiplier", usual),
        };
        let residual = self.number("residual_multiplier", 1.0);
        for layer in 0..self.size("num_hidden_layers") {
            let name = |part: &str| format!("model.layers.{layer}.{part}");
            let (frequencies, magnitude) = self.frequencies(layer, size, long);
            let turn = |head: &mut [f64], position: usize| {
                let half = frequencies.len();
                for (pair, frequency) in frequencies.iter().enumerate() {
                    let (sine, cosine) = (position as f64 * frequency).sin_cos();
                    let (low, high) = (head[pair], head[half + pair]);
                    head[pair] = (low * cosine - high * sine) * magnitude;
                    head[half + pair] = (high * cosine + low * sine) * magnitude;
                }
            };
            // Queries, keys and values of all rows.
            let projected = rows.iter().enumerate().map(|(position, row)| {
                let input = if olmo { row.clone() } else { self.norm(&name("input_layernorm"), row) };
                let [mut queries, mut keys, values] = if self.family == "phi3" {
                    let mut all = self.linear(&name("self_attn.qkv_proj"), &input);
                    let values = all.split_off((heads + key_heads) * size);
                    let keys = all.split_off(heads * size);
                    [all, keys, values]
                } else {
                    ["q", "k", "v"].map(|part| self.linear(&name(&format!("self_attn.{part}_proj")), &input))
                };
                if self.tensors.contains_key(&name("self_attn.q_norm.weight")) {
                    queries = self.norm(&name("self_attn.q_norm"), &queries);
                    keys = self.norm(&name("self_attn.k_norm"), &keys);
                }
                queries.chunks_mut(size).chain(keys.chunks_mut(size)).for_each(|head| turn(head, position));
                [queries, keys, values]
            });
            let projected: Vec<[Row; 3]> = projected.collect();
            let window = if self.is_windowed(layer) { self.size("sliding_window") } else { usize::MAX };
            for (position, row) in rows.iter_mut().enumerate() {
                let first = (position + 1).saturating_sub(window);
                let seen = &projected[first..=position];
                let head = |head: usize| {
                    let part = |row: &'_ Row, head: usize| row[head * size..][..size].to_vec();
                    let query = part(&projected[position][0], head);
                    let key_head = head / (heads / key_heads);
                    let score = |[_, keys, _]: &[Row; 3]| {
                        let key = part(keys, key_head);
                        let score = key.iter().zip(&query).map(|(key, query)| key * query).sum::<f64>();
                        let score = score * attention_scale;
                        let cap = self.config["attn_logit_softcapping"].as_f64();
                        cap.map_or(score, |cap| cap * (score / cap).tanh())
                    };
                    let weights = softmax(&seen.iter().map(score).collect::<Row>());
                    let mut sum = vec![0.0; size];
                    for ([_, _, values], weight) in seen.iter().zip(weights) {
                        add(&mut sum, &part(values, key_head), weight);
                    }
                    sum
                };
                let attended: Row = (0..heads).flat_map(head).collect();
                let mut update = self.linear(&name("self_attn.o_proj"), &attended);
                if gemma || olmo {
                    update = self.norm(&name("post_attention_layernorm"), &update);
                }
                add(row, &update, residual);
                let input = match self.family {
                    "olmo2" => row.clone(),
                    _ if gemma => self.norm(&name("pre_feedforward_layernorm"), row),
                    _ => self.norm(&name("post_attention_layernorm"), row),
                };
                let mut update = self.feed_forward(layer, &input);
                if gemma || olmo {
                    update = self.norm(&name("post_feedforward_layernorm"), &update);
                }
                add(row, &update, residual);
            }
        }
        let last = self.norm("model.norm", rows.last().unwrap());
        let tied = !self.tensors.contains_key("lm_head.weight");
        let mut logits = self.linear(if tied { "model.embed_tokens" } else { "lm_head" }, &last);
        let divisor = self.number("logits_scaling", 1.0);
        let cap = self.config["final_logit_softcapping"].as_f64();
        for logit in &mut logits {
            *logit /= divisor;
            *logit = cap.map_or(*logit, |cap| cap * (*logit / cap).tanh());
        }
        logits
    }
}

fn softmax(values: &[f64]) -> Row {
    let highest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Row = values.iter().map(|value| (value - highest).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}

fn add(target: &mut [f64], addend: &[f64], scale: f64) {
    for (target, addend) in target.iter_mut().zip(addend) {
        *target += addend * scale;
    }
}
