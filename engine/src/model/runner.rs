//! [`Runner`]: a CPU model with its buffers and threads. Chooses how each step is split over the threads.

use rayon::ThreadPool;

use super::decoder::{Decoder, Scratch};
use super::rope::RotaryTables;
use super::{Chunk, ForwardError, LanguageModel, Prediction};
use crate::error::LoadError;
use crate::load::block::ModelConfig;
use crate::options::thread_pool;

/// Weights up to this size fit in a core's own caches. Each thread then computes whole sequences through all
/// layers, which needs one wake-up per step instead of one per product.
const SMALL_MODEL_BYTES: usize = 64 << 20;
/// Bytes of weights times rows from which splitting a step over threads is worthwhile.
const PARALLEL_STEP: usize = 8 << 20;

/// A CPU [`LanguageModel`] with its buffers and threads.
pub(crate) struct Runner {
    model: Decoder,
    rotary: RotaryTables,
    threads: ThreadPool,
    scratch: Vec<Scratch>,
    logits: Vec<f32>,
}

impl Runner {
    /// `threads`: number of compute threads; all available cores if `None`.
    pub(crate) fn new(
        model: Decoder,
        config: &ModelConfig,
        threads: Option<usize>,
    ) -> Result<Self, LoadError> {
        let threads = thread_pool(threads, "lumos-compute")?;
        let scratch = (0..threads.current_num_threads()).map(|_| Scratch::default()).collect();
        Ok(Self { model, rotary: RotaryTables::new(config), threads, scratch, logits: Vec::new() })
    }
}

impl LanguageModel for Runner {
    fn forward(&mut self, chunks: &mut [Chunk<'_>]) -> Result<Vec<Prediction<'_>>, ForwardError> {
        let vocabulary = self.model.vocabulary();
        let mut rows = 0;
        for chunk in chunks.iter_mut() {
            if let Some(token) = chunk.tokens.iter().find(|token| **token as usize >= vocabulary) {
                return Err(ForwardError::Failed(format!(
                    "token {token} is outside the vocabulary of {vocabulary}"
                )));
            }
            self.rotary.reserve(chunk.cache.length() + chunk.tokens.len(), chunk.cache.is_long());
            rows += chunk.tokens.len();
        }
        self.logits.resize(chunks.iter().filter(|chunk| chunk.logits).count() * vocabulary, 0.0);
        let bytes = self.model.bytes();
        let model = &self.model;
        let (rotary, logits) = (&self.rotary, &mut self.logits[..]);
        let workers = self.threads.current_num_threads();
        if workers == 1 || rows * bytes < PARALLEL_STEP {
            model.forward(chunks, rotary, false, &mut self.scratch[0], logits);
        } else if bytes <= SMALL_MODEL_BYTES && chunks.len() > 1 {
            let shares = shares(chunks, workers);
            self.threads.in_place_scope(|scope| {
                let (mut chunks, mut logits) = (chunks, logits);
                let last = shares.len() - 1;
                for (index, (share, scratch)) in shares.into_iter().zip(&mut self.scratch).enumerate() {
                    let (part, rest) = chunks.split_at_mut(share);
                    chunks = rest;
                    let wanted = part.iter().filter(|chunk| chunk.logits).count();
                    let (part_logits, rest) = logits.split_at_mut(wanted * vocabulary);
                    logits = rest;
                    if index == last {
                        model.forward(part, rotary, false, scratch, part_logits);
                    } else {
                        scope.spawn(move |_| model.forward(part, rotary, false, scratch, part_logits));
                    }
                }
            });
        } else {
            let scratch = &mut self.scratch[0];
            self.threads.install(|| model.forward(chunks, rotary, true, scratch, logits));
        }
        Ok(self.logits.chunks_exact(vocabulary).map(Prediction::Logits).collect())
    }
}

/// Splits the chunks into at most `workers` runs with about the same number of rows each; returns the runs'
/// lengths.
fn shares(chunks: &[Chunk<'_>], workers: usize) -> Vec<usize> {
    let total: usize = chunks.iter().map(|chunk| chunk.tokens.len()).sum();
    let mut shares = Vec::with_capacity(workers);
    let (mut rows, mut length) = (0, 0);
    for chunk in chunks {
        rows += chunk.tokens.len();
        length += 1;
        if rows * workers >= total * (shares.len() + 1) {
            shares.push(length);
            length = 0;
        }
    }
    shares.extend((length > 0).then_some(length));
    shares
}
