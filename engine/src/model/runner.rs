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
        self.logits.resize(chunks.iter().map(|chunk| chunk.predictions).sum::<usize>() * vocabulary, 0.0);
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
                    let wanted: usize = part.iter().map(|chunk| chunk.predictions).sum();
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

#[cfg(test)]
mod tests {
    use lumos_kernels::DType;

    use super::*;
    use crate::cache::{KvCache, PageLayout, Pool};
    use crate::fixtures::{Shape, Uniform, families};
    use crate::load;
    use crate::model::attention_storage;
    use crate::options::ModelSource;

    /// A sequence of one model, with its pages.
    struct Stage {
        runner: Runner,
        pool: Pool,
        cache: KvCache,
    }

    impl Stage {
        fn new(opened: &load::Opened, dtype: DType, positions: usize, threads: usize) -> Self {
            let model = Decoder::load(&opened.config, &opened.weights, dtype).unwrap();
            let storage = attention_storage(dtype);
            let layout = PageLayout { shape: opened.config.key_values(), positions, storage };
            Self {
                runner: Runner::new(model, &opened.config, Some(threads)).unwrap(),
                pool: Pool::new(layout, 200, false),
                cache: KvCache::new(layout),
            }
        }

        /// Computes the tokens in one pass; returns the bits of the logits after each of them.
        fn pass(&mut self, tokens: &[u32]) -> Vec<Vec<u32>> {
            let positions = self.cache.length() + tokens.len();
            assert!(self.pool.reserve(&mut self.cache, positions));
            let chunk = Chunk { tokens, cache: &mut self.cache, predictions: tokens.len(), choosing: None };
            let predictions = self.runner.forward(&mut [chunk]).unwrap();
            let bits = |prediction| match prediction {
                Prediction::Logits(logits) => logits.iter().map(|logit| logit.to_bits()).collect(),
                _ => panic!("the processor returns logits"),
            };
            predictions.into_iter().map(bits).collect()
        }
    }

    /// The logits of every row of a pass equal those of single steps to the bit, also after positions were removed:
    /// all families, types, page sizes and sliding windows.
    #[test]
    fn a_pass_over_a_draft_equals_single_steps_to_the_bit() {
        for family in families::ALL {
            let folder = tempfile::tempdir().unwrap();
            let shape = Shape::of(family);
            shape.files(31).write(folder.path());
            let opened = load::open(&ModelSource::Folder(folder.path().to_owned())).unwrap();
            let mut random = Uniform::new(4);
            let mut tokens = |count: usize| -> Vec<u32> {
                (0..count).map(|_| random.below(shape.vocabulary) as u32).collect()
            };
            let (text, rejected) = (tokens(60), tokens(40));
            for (dtype, page) in [(DType::F32, 4), (DType::F32, 16), (DType::Bf16, 16), (DType::F16, 1)] {
                let mut single = Stage::new(&opened, dtype, 16, 1);
                let expected: Vec<Vec<u32>> =
                    text.iter().flat_map(|token| single.pass(std::slice::from_ref(token))).collect();
                let mut drafted = Stage::new(&opened, dtype, page, 2);
                assert_eq!(drafted.pass(&text[..13]), expected[..13], "{family} {dtype}");
                let mut known = 13;
                for (accepted, wrong) in [(0, 3), (8, 0), (1, 7), (5, 2), (0, 18), (6, 11), (3, 1)] {
                    let draft = [&text[known..=known + accepted], &rejected[..wrong]].concat();
                    let found = drafted.pass(&draft);
                    assert_eq!(
                        found[..=accepted],
                        expected[known..=known + accepted],
                        "{family} {dtype} {known}"
                    );
                    known += accepted + 1;
                    drafted.pool.truncate(&mut drafted.cache, known);
                    drafted.pool.check([&drafted.cache].into_iter());
                }
                assert_eq!(drafted.pass(&text[known..]), expected[known..], "{family} {dtype}");
            }
        }
    }
}
