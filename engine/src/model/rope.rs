//! Rotary position embedding, half-split as in Hugging Face's Llama.
//!
//! Frequencies, cosines and sines are float32 whatever type the checkpoint stores its weights in, as in
//! `from_pretrained` of transformers and in llama.cpp; `docs/fidelity.md` has the comparison.

use crate::load::config::{ModelConfig, RopeScaling};

/// Cosines and sines per position, computed up to the largest position needed so far.
pub(crate) struct RotaryTable {
    frequencies: Vec<f32>,
    /// Per position `head_size / 2` cosines, then as many sines.
    table: Vec<f32>,
}

impl RotaryTable {
    pub(crate) fn new(config: &ModelConfig) -> Self {
        Self { frequencies: frequencies(config), table: Vec::new() }
    }

    /// Extends the table to `length` positions.
    pub(crate) fn reserve(&mut self, length: usize) {
        let width = 2 * self.frequencies.len();
        if self.table.len() >= length * width {
            return;
        }
        let known = self.table.len() / width;
        for position in known..length.next_power_of_two() {
            let angle = |frequency: &f32| position as f32 * frequency;
            self.table.extend(self.frequencies.iter().map(|frequency| angle(frequency).cos()));
            self.table.extend(self.frequencies.iter().map(|frequency| angle(frequency).sin()));
        }
    }

    /// The computed part of the table: for each position the cosines, then the sines.
    pub(crate) fn values(&self) -> &[f32] {
        &self.table
    }

    /// Rotates one head (`head_size` floats) by its position, which must be below the reserved length.
    pub(crate) fn rotate(&self, head: &mut [f32], position: usize) {
        let half = self.frequencies.len();
        let (cosines, sines) = self.table[position * 2 * half..][..2 * half].split_at(half);
        let (low, high) = head.split_at_mut(half);
        for (((low, high), cosine), sine) in low.iter_mut().zip(high).zip(cosines).zip(sines) {
            let (first, second) = (*low, *high);
            *low = first * cosine - second * sine;
            *high = second * cosine + first * sine;
        }
    }
}

/// Angle per position of each pair, with the checkpoint's scaling applied.
fn frequencies(config: &ModelConfig) -> Vec<f32> {
    let size = config.head_size as f32;
    let plain =
        (0..config.head_size / 2).map(|pair| 1.0 / (config.rope_theta as f32).powf(2.0 * pair as f32 / size));
    match &config.rope_scaling {
        RopeScaling::None => plain.collect(),
        RopeScaling::Linear { factor } => plain.map(|frequency| frequency / *factor as f32).collect(),
        RopeScaling::Divisors(divisors) => {
            plain.zip(divisors).map(|(frequency, divisor)| frequency / divisor).collect()
        }
        RopeScaling::Llama3 { factor, low_frequency_factor, high_frequency_factor, original_length } => plain
            .map(|frequency| {
                let length = 2.0 * std::f64::consts::PI / f64::from(frequency);
                let low = original_length / low_frequency_factor;
                let high = original_length / high_frequency_factor;
                if length > low {
                    (f64::from(frequency) / factor) as f32
                } else if length < high {
                    frequency
                } else {
                    let smooth = (original_length / length - low_frequency_factor)
                        / (high_frequency_factor - low_frequency_factor);
                    ((1.0 - smooth) * f64::from(frequency) / factor + smooth * f64::from(frequency)) as f32
                }
            })
            .collect(),
    }
}
