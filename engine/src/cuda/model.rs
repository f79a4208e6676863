//! A model on a device with its pages and buffers: the [`LanguageModel`] implementation that the scheduler
//! drives.

use super::accelerator::{Accelerator, DeviceError};
use super::forward::{Exchange, Scratch, logits_offset, output_bytes};
use super::kernels::Pages;
use super::llama::DeviceLlama;
use super::recordings::Recordings;
use super::step::Step;
use crate::device::{self, DeviceName};
use crate::load::block::ModelConfig;
use crate::model::{Chunk, ForwardError, LanguageModel, Prediction, RotaryTable};

/// The id that the kernel returns for logits that are not finite.
const NOT_FINITE: u32 = u32::MAX;
/// Minimum size of a buffer in bytes.
const SMALLEST: usize = 1 << 16;

/// A model with its pages and buffers. Buffers grow on demand and are kept.
pub(crate) struct DeviceModel<A: Accelerator> {
    /// Dropped before the buffers that they use.
    recordings: Recordings<A>,
    pages: Pages<A::Buffer>,
    table: RotaryTable,
    exchange: Exchange<A::Buffer>,
    scratch: Scratch<A::Buffer>,
    /// Sizes of `exchange`'s buffers in bytes.
    step_bytes: usize,
    rotary_bytes: usize,
    output_bytes: usize,
    /// The downloaded words: ids, then logits.
    received: Vec<u32>,
    /// The device's name in messages.
    name: DeviceName,
    /// Dropped last, with the device.
    model: DeviceLlama<A>,
}

impl<A: Accelerator> DeviceModel<A> {
    /// Allocates `pages` pages, and buffers for steps of `rows` tokens and `sequences` sequences that request
    /// output.
    pub(crate) fn new(
        model: DeviceLlama<A>,
        name: DeviceName,
        config: &ModelConfig,
        (pages, positions): (usize, usize),
        (rows, sequences): (usize, usize),
    ) -> Result<Self, DeviceError> {
        let (device, shape, width) = (&model.device, model.shape, model.dtype.width());
        let bytes = config.layers.len() * Pages::<A::Buffer>::layer_bytes(&shape, pages, positions, width);
        let (keys, values) = (device.allocate(bytes)?, device.allocate(bytes)?);
        let pages = Pages { keys, values, shape, count: pages, positions, width };
        let output_bytes = output_bytes(sequences, model.vocabulary);
        let exchange = Exchange {
            step: device.allocate(SMALLEST)?,
            rotary: device.allocate(SMALLEST)?,
            output: device.allocate(output_bytes)?,
        };
        let scratch = model.scratch(rows)?;
        Ok(Self {
            recordings: Recordings::new(),
            model,
            pages,
            table: RotaryTable::new(&config.ropes[0], false),
            exchange,
            scratch,
            step_bytes: SMALLEST,
            rotary_bytes: 0,
            output_bytes,
            received: Vec::new(),
            name,
        })
    }

    /// Grows the buffers if necessary and uploads the step.
    pub(super) fn prepare(&mut self, step: &Step, positions: usize) -> Result<(), DeviceError> {
        let device = &self.model.device;
        if step.rows > self.scratch.rows {
            self.recordings.clear();
            self.scratch = self.model.scratch(step.rows.next_power_of_two())?;
        }
        let wanted = step.sent + step.chosen;
        let output = output_bytes(wanted, self.model.vocabulary);
        if output > self.output_bytes {
            self.recordings.clear();
            self.exchange.output = device.allocate(output)?;
            self.output_bytes = output;
        }
        self.table.reserve(positions);
        let rotary: &[u8] = bytemuck::cast_slice(self.table.values());
        if rotary.len() > self.rotary_bytes {
            self.recordings.clear();
            self.exchange.rotary = device.allocate(rotary.len())?;
            device.upload(&self.exchange.rotary, 0, rotary)?;
            self.rotary_bytes = rotary.len();
        }
        let words: &[u8] = bytemuck::cast_slice(&step.words);
        if words.len() > self.step_bytes {
            self.recordings.clear();
            let bytes = words.len().next_power_of_two();
            self.exchange.step = device.allocate(bytes)?;
            self.step_bytes = bytes;
        }
        device.upload(&self.exchange.step, 0, words)
    }

    /// Downloads ids and the requested logits.
    fn receive(&mut self, step: &Step) -> Result<Vec<Prediction<'_>>, DeviceError> {
        let (wanted, vocabulary) = (step.sent + step.chosen, self.model.vocabulary);
        if wanted == 0 {
            return Ok(Vec::new());
        }
        let ids = if step.sent == 0 { wanted } else { logits_offset(wanted) / size_of::<u32>() };
        self.received.resize(ids + step.sent * vocabulary, 0);
        let bytes = bytemuck::cast_slice_mut(&mut self.received);
        self.model.device.download(&self.exchange.output, 0, bytes)?;
        let (ids, logits) = self.received.split_at(ids);
        let logits: &[f32] = bytemuck::cast_slice(logits);
        let prediction = |place: &usize| match ids[*place] {
            _ if *place < step.sent => Prediction::Logits(&logits[place * vocabulary..][..vocabulary]),
            NOT_FINITE => Prediction::NotFinite,
            id => Prediction::Token(id),
        };
        Ok(step.order.iter().map(prediction).collect())
    }
}

impl<A: Accelerator> LanguageModel for DeviceModel<A> {
    fn forward(&mut self, chunks: &mut [Chunk<'_>]) -> Result<Vec<Prediction<'_>>, ForwardError> {
        let vocabulary = self.model.vocabulary;
        let mut tokens = chunks.iter().flat_map(|chunk| chunk.tokens);
        if let Some(token) = tokens.find(|token| **token as usize >= vocabulary) {
            return Err(ForwardError::Failed(format!(
                "token {token} is outside the vocabulary of {vocabulary}"
            )));
        }
        if chunks.iter().any(|chunk| chunk.predictions > 1) {
            return Err(ForwardError::Failed("a GPU predicts one token of each sequence".to_owned()));
        }
        let step = Step::new(chunks, self.pages.positions, self.model.shape.block_rows());
        let positions =
            chunks.iter().map(|chunk| chunk.cache.length() + chunk.tokens.len()).max().unwrap_or(0);
        let name = self.name;
        let failed = |error: DeviceError| match error {
            DeviceError::Failed(reason) => ForwardError::Failed(reason),
            DeviceError::Lost(reason) => ForwardError::Lost(device::lose(name, &reason)),
        };
        self.prepare(&step, positions).map_err(failed)?;
        let Self { recordings, model, pages, exchange, scratch, .. } = self;
        let forward = || model.forward(&step, pages, exchange, scratch);
        recordings.run(&model.device, &step, forward).map_err(failed)?;
        let predictions = self.receive(&step).map_err(failed)?;
        for chunk in chunks {
            chunk.cache.advance(chunk.tokens.len());
        }
        Ok(predictions)
    }
}
