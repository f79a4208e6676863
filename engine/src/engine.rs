//! The handle that callers hold.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use crate::description::ModelDescription;
use crate::error::{GenerateError, LoadError};
use crate::load::{self, Loaded};
use crate::model::Runner;
use crate::options::{LoadOptions, ModelSource};
use crate::request::{Finish, GenerateRequest, Generation, Input, Stop, Usage};
use crate::scheduler::{Completion, Limits, Order, Scheduler, Submission};
use crate::tokenizer::Tokenizer;

/// Submissions between callers and the scheduler; further callers wait.
const CHANNEL: usize = 64;

/// A loaded model that generates many sequences at once.
///
/// Cloning gives another handle to the same model. The scheduler runs on a thread of its own, which ends, and is
/// joined, when the last handle is dropped or [`Engine::shutdown`] is called.
///
/// With float32 weights the result of a request is the same to the bit whatever else is in flight.
#[derive(Clone)]
pub struct Engine {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    description: ModelDescription,
    tokenizer: Arc<Tokenizer>,
    end_of_sequence: Vec<u32>,
    arrivals: AtomicU64,
    shut_down: Arc<AtomicBool>,
    scheduler: Mutex<Option<Running>>,
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
    /// When a file is missing, damaged or of a kind that is not supported; the error names it and a remedy.
    #[allow(clippy::needless_pass_by_value)] // the source is consumed on purpose: an engine owns what it loaded
    pub fn load(source: ModelSource, options: LoadOptions) -> Result<Self, LoadError> {
        let Loaded { config, tokenizer, model, description } = load::load(&source, &options)?;
        let runner = Runner::new(model, &config, options.threads)?;
        let tokenizer = Arc::new(tokenizer);
        let limits = Limits {
            max_batch: options.max_batch,
            prefill_chunk: options.prefill_chunk,
            max_step_tokens: options.max_step_tokens.max(options.max_batch),
            max_waiting: options.max_waiting,
            context_length: config.context_length,
        };
        let shut_down = Arc::new(AtomicBool::new(false));
        let (submissions, receiver) = mpsc::channel(CHANNEL);
        let scheduler = Scheduler::new(runner, tokenizer.clone(), limits, receiver, shut_down.clone());
        let thread = std::thread::Builder::new()
            .name("lumos-engine".to_owned())
            .spawn(move || scheduler.run())
            .map_err(|error| LoadError::Thread { reason: error.to_string() })?;
        tracing::info!(?description, "model loaded");
        let inner = Inner {
            description,
            tokenizer,
            end_of_sequence: config.end_of_sequence,
            arrivals: AtomicU64::new(0),
            shut_down,
            scheduler: Mutex::new(Some(Running { submissions, thread })),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// What was loaded.
    pub fn description(&self) -> &ModelDescription {
        &self.inner.description
    }

    /// The model's tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.inner.tokenizer
    }

    /// Generates one sequence. Dropping the future cancels it.
    ///
    /// # Errors
    /// When the request is invalid, its deadline passes, or the engine fails or is shut down; other sequences go
    /// on.
    pub async fn generate(&self, request: GenerateRequest) -> Result<Generation, GenerateError> {
        let order = self.order(request)?;
        let stop_text = order.stop_text.clone();
        let submissions = {
            let scheduler = self.inner.scheduler.lock().unwrap_or_else(PoisonError::into_inner);
            scheduler.as_ref().map(|running| running.submissions.clone()).ok_or(GenerateError::ShutDown)?
        };
        let (reply, completion) = oneshot::channel();
        submissions.send(Submission { order, reply }).await.map_err(|_| GenerateError::ShutDown)?;
        // The last handle may be dropped while cancelled futures are; a sender kept here would delay its join.
        drop(submissions);
        let completion = completion.await.map_err(|_| GenerateError::ShutDown)??;
        self.generation(completion, stop_text.as_deref())
    }

    /// Ends the scheduler and waits for its thread; sequences in flight end with [`GenerateError::ShutDown`].
    /// Blocks for at most one step. Later requests fail; calling it again does nothing.
    pub fn shutdown(&self) {
        self.inner.shutdown();
    }

    fn order(&self, request: GenerateRequest) -> Result<Order, GenerateError> {
        let GenerateRequest { input, stop, max_new_tokens, sampling, ignore_eos, first_logits, deadline } =
            request;
        sampling.check()?;
        let vocabulary = self.inner.description.vocabulary;
        let prompt = match input {
            Input::Text(text) => self.inner.tokenizer.encode(&text)?,
            Input::Tokens(tokens) => tokens,
        };
        if prompt.is_empty() {
            return Err(GenerateError::EmptyPrompt);
        }
        let limit = self.inner.description.context_length;
        if prompt.len() >= limit {
            return Err(GenerateError::PromptTooLong { tokens: prompt.len(), limit });
        }
        let (stop_tokens, stop_text) = match stop {
            Stop::Newline => {
                let newline = self.inner.tokenizer.newline();
                let none =
                    || GenerateError::InvalidStop("the tokenizer has no token for a newline".to_owned());
                (vec![newline.ok_or_else(none)?], None)
            }
            Stop::Tokens(tokens) => (tokens, None),
            Stop::Text(text) if text.is_empty() => {
                return Err(GenerateError::InvalidStop("the stop text is empty".to_owned()));
            }
            Stop::Text(text) => (Vec::new(), Some(text)),
            Stop::Never => (Vec::new(), None),
        };
        if let Some(token) = prompt.iter().chain(&stop_tokens).find(|token| **token as usize >= vocabulary) {
            return Err(GenerateError::UnknownToken { token: *token, vocabulary });
        }
        let end_of_sequence = if ignore_eos { Vec::new() } else { self.inner.end_of_sequence.clone() };
        let arrival = self.inner.arrivals.fetch_add(1, Ordering::Relaxed);
        Ok(Order {
            arrival,
            prompt,
            stop_tokens,
            stop_text,
            end_of_sequence,
            max_new_tokens,
            sampling,
            first_logits,
            deadline,
        })
    }

    fn generation(
        &self,
        completion: Completion,
        stop_text: Option<&str>,
    ) -> Result<Generation, GenerateError> {
        let Completion { prompt, tokens, finish, generated, first_logits } = completion;
        let before = self.inner.tokenizer.decode(&prompt)?;
        let mut all = prompt.clone();
        all.extend(&tokens);
        let whole = self.inner.tokenizer.decode(&all)?;
        let mut text = after(&whole, &before).to_owned();
        if let (Finish::Stop, Some(stop)) = (finish, stop_text)
            && let Some(start) = text.find(stop)
        {
            text.truncate(start);
        }
        let usage = Usage { prompt_tokens: prompt.len(), completion_tokens: generated, cached_tokens: 0 };
        Ok(Generation { prompt_tokens: prompt, tokens, text, finish, usage, first_logits })
    }
}

/// `whole` without as many characters as `before` has: the prompt's text may itself end differently once more
/// bytes of a character follow.
fn after<'a>(whole: &'a str, before: &str) -> &'a str {
    match whole.strip_prefix(before) {
        Some(rest) => rest,
        None => whole.char_indices().nth(before.chars().count()).map_or("", |(start, _)| &whole[start..]),
    }
}

impl Inner {
    fn shutdown(&self) {
        self.shut_down.store(true, Ordering::Release);
        let running = self.scheduler.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Running { submissions, thread }) = running {
            drop(submissions);
            if thread.join().is_err() {
                tracing::error!("the engine's scheduler ended with a panic");
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shutdown();
    }
}
