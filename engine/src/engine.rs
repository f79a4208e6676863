//! [`Engine`]: the handle to a loaded model and its scheduler thread.
//!
//! Callers submit a [`GenerateRequest`] through a channel; the scheduler batches all sequences in flight and
//! returns a [`Generation`] or a [`GenerationStream`] of tokens.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::backend::Backend;
use crate::cache::{PageLayout, Pool};
use crate::device::{DeviceName, lost_gpu};
use crate::error::{GenerateError, LoadError};
use crate::load;
use crate::loaded::{Loaded, ModelDescription};
use crate::memory::{Reservation, cache_share, device_share, usable};
use crate::model::Matrices;
use crate::options::{LoadOptions, MOST_AUTO_BATCH, ModelSource};
use crate::request::{GenerateRequest, Generation, Prompt, StopCondition};
use crate::scheduler::{Completion, Counters, Limits, Scheduler, SequenceRequest, Statistics, Submission};
use crate::stream::{GenerationStream, generation};
use crate::tokenizer::Tokenizer;

/// Capacity of the submission channel; further callers wait.
const CHANNEL: usize = 64;
/// Capacity of a stream's channel, in batches of new tokens.
const STREAM: usize = 32;
/// Prompts of more bytes than this are encoded outside the threads that run futures.
const LONG_TEXT: usize = 16 << 10;
/// Number of such prompts that are encoded at the same time; further ones wait.
const LONG_TEXTS: usize = 8;
/// Sequence length in tokens that [`LoadOptions::AUTO_BATCH`] reserves room for.
const TYPICAL_LENGTH: usize = 1024;

/// A loaded model that generates many sequences at once.
///
/// Cloning returns another handle to the same model. The scheduler runs on its own thread, which ends, and is
/// joined, when the last handle is dropped or [`Engine::shutdown`] is called.
///
/// With float32 weights on the CPU, the result of a request is bit-identical whatever other requests are in
/// flight.
///
/// ```
/// use lumos_engine::{Engine, GenerateRequest, Prompt, LoadOptions, ModelSource, RandomShape, StopCondition};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let source = ModelSource::Random { shape: RandomShape::With1M, seed: 0 };
/// let engine = Engine::load(source, LoadOptions::default())?;
/// let request = |prompt: &[u32]| GenerateRequest {
///     input: Prompt::Tokens(prompt.to_vec()),
///     stop: StopCondition::Never,
///     ..GenerateRequest::text("", 8)
/// };
/// // Both sequences are computed together.
/// let (one, other) = tokio::join!(engine.generate(request(&[1, 20])), engine.generate(request(&[1, 300])));
/// println!("{:?} {:?}", one?.tokens, other?.tokens);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    description: ModelDescription,
    device: DeviceName,
    tokenizer: Arc<Tokenizer>,
    /// Permits to encode long prompts.
    long_texts: Arc<Semaphore>,
    newline_is_unique: bool,
    end_of_sequence: Vec<u32>,
    /// The sequence length above which rotary frequencies differ.
    short_length: Option<usize>,
    layout: PageLayout,
    /// Number of KV cache pages.
    pages: usize,
    max_batch: usize,
    matrices: Matrices,
    weight_bytes: u64,
    counters: Arc<Counters>,
    shut_down: Arc<AtomicBool>,
    scheduler: Mutex<Option<Running>>,
    /// Parts of the memory budget, released after all fields above are dropped.
    _reservations: [Option<Reservation>; 2],
}

struct Running {
    submissions: mpsc::Sender<Submission>,
    thread: JoinHandle<()>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Engine").field("description", &self.inner.description).finish_non_exhaustive()
    }
}

impl Engine {
    /// Loads a model and starts its scheduler. Blocks until the weights are in memory.
    ///
    /// # Errors
    /// Fails if a file is missing, corrupt or unsupported; the error names the file and a remedy.
    #[allow(clippy::needless_pass_by_value)] // the source is consumed on purpose: an engine owns what it loaded
    pub fn load(source: ModelSource, options: LoadOptions) -> Result<Self, LoadError> {
        let options = LoadOptions { device: options.device.resolved(), ..options };
        options.check()?;
        let options = LoadOptions { speculation: options.speculation.on(options.device)?, ..options };
        Self::start(load::open(&source)?.load(&options)?, &options)
    }

    /// Starts the scheduler of a loaded model.
    fn start(loaded: Loaded, options: &LoadOptions) -> Result<Self, LoadError> {
        let Loaded { config, tokenizer, model, description, matrices, weight_bytes, reservation } = loaded;
        let layout = Backend::layout(&config, options, matrices.format);
        let buffers = Backend::buffer_bytes(&config, description.vocabulary, options);
        let free = model.free_memory()?;
        let available = free.map(|free| usable(free).saturating_sub(buffers));
        let (pages, max_batch) = cache_size(options, &layout, config.context_length, available, buffers);
        if pages == 0 && options.kv_cache_bytes.is_none() {
            return Err(LoadError::NoMemoryForCache { device: options.device, page: layout.bytes() as u64 });
        }
        let cache_bytes = (pages * layout.bytes()) as u64;
        if let Some(free) = free.filter(|free| cache_bytes.saturating_add(buffers) > *free) {
            return Err(LoadError::TooLargeForDevice {
                device: options.device,
                what: "keys, values and buffers",
                needed: cache_bytes.saturating_add(buffers),
                free,
            });
        }
        let cache = options.reserve("keys, values and buffers", cache_bytes + buffers)?;
        let device = options.device;
        let tokenizer = Arc::new(tokenizer);
        let (prefill_chunk, step_tokens) = options.step_limits();
        let limits = Limits {
            max_batch,
            prefill_chunk,
            max_step_tokens: step_tokens.max(max_batch),
            max_waiting: options.max_waiting,
            context_length: config.context_length,
            speculation: options.speculation,
        };
        let model = model.start(&config, options, pages, &limits)?;
        let pool = Pool::new(layout, pages, options.reuse_prefixes);
        let shut_down = Arc::new(AtomicBool::new(false));
        let counters = Arc::new(Counters::new(pages, layout.bytes()));
        let (submissions, receiver) = mpsc::channel(CHANNEL);
        let scheduler = Scheduler::new(
            model,
            tokenizer.clone(),
            limits,
            pool,
            receiver,
            shut_down.clone(),
            counters.clone(),
        );
        let thread = std::thread::Builder::new()
            .name("lumos-engine".to_owned())
            .spawn(move || scheduler.run())
            .map_err(LoadError::thread)?;
        tracing::info!(?description, %device, pages, max_batch, "model loaded");
        let inner = Inner {
            description,
            device,
            newline_is_unique: tokenizer.newline_is_unique(),
            tokenizer,
            long_texts: Arc::new(Semaphore::new(LONG_TEXTS)),
            short_length: config.short_length(),
            end_of_sequence: config.end_of_sequence,
            layout,
            pages,
            max_batch,
            matrices,
            weight_bytes,
            counters,
            shut_down,
            scheduler: Mutex::new(Some(Running { submissions, thread })),
            _reservations: [reservation, cache],
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Describes the loaded model.
    pub fn description(&self) -> &ModelDescription {
        &self.inner.description
    }

    /// The device that computes; never [`DeviceName::Auto`].
    pub fn device(&self) -> DeviceName {
        self.inner.device
    }

    /// The model's tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.inner.tokenizer
    }

    /// Whether a line ends at a single token: see [`Tokenizer::newline_is_unique`].
    pub fn newline_is_unique(&self) -> bool {
        self.inner.newline_is_unique
    }

    /// Maximum number of sequences computed together: the configured value, or the one that
    /// [`LoadOptions::AUTO_BATCH`] selected.
    pub fn max_batch(&self) -> usize {
        self.inner.max_batch
    }

    /// Size of the weights in memory, in bytes.
    pub fn weight_bytes(&self) -> u64 {
        self.inner.weight_bytes
    }

    /// Positions per KV cache page.
    pub(crate) fn page_size(&self) -> usize {
        self.inner.layout.positions
    }

    pub(crate) fn matrices(&self) -> &Matrices {
        &self.inner.matrices
    }

    /// Counters since the start, and the current use of the KV cache.
    pub fn statistics(&self) -> Statistics {
        *self.inner.counters.lock()
    }

    /// Generates one sequence. Dropping the future cancels it.
    ///
    /// # Errors
    /// Fails if the request is invalid or can never fit in the KV cache, its deadline passes, or the engine
    /// fails or is shut down. Other sequences are not affected by an error of one request.
    pub async fn generate(&self, request: GenerateRequest) -> Result<Generation, GenerateError> {
        let order = self.order(self.encoded(request).await?)?;
        let stop_texts = order.stop_texts.clone();
        let completion = self.submit(order, None).await?;
        let completion = completion.await.map_err(|_| self.ended())??;
        generation(&self.inner.tokenizer, completion, &stop_texts)
    }

    /// Generates one sequence and streams its tokens. Dropping the stream cancels it.
    ///
    /// # Errors
    /// Fails if the request is invalid or can never fit in the KV cache, or the engine is shut down. The
    /// stream returns later errors.
    pub async fn stream(&self, request: GenerateRequest) -> Result<GenerationStream, GenerateError> {
        let order = self.order(self.encoded(request).await?)?;
        let (prompt, stop_texts) = (order.prompt.clone(), order.stop_texts.clone());
        let (sender, tokens) = mpsc::channel(STREAM);
        let completion = self.submit(order, Some(sender)).await?;
        let tokenizer = self.inner.tokenizer.clone();
        Ok(GenerationStream::new(tokens, completion, tokenizer, &prompt, stop_texts))
    }

    /// Encodes a long prompt on a thread for blocking work, because other futures of the caller's thread would wait while it
    /// is encoded. Returns requests with other prompts unchanged.
    async fn encoded(&self, request: GenerateRequest) -> Result<GenerateRequest, GenerateError> {
        request.sampling.check()?;
        let text = match request.input {
            Prompt::Text(text) if text.len() > LONG_TEXT => text,
            input => return Ok(GenerateRequest { input, ..request }),
        };
        let permit = self.inner.long_texts.clone().acquire_owned().await;
        let permit = permit.map_err(|_| GenerateError::ShutDown)?;
        // Without a handle of the engine: dropping the last one on that thread would join the scheduler's thread there.
        let tokenizer = self.inner.tokenizer.clone();
        let encode = move || {
            // The work continues if the future is dropped, so it holds the permit.
            let _permit = permit;
            tokenizer.encode(&text)
        };
        let tokens = tokio::task::spawn_blocking(encode).await.map_err(|_| GenerateError::ShutDown)??;
        Ok(GenerateRequest { input: Prompt::Tokens(tokens), ..request })
    }

    async fn submit(
        &self,
        order: SequenceRequest,
        tokens: Option<mpsc::Sender<Vec<u32>>>,
    ) -> Result<oneshot::Receiver<Result<Completion, GenerateError>>, GenerateError> {
        let submissions = {
            let scheduler = self.inner.scheduler.lock().unwrap_or_else(PoisonError::into_inner);
            scheduler.as_ref().map(|running| running.submissions.clone()).ok_or_else(|| self.ended())?
        };
        let (completion, receiver) = oneshot::channel();
        let submission = Submission { order, completion, tokens };
        // The sender is not kept longer: the last handle may be dropped while futures are being cancelled,
        // and its join would wait for the sender.
        submissions.send(submission).await.map_err(|_| self.ended())?;
        Ok(receiver)
    }

    /// Why the scheduler has ended.
    fn ended(&self) -> GenerateError {
        let lost = lost_gpu().filter(|_| self.inner.device != DeviceName::Cpu);
        lost.map_or(GenerateError::ShutDown, GenerateError::DeviceLost)
    }

    /// Stops the scheduler and waits for its thread; sequences in flight end with
    /// [`GenerateError::ShutDown`]. Blocks for at most one step. Later requests fail. Further calls have no
    /// effect.
    pub fn shutdown(&self) {
        self.inner.shutdown();
    }

    fn order(&self, request: GenerateRequest) -> Result<SequenceRequest, GenerateError> {
        let Inner { description, tokenizer, newline_is_unique, end_of_sequence, .. } = &*self.inner;
        let (vocabulary, limit) = (description.vocabulary, description.context_length);
        let mut order =
            Self::checked(request, tokenizer, *newline_is_unique, vocabulary, limit, end_of_sequence)?;
        order.limit_to_cache(self.inner.pages * self.inner.layout.positions);
        let longest = order.prompt.len().saturating_add(order.max_new_tokens).min(limit);
        order.long = self.inner.short_length.is_some_and(|length| longest > length);
        let needed = self.inner.layout.pages(order.most_positions(limit));
        if needed > self.inner.pages {
            let bytes = |pages: usize| pages.saturating_mul(self.inner.layout.bytes());
            return Err(GenerateError::TooLargeForMemory {
                needed: bytes(needed),
                budget: bytes(self.inner.pages),
            });
        }
        Ok(order)
    }

    /// Encodes the prompt and validates a request for a model with `vocabulary` ids and sequences of at most
    /// `limit` tokens. The caller sets [`SequenceRequest::long`].
    pub(crate) fn checked(
        request: GenerateRequest,
        tokenizer: &Tokenizer,
        newline_is_unique: bool,
        vocabulary: usize,
        limit: usize,
        end_of_sequence: &[u32],
    ) -> Result<SequenceRequest, GenerateError> {
        request.sampling.check()?;
        let prompt = match request.input {
            Prompt::Text(text) => tokenizer.encode(&text)?,
            Prompt::Tokens(tokens) => tokens,
        };
        if prompt.is_empty() {
            return Err(GenerateError::EmptyPrompt);
        }
        if prompt.len() >= limit {
            return Err(GenerateError::PromptTooLong { tokens: prompt.len(), limit });
        }
        let (stop_tokens, stop_texts) = match request.stop {
            StopCondition::Newline => line_end(tokenizer, newline_is_unique, Vec::new())?,
            StopCondition::NewlineOr(ends) => line_end(tokenizer, newline_is_unique, ends)?,
            StopCondition::Tokens(tokens) => (tokens, Vec::new()),
            StopCondition::Texts(texts) => (Vec::new(), texts),
            StopCondition::Never => (Vec::new(), Vec::new()),
        };
        if stop_texts.iter().any(String::is_empty) {
            return Err(GenerateError::InvalidStop("the stop text is empty".to_owned()));
        }
        let mut tokens = prompt.iter().chain(&stop_tokens).chain(&request.forced);
        if let Some(token) = tokens.find(|token| **token as usize >= vocabulary) {
            return Err(GenerateError::UnknownToken { token: *token, vocabulary });
        }
        Ok(SequenceRequest {
            prompt,
            stop_tokens,
            stop_texts,
            end_of_sequence: if request.ignore_eos { vec![] } else { end_of_sequence.to_vec() },
            max_new_tokens: request.max_new_tokens,
            sampling: request.sampling,
            first_logits: request.first_logits,
            long: false,
            forced: request.forced,
            deadline: request.deadline,
        })
    }
}

/// The tokens and texts that end a line, or a reply at one of `ends`.
fn line_end(
    tokenizer: &Tokenizer,
    newline_is_unique: bool,
    ends: Vec<String>,
) -> Result<(Vec<u32>, Vec<String>), GenerateError> {
    let none = || GenerateError::InvalidStop("the tokenizer has no token for a newline".to_owned());
    let newline = tokenizer.newline().ok_or_else(none)?;
    let (mut tokens, mut texts) =
        if newline_is_unique { (vec![newline], Vec::new()) } else { (Vec::new(), vec!["\n".to_owned()]) };
    for end in ends {
        match tokenizer.id(&end) {
            Some(id) => tokens.push(id),
            None => texts.push(end),
        }
    }
    Ok((tokens, texts))
}

/// The number of KV cache pages, and of sequences computed together; `on_device` is a GPU's memory that remains for the
/// cache, `buffers` the size of all buffers, in bytes.
fn cache_size(
    options: &LoadOptions,
    layout: &PageLayout,
    context_length: usize,
    on_device: Option<u64>,
    buffers: u64,
) -> (usize, usize) {
    let automatic = options.max_batch == LoadOptions::AUTO_BATCH;
    let bytes = options.kv_cache_bytes.unwrap_or_else(|| {
        let sequences = options.most_sequences();
        let wanted = layout.pages(context_length).saturating_mul(sequences).saturating_mul(layout.bytes());
        let share = match on_device {
            Some(free) => device_share(free, wanted as u64),
            None => cache_share(options.memory.as_ref(), wanted as u64, buffers),
        };
        usize::try_from(share).unwrap_or(usize::MAX)
    });
    let pages = bytes / layout.bytes().max(1);
    let typical = layout.pages(context_length.min(TYPICAL_LENGTH)).max(1);
    let max_batch = if automatic { (pages / typical).clamp(1, MOST_AUTO_BATCH) } else { options.max_batch };
    (pages, max_batch)
}

impl Inner {
    fn shutdown(&self) {
        self.shut_down.store(true, Ordering::Release);
        let running = self.scheduler.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Running { submissions, thread }) = running {
            drop(submissions);
            if thread.join().is_err() {
                tracing::error!("the engine's scheduler thread panicked");
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shutdown();
    }
}
