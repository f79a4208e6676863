//! Rotary position embedding, half-split as in Hugging Face's Llama.
//!
//! [`RotaryTables`] has a table of cosines and sines for each of a model's rotary embeddings, and for sequences that
//! are longer than the model's original context where their frequencies differ (LongRoPE). Frequencies, cosines and
//! sines are float32 whatever type the checkpoint stores its weights in, as in `from_pretrained` of transformers and
//! in llama.cpp; `docs/fidelity.md` has the comparison.

use std::f64::consts::PI;

use crate::load::block::{ModelConfig, RopeConfig, RopeScaling};

/// The tables of a model.
pub(crate) struct RotaryTables {
    tables: Vec<RotaryTable>,
    /// Tables for long sequences, where they differ.
    long: Vec<Option<RotaryTable>>,
}

impl RotaryTables {
    pub(crate) fn new(config: &ModelConfig) -> Self {
        let long = |rope: &RopeConfig| {
            let differs = matches!(rope.scaling, RopeScaling::LongRope { .. });
            differs.then(|| RotaryTable::new(rope, true))
        };
        Self {
            tables: config.ropes.iter().map(|rope| RotaryTable::new(rope, false)).collect(),
            long: config.ropes.iter().map(long).collect(),
        }
    }

    /// Extends the tables of short or long sequences to `length` positions.
    pub(crate) fn reserve(&mut self, length: usize, long: bool) {
        for (table, of_long) in self.tables.iter_mut().zip(&mut self.long) {
            match of_long.as_mut().filter(|_| long) {
                Some(table) => table.reserve(length),
                None => table.reserve(length),
            }
        }
    }

    /// The table of one rotary embedding.
    pub(crate) fn table(&self, rope: usize, long: bool) -> &RotaryTable {
        self.long[rope].as_ref().filter(|_| long).unwrap_or(&self.tables[rope])
    }
}

/// Cosines and sines per position, computed up to the largest position needed so far.
pub(crate) struct RotaryTable {
    frequencies: Vec<f32>,
    /// Factor of cosines and sines.
    factor: f32,
    /// Per position one cosine per pair, then as many sines.
    table: Vec<f32>,
}

impl RotaryTable {
    /// The table of short sequences, or of long ones.
    pub(crate) fn new(rope: &RopeConfig, long: bool) -> Self {
        let factor = match rope.scaling {
            RopeScaling::Yarn { attention_factor, .. } | RopeScaling::LongRope { attention_factor, .. } => {
                attention_factor
            }
            _ => 1.0,
        };
        Self { frequencies: frequencies(rope, long), factor, table: Vec::new() }
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
            self.table.extend(self.frequencies.iter().map(|frequency| angle(frequency).cos() * self.factor));
            self.table.extend(self.frequencies.iter().map(|frequency| angle(frequency).sin() * self.factor));
        }
    }

    /// The computed part of the table: for each position the cosines, then the sines.
    pub(crate) fn values(&self) -> &[f32] {
        &self.table
    }

    /// Rotates the leading values of one head by its position, which must be below the reserved length.
    #[inline(always)]
    pub(crate) fn rotate(&self, head: &mut [f32], position: usize) {
        let half = self.frequencies.len();
        let (cosines, sines) = self.table[position * 2 * half..][..2 * half].split_at(half);
        let (low, high) = head[..2 * half].split_at_mut(half);
        for (((low, high), cosine), sine) in low.iter_mut().zip(high).zip(cosines).zip(sines) {
            let (first, second) = (*low, *high);
            *low = first * cosine - second * sine;
            *high = second * cosine + first * sine;
        }
    }
}

/// Angle per position of each pair, with the checkpoint's scaling applied.
fn frequencies(rope: &RopeConfig, long_sequence: bool) -> Vec<f32> {
    let size = rope.rotary as f32;
    let plain = (0..rope.rotary / 2).map(|pair| 1.0 / (rope.theta as f32).powf(2.0 * pair as f32 / size));
    let divided = |divisors: &[f32]| {
        plain.clone().zip(divisors).map(|(frequency, divisor)| frequency / divisor).collect()
    };
    match &rope.scaling {
        RopeScaling::None => plain.collect(),
        RopeScaling::Linear { factor } => plain.map(|frequency| frequency / *factor as f32).collect(),
        RopeScaling::Divisors(divisors) => divided(divisors),
        RopeScaling::LongRope { short, long, .. } => divided(if long_sequence { long } else { short }),
        RopeScaling::Llama3 { factor, low_frequency_factor, high_frequency_factor, original_length } => plain
            .map(|frequency| {
                let length = 2.0 * PI / f64::from(frequency);
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
        RopeScaling::Yarn { factor, original_length, beta_fast, beta_slow, truncate, .. } => {
            let size = rope.rotary as f64;
            // The pair that makes this number of rotations within the original context.
            let pair = |rotations: f64| {
                size * (original_length / (rotations * 2.0 * PI)).ln() / (2.0 * rope.theta.ln())
            };
            let (low, high) = (pair(*beta_fast), pair(*beta_slow));
            let (low, high) = if *truncate { (low.floor(), high.ceil()) } else { (low, high) };
            let (low, high) = (low.max(0.0), high.min(size - 1.0));
            let high = if low == high { high + 0.001 } else { high };
            plain
                .enumerate()
                .map(|(pair, frequency)| {
                    let ramp = ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    let frequency = f64::from(frequency);
                    (frequency / factor * ramp + frequency * (1.0 - ramp)) as f32
                })
                .collect()
        }
    }
}
