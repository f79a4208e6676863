//! Continuous batching: sequences join and leave at every step.
//!
//! One thread owns the model and all sequences. Each step computes one token of every sequence that generates
//! and a piece of the prompts that are not computed yet. What a sequence gets does not depend on the others.

mod sequence;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use crate::error::GenerateError;
use crate::model::{Chunk, LanguageModel};
use crate::tokenizer::Tokenizer;
pub(crate) use sequence::{Completion, Order};
use sequence::{Sequence, Stopped};

/// An order and the way back for its result; nobody waits any more when the receiver is gone.
pub(crate) struct Submission {
    pub(crate) order: Order,
    pub(crate) reply: oneshot::Sender<Result<Completion, GenerateError>>,
}

/// Limits of the scheduler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_batch: usize,
    pub(crate) prefill_chunk: usize,
    pub(crate) max_step_tokens: usize,
    pub(crate) max_waiting: usize,
    pub(crate) context_length: usize,
}

/// The state of the scheduler's thread.
pub(crate) struct Scheduler<M> {
    model: M,
    tokenizer: Arc<Tokenizer>,
    limits: Limits,
    submissions: mpsc::Receiver<Submission>,
    shut_down: Arc<AtomicBool>,
    waiting: VecDeque<Submission>,
    running: Vec<Sequence>,
}

impl<M: LanguageModel> Scheduler<M> {
    pub(crate) fn new(
        model: M,
        tokenizer: Arc<Tokenizer>,
        limits: Limits,
        submissions: mpsc::Receiver<Submission>,
        shut_down: Arc<AtomicBool>,
    ) -> Self {
        Self {
            model,
            tokenizer,
            limits,
            submissions,
            shut_down,
            waiting: VecDeque::new(),
            running: Vec::new(),
        }
    }

    /// Runs until every sender is gone or the engine is shut down.
    pub(crate) fn run(mut self) {
        while self.receive() {
            self.admit();
            self.retire();
            if !self.running.is_empty() {
                self.step();
            }
        }
        let running = self.running.drain(..).map(|sequence| sequence.reply);
        for reply in running.chain(self.waiting.drain(..).map(|submission| submission.reply)) {
            // Whoever stopped waiting needs no answer.
            let _ = reply.send(Err(GenerateError::ShutDown));
        }
    }

    /// Takes in what has been submitted, waiting for it when there is nothing else to do. False at the end.
    fn receive(&mut self) -> bool {
        if self.running.is_empty() && self.waiting.is_empty() {
            match self.submissions.blocking_recv() {
                Some(submission) => self.waiting.push_back(submission),
                None => return false,
            }
        }
        while self.waiting.len() < self.limits.max_waiting.max(1) {
            match self.submissions.try_recv() {
                Ok(submission) => self.waiting.push_back(submission),
                Err(_) => break,
            }
        }
        !self.shut_down.load(Ordering::Acquire)
    }

    /// Gives free places to those who wait longest, and lets go of those whose time is over.
    fn admit(&mut self) {
        let now = Instant::now();
        for submission in std::mem::take(&mut self.waiting) {
            if submission.reply.is_closed() {
                continue;
            }
            if submission.order.deadline.is_some_and(|deadline| deadline <= now) {
                let _ = submission.reply.send(Err(GenerateError::DeadlineExceeded { completion_tokens: 0 }));
            } else if self.running.len() < self.limits.max_batch.max(1) {
                self.running.push(Sequence::new(submission.order, submission.reply));
            } else {
                self.waiting.push_back(submission);
            }
        }
    }

    /// Ends sequences that nobody waits for or whose deadline is over.
    fn retire(&mut self) {
        let now = Instant::now();
        let mut index = 0;
        while let Some(sequence) = self.running.get(index) {
            if sequence.reply.is_closed() {
                let sequence = self.running.swap_remove(index);
                self.model.release(sequence.cache);
            } else if sequence.order.deadline.is_some_and(|deadline| deadline <= now) {
                let completion_tokens = sequence.tokens.len();
                self.fail(index, GenerateError::DeadlineExceeded { completion_tokens });
            } else {
                index += 1;
            }
        }
    }

    fn fail(&mut self, index: usize, error: GenerateError) {
        let sequence = self.running.swap_remove(index);
        self.model.release(sequence.cache);
        let _ = sequence.reply.send(Err(error));
    }

    /// Computes one step and hands out what it finished.
    fn step(&mut self) {
        let vocabulary = self.model.vocabulary();
        // Generating sequences first, then prompts in order of arrival within the budget.
        self.running.sort_by_key(|sequence| (sequence.is_prefilling(), sequence.order.arrival));
        let mut budget = self.limits.max_step_tokens.max(1);
        let mut taking_part = 0;
        let mut chunks = Vec::with_capacity(self.running.len());
        for sequence in &mut self.running {
            let prefilling = sequence.is_prefilling();
            if prefilling && budget == 0 {
                break;
            }
            let limit = if prefilling { self.limits.prefill_chunk.max(1).min(budget) } else { 1 };
            let chunk = sequence.next_chunk(limit);
            budget = budget.saturating_sub(chunk.tokens.len());
            chunks.push(chunk);
            taking_part += 1;
        }
        let model = &mut self.model;
        // A panic in the forward pass must not take the other sequences with it. The model's buffers are
        // written anew at each pass and the caches of this one are dropped, so nothing half-done is seen.
        let result = catch_unwind(AssertUnwindSafe(|| forward(model, &mut chunks, vocabulary)));
        drop(chunks);
        let logits = match result {
            Ok(Ok(logits)) => logits,
            Ok(Err(reason)) => return self.fail_step(taking_part, &reason),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let reason = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panic");
                return self.fail_step(taking_part, &format!("internal error: {reason}"));
            }
        };
        let mut rows = logits.chunks_exact(vocabulary.max(1));
        let mut ended = Vec::new();
        for (index, sequence) in self.running[..taking_part].iter_mut().enumerate() {
            if sequence.advance()
                && let Some(logits) = rows.next()
                && let Some(outcome) =
                    sequence.take_logits(logits, &self.tokenizer, self.limits.context_length)
            {
                ended.push((index, outcome));
            }
        }
        for (index, outcome) in ended.into_iter().rev() {
            let sequence = self.running.swap_remove(index);
            let Stopped { reply, cache, result } = sequence.stop(outcome);
            self.model.release(cache);
            let _ = reply.send(result);
        }
    }

    fn fail_step(&mut self, taking_part: usize, reason: &str) {
        tracing::error!(sequences = taking_part, reason, "forward pass failed");
        for sequence in self.running.drain(..taking_part) {
            // The cache is dropped instead of given back: the failed pass may have left it half-written.
            let _ = sequence.reply.send(Err(GenerateError::Forward(reason.to_owned())));
        }
    }
}

fn forward<M: LanguageModel>(
    model: &mut M,
    chunks: &mut [Chunk<'_>],
    vocabulary: usize,
) -> Result<Vec<f32>, String> {
    let wanted = chunks.iter().filter(|chunk| chunk.logits).count();
    let logits = model.forward(chunks).map_err(|error| error.to_string())?;
    if logits.len() == wanted * vocabulary {
        Ok(logits.to_vec())
    } else {
        Err(format!("the model returned {} logits instead of {}", logits.len(), wanted * vocabulary))
    }
}

#[cfg(test)]
mod tests;
