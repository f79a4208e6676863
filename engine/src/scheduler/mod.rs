//! Continuous batching: sequences join and leave the batch at every step.
//!
//! One thread owns the model, the pages and all sequences. Each step computes one token of every decoding
//! sequence and a chunk of the prompts that are still in prefill. A sequence's result does not depend on the
//! others.
//!
//! Sequences are admitted in order of arrival, as soon as there is memory for their first tokens. When memory
//! runs out, the youngest sequence is preempted: its pages are released, it waits ahead of all later
//! arrivals, and its known tokens are computed again. The oldest sequence is never preempted and fits in
//! memory alone, so there is always progress.
//!
//! With speculation, room that is left in a step is used for drafts of sequences in decode. Drafts never preempt a
//! sequence, and what they reject leaves no trace.

mod plan;
mod sequence;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::mpsc;

use crate::cache::Pool;
use crate::device::lost_gpu;
use crate::error::{GenerateError, panic_message};
use crate::model::{Chunk, ForwardError, LanguageModel, Prediction};
use crate::speculation::{DraftPolicy, DraftUsage, Speculation};
use crate::tokenizer::Tokenizer;
pub(crate) use sequence::{Completion, Sequence, SequenceRequest, Submission};

/// An engine's counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Steps computed.
    pub steps: u64,
    /// Tokens computed, including those computed again after a preemption.
    pub computed_tokens: u64,
    /// Tokens taken from the prefix cache instead of being computed.
    pub reused_tokens: u64,
    /// Sequences preempted in favour of older ones and resumed later.
    pub preemptions: u64,
    /// Cached pages evicted.
    pub evictions: u64,
    /// Tokens that lookup decoding drafted, and those of them that were accepted.
    pub drafts: DraftUsage,
    /// Running sequences.
    pub running: usize,
    /// Waiting sequences.
    pub waiting: usize,
    /// Pages held by sequences.
    pub held_pages: usize,
    /// Published pages without holders, kept for prefix reuse.
    pub cached_pages: usize,
    /// Pages in memory: held, cached or free.
    pub allocated_pages: usize,
    /// Maximum number of pages in the budget.
    pub page_limit: usize,
    /// Size of a page in bytes.
    pub page_bytes: usize,
}

/// The counters, written by the scheduler and read by any thread.
#[derive(Debug, Default)]
pub(crate) struct Counters(Mutex<Statistics>);

impl Counters {
    /// The counters of an engine with `page_limit` pages of `page_bytes` bytes.
    pub(crate) fn new(page_limit: usize, page_bytes: usize) -> Self {
        Self(Mutex::new(Statistics { page_limit, page_bytes, ..Statistics::default() }))
    }

    /// The current values, to read or to change.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Statistics> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Limits and mode of the scheduler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_batch: usize,
    pub(crate) prefill_chunk: usize,
    pub(crate) max_step_tokens: usize,
    pub(crate) max_waiting: usize,
    pub(crate) context_length: usize,
    pub(crate) speculation: Speculation,
}

/// The state of the scheduler's thread.
pub(crate) struct Scheduler {
    model: Box<dyn LanguageModel>,
    tokenizer: Arc<Tokenizer>,
    limits: Limits,
    submissions: mpsc::Receiver<Submission>,
    shut_down: Arc<AtomicBool>,
    pool: Pool,
    policy: DraftPolicy,
    /// In order of arrival; all arrived after those in `running`.
    waiting: VecDeque<Sequence>,
    /// In order of arrival.
    running: Vec<Sequence>,
    arrivals: u64,
    /// Why the device cannot compute any more.
    lost: Option<String>,
    counters: Arc<Counters>,
}

impl Scheduler {
    pub(crate) fn new(
        model: Box<dyn LanguageModel>,
        tokenizer: Arc<Tokenizer>,
        limits: Limits,
        pool: Pool,
        submissions: mpsc::Receiver<Submission>,
        shut_down: Arc<AtomicBool>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            model,
            tokenizer,
            limits,
            submissions,
            shut_down,
            pool,
            policy: DraftPolicy::new(limits.speculation),
            waiting: VecDeque::new(),
            running: Vec::new(),
            arrivals: 0,
            lost: None,
            counters,
        }
    }

    /// Runs until all senders are dropped or the engine is shut down.
    pub(crate) fn run(mut self) {
        while self.lost.is_none() && self.receive() {
            self.turn();
        }
        let reason = self.lost.take();
        let error = reason.clone().map_or(GenerateError::ShutDown, GenerateError::DeviceLost);
        for sequence in self.running.drain(..).chain(self.waiting.drain(..)) {
            self.pool.release(sequence.stop(Err(error.clone())));
        }
        self.note();
        if reason.is_some() || lost_gpu().is_some() {
            // The process ends. Freeing memory of the GPU would fail, or wait for a kernel that does not end.
            std::mem::forget(self.model);
        }
    }

    /// Receives submissions; blocks if there is no other work. Returns false when the scheduler should stop.
    fn receive(&mut self) -> bool {
        if self.running.is_empty() && self.waiting.is_empty() {
            match self.submissions.blocking_recv() {
                Some(submission) => self.enqueue(submission),
                None => return false,
            }
        }
        while self.waiting.len() < self.limits.max_waiting.max(1) {
            match self.submissions.try_recv() {
                Ok(submission) => self.enqueue(submission),
                Err(_) => break,
            }
        }
        !self.shut_down.load(Ordering::Acquire)
    }

    fn enqueue(&mut self, submission: Submission) {
        let (layout, context_length) = (*self.pool.layout(), self.limits.context_length);
        self.waiting.push_back(Sequence::new(self.arrivals, submission, layout, context_length));
        self.arrivals += 1;
    }

    /// One step with its preparation and cleanup.
    fn turn(&mut self) {
        self.retire();
        self.admit();
        debug_assert!(
            self.running.iter().chain(&self.waiting).is_sorted_by_key(|sequence| sequence.arrival),
            "a sequence was overtaken"
        );
        if !self.running.is_empty() {
            self.plan();
            self.step();
        }
        self.note();
        // Large pools are checked every 64 steps only.
        #[cfg(debug_assertions)]
        if self.pool.is_small() || self.counters.lock().steps.is_multiple_of(64) {
            self.pool.check(self.running.iter().chain(&self.waiting).map(|sequence| &sequence.cache));
        }
    }

    /// Ends sequences whose receiver was dropped or whose deadline has passed.
    fn retire(&mut self) {
        let now = Instant::now();
        let over = |sequence: &Sequence| {
            sequence.is_cancelled() || sequence.order.deadline.is_some_and(|deadline| deadline <= now)
        };
        let late = |sequence: Sequence| {
            let completion_tokens = sequence.generated().len();
            sequence.stop(Err(GenerateError::DeadlineExceeded { completion_tokens }))
        };
        while let Some(index) = self.running.iter().position(over) {
            let cache = late(self.running.remove(index));
            self.pool.release(cache);
        }
        while let Some(sequence) =
            self.waiting.iter().position(over).and_then(|index| self.waiting.remove(index))
        {
            self.pool.release(late(sequence));
        }
    }

    /// Computes the planned step and returns results of finished sequences.
    fn step(&mut self) {
        let mut chunks: Vec<Chunk<'_>> = self.running.iter_mut().filter_map(Sequence::chunk).collect();
        let tokens: usize = chunks.iter().map(|chunk| chunk.tokens.len()).sum();
        let wanted: Vec<usize> = chunks.iter().map(|chunk| chunk.predictions).collect();
        let started = Instant::now();
        {
            let mut counters = self.counters.lock();
            counters.steps += 1;
            counters.computed_tokens += tokens as u64;
        }
        let (model, step) = (&mut *self.model, &mut chunks);
        // A panic in the forward pass must not affect the other sequences. Each pass rewrites the model's
        // buffers, and its pages are published only afterwards, so no partial result is visible.
        let result = catch_unwind(AssertUnwindSafe(move || {
            let model = model;
            forward(model, step)
        }));
        drop(chunks);
        let predictions = match result {
            Ok(Ok(predictions)) => predictions,
            Ok(Err(ForwardError::Failed(reason))) => return self.fail_step(&reason),
            Ok(Err(ForwardError::Lost(reason))) => {
                tracing::error!("{reason}");
                self.lost = Some(reason);
                return;
            }
            Err(panic) => {
                let reason = panic_message(&*panic).unwrap_or("panic");
                return self.fail_step(&format!("internal error: {reason}"));
            }
        };
        if wanted.iter().sum::<usize>() == tokens {
            self.policy.record_pass(tokens, started.elapsed().as_secs_f64());
        }
        let mut predictions = &predictions[..];
        let mut drafts = DraftUsage::default();
        let mut ended = Vec::new();
        let taking_part = self.running.iter_mut().enumerate().filter(|(_, sequence)| sequence.in_step > 0);
        for ((index, sequence), wanted) in taking_part.zip(wanted) {
            let (own, rest) = predictions.split_at(wanted);
            predictions = rest;
            let (pool, tokenizer) = (&mut self.pool, &self.tokenizer);
            let (usage, outcome) = sequence.take_step(own, pool, tokenizer, self.limits.context_length);
            drafts += usage;
            match outcome {
                Some(outcome) => ended.push((index, outcome)),
                None if wanted > 0 => sequence.stream(),
                None => {}
            }
        }
        self.policy.record_drafts(drafts);
        self.counters.lock().drafts += drafts;
        for (index, outcome) in ended.into_iter().rev() {
            let sequence = self.running.remove(index);
            self.pool.release(sequence.stop(outcome));
        }
    }

    /// Fails the sequences of a failed step.
    fn fail_step(&mut self, reason: &str) {
        let (failed, others): (Vec<Sequence>, Vec<Sequence>) =
            self.running.drain(..).partition(|sequence| sequence.in_step > 0);
        self.running = others;
        tracing::error!(sequences = failed.len(), reason, "forward pass failed");
        for sequence in failed {
            self.pool.release(sequence.stop(Err(GenerateError::Forward(reason.to_owned()))));
        }
    }

    /// Updates the gauges.
    fn note(&self) {
        let mut counters = self.counters.lock();
        counters.running = self.running.len();
        counters.waiting = self.waiting.len();
        counters.held_pages = self.pool.held();
        counters.cached_pages = self.pool.cached();
        counters.allocated_pages = self.pool.allocated();
        counters.evictions = self.pool.evictions();
    }
}

fn forward<'a>(
    model: &'a mut dyn LanguageModel,
    chunks: &mut [Chunk<'_>],
) -> Result<Vec<Prediction<'a>>, ForwardError> {
    let wanted: usize = chunks.iter().map(|chunk| chunk.predictions).sum();
    let predictions = model.forward(chunks)?;
    match predictions.len() {
        count if count == wanted => Ok(predictions),
        count => {
            Err(ForwardError::Failed(format!("the model returned {count} predictions instead of {wanted}")))
        }
    }
}

#[cfg(test)]
mod fairness;
#[cfg(test)]
mod tests;
