//! Benchmarks a model: tokens per second by batch size, time to first token, memory, and shares of the
//! machine's peak rates.
//!
//! [`measure`] runs the cells of [`BenchSettings`] and returns a [`BenchReport`] of plain data, which the
//! caller formats. The peak rates ([`MachineLimits`]) are measured in the same run.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::backend::Backend;
use crate::device::DeviceName;
use crate::engine::Engine;
use crate::error::{GenerateError, LoadError};
use crate::load;
use crate::loaded::ModelDescription;
pub use crate::machine::MachineLimits;
use crate::options::{LoadOptions, ModelSource, thread_count};
use crate::request::{GenerateRequest, Prompt, StopCondition};
use crate::speculation::DraftUsage;
use crate::stream::StreamEvent;

/// Tokens that the second turn appends to the prompt and completion of the first.
const SECOND_TURN: usize = 16;

/// Settings of a benchmark.
#[derive(Clone, Debug)]
pub struct BenchSettings {
    /// The model to measure.
    pub source: ModelSource,
    /// Load options. Each cell sets its own batch size and prefix reuse.
    pub options: LoadOptions,
    /// Batch sizes: sequences computed together. Each is measured once per element of `reuse`.
    pub batch_sizes: Vec<usize>,
    /// Prefix reuse settings to measure: `false`, `true` or both, one after the other.
    pub reuse: Vec<bool>,
    /// Tokens in each prompt.
    pub prompt_tokens: usize,
    /// Tokens generated per sequence; at least 2, because the first is part of prefill.
    pub new_tokens: usize,
}

/// The result of a benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BenchReport {
    /// The measured model.
    pub model: ModelDescription,
    /// The device that computed.
    #[serde(default)]
    pub device: DeviceName,
    /// Compute threads; on a GPU they only drive the device.
    pub threads: usize,
    /// Tokens in each prompt.
    pub prompt_tokens: usize,
    /// Tokens generated per sequence.
    pub new_tokens: usize,
    /// Size of the weights in memory, in bytes.
    pub weight_bytes: u64,
    /// KV cache size of one token, in bytes.
    pub cache_bytes_per_token: u64,
    /// Size of a GPU's buffers for the model, in bytes, with the largest batch that is selected automatically. Also
    /// present if the CPU was measured; `None` in reports of earlier versions.
    #[serde(default)]
    pub gpu_buffer_bytes: Option<u64>,
    /// Peak rates of the machine, measured in the same run.
    pub limits: MachineLimits,
    /// One cell per batch size and prefix reuse setting.
    pub cells: Vec<BenchCell>,
}

/// The measurements of one batch size.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct BenchCell {
    /// Sequences computed together.
    pub batch_size: usize,
    /// Whether prefixes were reused.
    pub reuse: bool,
    /// Prompt tokens of all sequences per second, until the last sequence had its first token.
    pub prefill_tokens_per_second: f64,
    /// Generated tokens of all sequences per second, while all of them decode.
    pub decode_tokens_per_second: f64,
    /// Whether all sequences decoded together at some time. If not, because the first ones ended before the last ones
    /// began, `decode_tokens_per_second` divides all generated tokens by the whole time, prefill included.
    #[serde(default = "decoded_together")]
    pub decoded_together: bool,
    /// Mean time to first token in seconds, with all requests submitted at once.
    pub first_token_seconds: f64,
    /// Mean time to first token in seconds for a second turn: prompt, completion and 16 more tokens.
    pub second_turn_first_token_seconds: f64,
    /// Tokens of the second turn's prompts that came from the prefix cache.
    pub second_turn_cached_tokens: usize,
    /// Peak size of KV cache pages in memory, in bytes.
    pub cache_bytes: u64,
    /// Tokens that lookup decoding drafted and accepted in both turns.
    #[serde(default)]
    pub drafts: DraftUsage,
    /// Bytes of weights, keys and values read per second of decode, as a share of the machine's bandwidth.
    pub decode_share_of_bandwidth: f64,
    /// Operations per second of decode as a share of the kernel's peak rate. This is the limit for large
    /// batches.
    pub decode_share_of_compute: f64,
    /// Operations per second of prefill as a share of the kernel's peak rate.
    pub prefill_share_of_compute: f64,
}

/// Reports of earlier versions do not say.
fn decoded_together() -> bool {
    true
}

impl BenchCell {
    /// The share of the machine's peak that decode reaches. Memory and arithmetic work in parallel, so the
    /// larger of the two shares is the limit.
    pub fn decode_share_of_limit(&self) -> f64 {
        self.decode_share_of_bandwidth.max(self.decode_share_of_compute)
    }
}

/// Errors of [`measure`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The model failed to load.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A sequence was not generated.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// The settings are invalid.
    #[error("invalid settings: {0}")]
    Settings(&'static str),
}

/// Measures a model. Loading the model and measuring the machine block the calling thread.
///
/// # Errors
/// Fails if the settings are invalid, or if the model cannot be loaded or fails.
pub async fn measure(settings: &BenchSettings) -> Result<BenchReport, BenchError> {
    if settings.prompt_tokens == 0 || settings.new_tokens < 2 {
        return Err(BenchError::Settings("expected at least 1 prompt token and 2 generated tokens"));
    }
    if settings.batch_sizes.contains(&0) {
        return Err(BenchError::Settings("batch sizes must be positive"));
    }
    settings.options.check()?;
    let threads = thread_count(settings.options.threads);
    let device = settings.options.device.resolved();
    let &BenchSettings { prompt_tokens, new_tokens, .. } = settings;
    let largest = settings.batch_sizes.iter().copied().max().unwrap_or(1);
    let opened = load::open(&settings.source)?;
    let (vocabulary, matrices) = opened.matrices(device, settings.options.dtype)?;
    let format = matrices.format;
    // The pages of one round at the largest batch size, the last ones of the first turn twice if the second turn copies
    // them, and no more: on a GPU the cache is allocated at once.
    let options = LoadOptions { device, ..settings.options.clone() };
    let layout = Backend::layout(&opened.config, &options, format);
    let positions = prompt_tokens.saturating_add(new_tokens).saturating_add(SECOND_TURN + 1);
    let pages = layout.pages(positions).saturating_add(usize::from(layout.is_in_host_memory()));
    let cache_bytes = pages.saturating_mul(largest).saturating_mul(layout.bytes());
    let on_gpu = LoadOptions { device: DeviceName::Cuda(0), max_batch: LoadOptions::AUTO_BATCH, ..options };
    let gpu_buffer_bytes = Some(Backend::buffer_bytes(&opened.config, vocabulary, &on_gpu));
    drop(opened);
    // Before the engine takes a GPU's memory.
    let limits = Backend::limits(device, threads, settings.options.dtype, format)?;
    let mut report = None;
    for reuse in settings.reuse.iter().copied() {
        // The batch holds all requests of a cell at once; one engine serves all batch sizes.
        let kv_cache_bytes = settings.options.kv_cache_bytes.or(Some(cache_bytes));
        let options = LoadOptions {
            max_batch: largest,
            reuse_prefixes: reuse,
            kv_cache_bytes,
            ..settings.options.clone()
        };
        let engine = Engine::load(settings.source.clone(), options)?;
        round(&engine, settings, 1, u64::MAX).await?;
        let report = match &mut report {
            Some(report) => report,
            None => report.insert(BenchReport {
                model: engine.description().clone(),
                device,
                threads,
                prompt_tokens,
                new_tokens,
                weight_bytes: engine.weight_bytes(),
                cache_bytes_per_token: (engine.statistics().page_bytes / engine.page_size()) as u64,
                gpu_buffer_bytes,
                limits,
                cells: Vec::new(),
            }),
        };
        for batch_size in &settings.batch_sizes {
            report.cells.push(cell(&engine, settings, *batch_size, reuse, &report.limits).await?);
        }
    }
    report.ok_or(BenchError::Settings("nothing to measure"))
}

async fn cell(
    engine: &Engine,
    settings: &BenchSettings,
    batch_size: usize,
    reuse: bool,
    limits: &MachineLimits,
) -> Result<BenchCell, BenchError> {
    let before = engine.statistics().drafts;
    let round = round(engine, settings, batch_size, batch_size as u64).await?;
    let statistics = engine.statistics();
    let prefill = (batch_size * settings.prompt_tokens) as f64 / round.last_first_token;
    let matrices = engine.matrices();
    // Prefill needs the head, and the end of the last layer, for the last token only.
    let every_token = matrices.layers - matrices.predicted;
    let per_prompt = every_token * settings.prompt_tokens + matrices.predicted + matrices.head;
    let prefill_operations = 2.0 * per_prompt as f64 / settings.prompt_tokens as f64 * prefill;
    let drafts = DraftUsage {
        drafted: statistics.drafts.drafted - before.drafted,
        accepted: statistics.drafts.accepted - before.accepted,
    };
    // Passes and rows per generated token; the second turn generates one token.
    let generated = (batch_size * (settings.new_tokens + 1)) as f64;
    let passes = 1.0 - drafts.accepted as f64 / generated;
    let rows = passes + drafts.drafted as f64 / generated;
    let decode_operations = 2.0 * (matrices.layers + matrices.head) as f64 * round.decode * rows;
    let context = settings.prompt_tokens + settings.new_tokens / 2;
    let positions = (batch_size * context) as f64;
    let position_bytes = statistics.page_bytes as f64 / engine.page_size() as f64;
    let step_bytes = matrices.bytes as f64 + positions * position_bytes;
    Ok(BenchCell {
        batch_size,
        reuse,
        prefill_tokens_per_second: prefill,
        decode_tokens_per_second: round.decode,
        decoded_together: round.together,
        first_token_seconds: round.mean_first_token,
        second_turn_first_token_seconds: round.second_turn,
        second_turn_cached_tokens: round.cached_tokens,
        cache_bytes: (statistics.allocated_pages * statistics.page_bytes) as u64,
        drafts,
        decode_share_of_bandwidth: step_bytes * round.decode * passes
            / batch_size as f64
            / limits.read_bytes_per_second,
        decode_share_of_compute: decode_operations / limits.operations_per_second,
        prefill_share_of_compute: prefill_operations / limits.operations_per_second,
    })
}

/// Times of one round in seconds.
struct Round {
    mean_first_token: f64,
    last_first_token: f64,
    /// Decoded tokens of all sequences per second.
    decode: f64,
    /// Whether all sequences decoded together.
    together: bool,
    second_turn: f64,
    cached_tokens: usize,
}

/// Runs two turns of a batch of random prompts.
async fn round(
    engine: &Engine,
    settings: &BenchSettings,
    batch_size: usize,
    seed: u64,
) -> Result<Round, GenerateError> {
    let vocabulary = engine.description().vocabulary as u64;
    let mut state = seed;
    let mut random = |count: usize| -> Vec<u32> {
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % vocabulary) as u32
        };
        std::iter::repeat_with(next).take(count).collect()
    };
    let prompts: Vec<Vec<u32>> = (0..batch_size).map(|_| random(settings.prompt_tokens)).collect();
    let first = turn(engine, prompts, settings.new_tokens).await?;
    let last_first_token = first.iter().map(Times::first).fold(0.0, f64::max);
    let first_end = first.iter().map(Times::last).fold(f64::INFINITY, f64::min);
    // From when the last sequence began to decode until the first one finished.
    let full = |tokens: &Times| {
        let within = |(time, _): &&(f64, usize)| *time > last_first_token && *time <= first_end;
        tokens.arrived.iter().filter(within).map(|(_, count)| *count).sum::<usize>()
    };
    let together: usize = first.iter().map(full).sum();
    let all_decode = first_end > last_first_token;
    let decode = if all_decode {
        together as f64 / (first_end - last_first_token)
    } else {
        let end = first.iter().map(Times::last).fold(0.0, f64::max);
        (batch_size * settings.new_tokens) as f64 / end
    };
    let prompts = first.iter().map(|times| [&times.tokens[..], &random(SECOND_TURN)].concat()).collect();
    let second = turn(engine, prompts, 1).await?;
    let mean = |times: &[Times]| times.iter().map(Times::first).sum::<f64>() / times.len() as f64;
    Ok(Round {
        mean_first_token: mean(&first),
        last_first_token,
        decode,
        together: all_decode,
        second_turn: mean(&second),
        cached_tokens: second.iter().map(|times| times.cached_tokens).sum(),
    })
}

/// The progress of one sequence, in seconds since all requests were submitted.
struct Times {
    /// Arrival times, each with the number of tokens that arrived.
    arrived: Vec<(f64, usize)>,
    /// Prompt and completion.
    tokens: Vec<u32>,
    cached_tokens: usize,
}

impl Times {
    fn first(&self) -> f64 {
        self.arrived.first().map_or(0.0, |(time, _)| *time)
    }

    fn last(&self) -> f64 {
        self.arrived.last().map_or(0.0, |(time, _)| *time)
    }
}

/// Generates from all prompts at once.
async fn turn(
    engine: &Engine,
    prompts: Vec<Vec<u32>>,
    new_tokens: usize,
) -> Result<Vec<Times>, GenerateError> {
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for prompt in prompts {
        let engine = engine.clone();
        let request = GenerateRequest {
            input: Prompt::Tokens(prompt),
            stop: StopCondition::Never,
            ignore_eos: true,
            ..GenerateRequest::text("", new_tokens)
        };
        tasks.spawn(async move { follow(&engine, request, start).await });
    }
    let mut results = Vec::new();
    while let Some(result) = tasks.join_next().await {
        results.push(result.map_err(|error| GenerateError::Forward(error.to_string()))??);
    }
    Ok(results)
}

async fn follow(engine: &Engine, request: GenerateRequest, start: Instant) -> Result<Times, GenerateError> {
    let mut stream = engine.stream(request).await?;
    let mut arrived = Vec::new();
    while let Some(event) = stream.next().await {
        match event? {
            StreamEvent::Delta(delta) => arrived.push((start.elapsed().as_secs_f64(), delta.tokens.len())),
            StreamEvent::Done(generation) => {
                let tokens = [generation.prompt_tokens, generation.tokens].concat();
                return Ok(Times { arrived, tokens, cached_tokens: generation.usage.cached_tokens });
            }
        }
    }
    Err(GenerateError::ShutDown)
}
