//! The forward pass on a device: the sequence of kernels and products that computes one uploaded [`Step`].
//!
//! The functions allocate its buffers ([`Scratch`], [`Exchange`]) and launch all operations without waiting
//! for the device.

use lumos_kernels::DType;

use super::accelerator::{Accelerator, DeviceError};
use super::kernels::{self, Norm, PARTIAL_BYTES, Pages, Partial};
use super::llama::DeviceLlama;
use super::step::Step;
use crate::load::block::ModelConfig;
use crate::model::AttentionShape;

/// Alignment in bytes of the logits, which follow the chosen ids in the output; suits cuBLAS.
const ALIGNMENT: usize = 256;

/// Buffers of one forward pass, for a given number of rows.
pub(super) struct Scratch<B> {
    pub(super) rows: usize,
    hidden: B,
    normed: B,
    query_key_value: B,
    attended: B,
    gate_up: B,
    product: B,
    update: B,
    /// Parts of attention.
    partial: B,
}

/// Buffers for the upload and the output.
pub(super) struct Exchange<B> {
    /// [`Step::words`].
    pub(super) step: B,
    /// Cosines and sines of all positions in use.
    pub(super) rotary: B,
    /// The chosen ids, followed by the logits of all rows that requested either.
    pub(super) output: B,
}

/// Offset of the logits of `wanted` rows, in bytes.
pub(super) fn logits_offset(wanted: usize) -> usize {
    (wanted * size_of::<u32>()).next_multiple_of(ALIGNMENT)
}

/// Sizes of a row in the buffers of [`Scratch`], in its order, in bytes.
fn row_bytes(hidden: usize, intermediate: usize, shape: &AttentionShape, dtype: DType) -> [usize; 7] {
    let (element, float) = (dtype.width(), size_of::<f32>());
    [
        hidden * float,
        hidden * element,
        shape.stride() * float,
        shape.query_heads * shape.head_size * element,
        2 * intermediate * float,
        intermediate * element,
        hidden * float,
    ]
}

/// Size of the output of `sequences` rows with logits of a vocabulary, in bytes.
pub(super) fn output_bytes(sequences: usize, vocabulary: usize) -> usize {
    logits_offset(sequences) + sequences * vocabulary * size_of::<f32>()
}

/// Size in bytes of all buffers for steps of `rows` tokens, of which `sequences` request output.
pub(crate) fn buffer_bytes(
    config: &ModelConfig,
    vocabulary: usize,
    dtype: DType,
    (rows, sequences): (usize, usize),
) -> u64 {
    let row = row_bytes(config.hidden_size, intermediate(config), &AttentionShape::of(config), dtype);
    // The table has a power of two of positions.
    let positions = config.context_length.checked_next_power_of_two().unwrap_or(usize::MAX);
    let rotary = positions.saturating_mul(config.head_size * size_of::<f32>());
    // The table of rotary embeddings grows into a new buffer before the old one is freed.
    let sizes = [
        rows.saturating_mul(row.iter().sum()),
        output_bytes(sequences, vocabulary),
        rotary,
        rotary,
        PARTIAL_BYTES,
    ];
    sizes.iter().fold(0, |sum, size| sum.saturating_add(*size as u64))
}

/// The largest intermediate width of a layer.
pub(super) fn intermediate(config: &ModelConfig) -> usize {
    config.layers.iter().map(|layer| layer.feed_forward.width()).max().unwrap_or(0)
}

impl<A: Accelerator> DeviceLlama<A> {
    /// Allocates buffers for `rows` rows.
    pub(super) fn scratch(&self, rows: usize) -> Result<Scratch<A::Buffer>, DeviceError> {
        let bytes = row_bytes(self.hidden, self.intermediate, &self.shape, self.dtype);
        let mut buffers = bytes.iter().map(|bytes| self.device.allocate(rows * bytes));
        let mut buffer = || buffers.next().expect("one size for each buffer");
        Ok(Scratch {
            rows,
            hidden: buffer()?,
            normed: buffer()?,
            query_key_value: buffer()?,
            attended: buffer()?,
            gate_up: buffer()?,
            product: buffer()?,
            update: buffer()?,
            partial: self.device.allocate(PARTIAL_BYTES)?,
        })
    }

    /// Computes an uploaded step without waiting for the device.
    pub(super) fn forward(
        &self,
        step: &Step,
        pages: &Pages<A::Buffer>,
        exchange: &Exchange<A::Buffer>,
        scratch: &Scratch<A::Buffer>,
    ) -> Result<(), DeviceError> {
        let (device, rows) = (&self.device, step.rows);
        let at = |word: usize| (&exchange.step, word * size_of::<u32>());
        let Scratch { hidden, normed, query_key_value, attended, gate_up, product, update, partial, .. } =
            scratch;
        let norm = |update, weight| Norm {
            rows: None,
            count: rows,
            hidden,
            update,
            weight,
            output: normed,
            width: self.hidden,
            epsilon: self.epsilon,
        };
        kernels::embed(device, rows, self.hidden, at(step.tokens_at), self.embedding.buffer(), hidden)?;
        // The output of a layer's second half is added at the start of the next layer.
        let mut pending = None;
        for (index, layer) in self.layers.iter().enumerate() {
            kernels::rms_norm(device, &norm(pending, &layer.attention_norm))?;
            layer.query_key_value.multiply(device, rows, normed, (query_key_value, 0))?;
            let (positions, places, rotary) = (at(step.positions_at), at(step.places_at), &exchange.rotary);
            kernels::rotate_store(device, rows, query_key_value, positions, places, rotary, pages, index)?;
            let (tasks, tables) = ((step.tasks, at(step.tasks_at)), at(step.tables_at));
            let place = (index, layer.window);
            let partial = Partial { buffer: partial, longest: step.longest, positions, rows };
            kernels::attention(device, query_key_value, tasks, tables, pages, place, &partial, attended)?;
            layer.attention_output.multiply(device, rows, attended, (update, 0))?;
            kernels::rms_norm(device, &norm(Some(update), &layer.feed_forward_norm))?;
            layer.gate_up.multiply(device, rows, normed, (gate_up, 0))?;
            kernels::gated(device, rows, self.intermediate, gate_up, product)?;
            layer.down.multiply(device, rows, product, (update, 0))?;
            pending = Some(update);
        }
        let wanted = step.sent + step.chosen;
        if wanted == 0 {
            return Ok(());
        }
        let last = Norm { rows: Some(at(step.wanted_at)), count: wanted, ..norm(pending, &self.norm) };
        kernels::rms_norm(device, &last)?;
        let logits = logits_offset(wanted);
        let head = self.head.as_ref().unwrap_or(&self.embedding);
        head.multiply(device, wanted, normed, (&exchange.output, logits))?;
        if step.chosen > 0 {
            let row_bytes = self.vocabulary * size_of::<f32>();
            let (logits, ids) = (logits + step.sent * row_bytes, step.sent * size_of::<u32>());
            let (rules, output) = (at(step.rules_at), &exchange.output);
            kernels::choose(device, step.chosen, self.vocabulary, (output, logits), rules, (output, ids))?;
        }
        Ok(())
    }
}
