//! [`Sequence`]: the state of one request in the scheduler, from its [`SequenceRequest`] to its [`Completion`].

use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use crate::cache::{KvCache, PageLayout, Pool};
use crate::error::GenerateError;
use crate::model::{Chunk, Prediction};
use crate::request::{FinishReason, GenerateRequest, SamplingParams, first_stop};
use crate::sampler::{choose, highest};
use crate::speculation::{DraftUsage, draft, verify};
use crate::tokenizer::Tokenizer;

/// A validated request.
pub(crate) struct SequenceRequest {
    /// At least one token, fewer than the context length.
    pub(crate) prompt: Vec<u32>,
    /// Ids that end the sequence with [`FinishReason::Stop`].
    pub(crate) stop_tokens: Vec<u32>,
    /// Texts that end it.
    pub(crate) stop_texts: Vec<String>,
    /// Ids that end it with [`FinishReason::EndOfSequence`].
    pub(crate) end_of_sequence: Vec<u32>,
    pub(crate) max_new_tokens: usize,
    pub(crate) sampling: SamplingParams,
    pub(crate) first_logits: usize,
    /// Whether the sequence may exceed the model's original context ([`ModelConfig::short_length`]).
    ///
    /// [`ModelConfig::short_length`]: crate::load::block::ModelConfig::short_length
    pub(crate) long: bool,
    /// Tokens that replace the chosen ones.
    pub(crate) forced: Vec<u32>,
    pub(crate) deadline: Option<Instant>,
}

impl SequenceRequest {
    /// Limits a request without a limit to a sequence that a KV cache of `positions` positions holds.
    pub(crate) fn limit_to_cache(&mut self, positions: usize) {
        if self.max_new_tokens == GenerateRequest::UNLIMITED {
            // The last generated token is not stored in the cache.
            self.max_new_tokens = (positions + 1).saturating_sub(self.prompt.len()).max(1);
        }
    }

    /// Maximum number of positions that are ever computed; the last generated token is not computed.
    pub(crate) fn most_positions(&self, context_length: usize) -> usize {
        self.prompt.len().saturating_add(self.max_new_tokens.max(1)).min(context_length) - 1
    }
}

/// The result of an order.
#[derive(Debug)]
pub(crate) struct Completion {
    pub(crate) prompt: Vec<u32>,
    /// Without the stop or end-of-sequence token.
    pub(crate) tokens: Vec<u32>,
    pub(crate) finish: FinishReason,
    /// Number of generated tokens, including the stop or end-of-sequence token.
    pub(crate) generated: usize,
    /// Prompt tokens that came from the prefix cache.
    pub(crate) cached: usize,
    pub(crate) drafts: DraftUsage,
    pub(crate) first_logits: Vec<(u32, f32)>,
}

/// An order and the channels for its results.
pub(crate) struct Submission {
    pub(crate) order: SequenceRequest,
    /// The request is cancelled if the receiver is dropped.
    pub(crate) completion: oneshot::Sender<Result<Completion, GenerateError>>,
    /// Channel for tokens as they are generated. Tokens are sent if there is room; the completion contains
    /// all of them.
    pub(crate) tokens: Option<mpsc::Sender<Vec<u32>>>,
}

/// The state of one request.
pub(crate) struct Sequence {
    /// Sequence number of the arrival.
    pub(super) arrival: u64,
    pub(super) order: SequenceRequest,
    completion: oneshot::Sender<Result<Completion, GenerateError>>,
    tokens: Option<mpsc::Sender<Vec<u32>>>,
    pub(super) cache: KvCache,
    /// Tokens computed in this step.
    pub(super) in_step: usize,
    /// With a draft in this step: the last known token and the drafted ones; otherwise empty.
    drafted: Vec<u32>,
    /// The prompt, then the generated tokens.
    known: Vec<u32>,
    prompt_length: usize,
    first_logits: Vec<(u32, f32)>,
    /// Prompt tokens that came from the prefix cache.
    cached: usize,
    drafts: DraftUsage,
    preempted: bool,
    /// Generated tokens that were streamed.
    streamed: usize,
    most_positions: usize,
}

impl Sequence {
    pub(crate) fn new(
        arrival: u64,
        Submission { mut order, completion, tokens }: Submission,
        layout: PageLayout,
        context_length: usize,
    ) -> Self {
        let most_positions = order.most_positions(context_length);
        let (known, long) = (std::mem::take(&mut order.prompt), order.long);
        Self {
            arrival,
            order,
            completion,
            tokens,
            cache: KvCache::new(layout).long(long),
            in_step: 0,
            drafted: Vec::new(),
            prompt_length: known.len(),
            known,
            first_logits: Vec::new(),
            cached: 0,
            drafts: DraftUsage::default(),
            preempted: false,
            streamed: 0,
            most_positions,
        }
    }

    /// All tokens, including generated ones.
    pub(crate) fn known(&self) -> &[u32] {
        &self.known
    }

    /// Tokens generated so far.
    pub(crate) fn generated(&self) -> &[u32] {
        &self.known[self.prompt_length..]
    }

    /// Known tokens that are not in the cache; one if the sequence is in decode.
    pub(super) fn remaining(&self) -> usize {
        self.known.len() - self.cache.length()
    }

    /// Positions needed for the next token, once all known tokens are computed.
    pub(super) fn positions_ahead(&self) -> usize {
        (self.known.len() + 1).min(self.most_positions)
    }

    /// Attaches published pages for the next tokens; returns the number of positions.
    pub(super) fn attach(&mut self, pool: &mut Pool) -> usize {
        let found = pool.attach(&mut self.cache, &self.known);
        self.count_cached(found)
    }

    /// Attaches what is published of the page after those; returns the number of positions.
    pub(super) fn attach_part(&mut self, pool: &mut Pool) -> usize {
        let found = pool.attach_part(&mut self.cache, &self.known);
        self.count_cached(found)
    }

    fn count_cached(&mut self, found: usize) -> usize {
        if !self.preempted {
            self.cached += found;
        }
        found
    }

    /// Prepares the sequence for another step.
    pub(super) fn begin_step(&mut self) {
        self.in_step = 0;
        self.drafted.clear();
    }

    /// Adds a draft of at most `most` tokens to the step of a sequence in decode, if the pool has pages for it. Returns
    /// its length. A draft ends before a token that would end the sequence, and within the sequence's length.
    pub(super) fn draft(&mut self, most: usize, pool: &mut Pool) -> usize {
        let most = most.min(self.most_positions.saturating_sub(self.known.len()));
        if most == 0 {
            return 0;
        }
        let mut tokens = draft(&self.known, most);
        let ends = |token: &u32| {
            self.order.stop_tokens.contains(token) || self.order.end_of_sequence.contains(token)
        };
        tokens.truncate(tokens.iter().position(ends).unwrap_or(tokens.len()));
        let positions = self.known.len() + tokens.len();
        if tokens.is_empty() || !pool.reserve(&mut self.cache, positions) {
            return 0;
        }
        let count = tokens.len();
        self.drafted.extend(self.known.last());
        self.drafted.append(&mut tokens);
        self.in_step += count;
        count
    }

    /// Returns the cache for release; all known tokens are computed again later.
    pub(super) fn preempt(&mut self) -> KvCache {
        self.preempted = true;
        self.begin_step();
        let empty = KvCache::new(*self.cache.layout()).long(self.order.long);
        std::mem::replace(&mut self.cache, empty)
    }

    /// Whether this sequence would fill the same page next as `other`, so that it only needs to wait.
    pub(super) fn follows(&self, other: &Self) -> bool {
        let start = self.cache.published();
        let end = start + self.cache.layout().positions;
        self.cache.page_count() * self.cache.layout().positions == start
            && end < self.known.len()
            && self.cache.same_prefix(&other.cache)
            && other.known.get(start..end) == Some(&self.known[start..end])
    }

    /// Number of predictions that this step returns for the sequence: one after its last known token, and one after each
    /// drafted token.
    pub(super) fn predictions(&self) -> usize {
        match self.in_step {
            0 => 0,
            rows if self.drafted.is_empty() => usize::from(self.cache.length() + rows == self.known.len()),
            rows => rows,
        }
    }

    /// The tokens of this step, if the sequence takes part.
    pub(super) fn chunk(&mut self) -> Option<Chunk<'_>> {
        let predictions = self.predictions();
        let wants_logits = self.order.first_logits > 0 && self.known.len() == self.prompt_length;
        let index = self.known.len() - self.prompt_length;
        let choosing = (!wants_logits).then(|| self.order.sampling.choosing(index));
        let start = self.cache.length();
        let tokens = match &self.drafted[..] {
            [] => &self.known[start..start + self.in_step],
            drafted => drafted,
        };
        (self.in_step > 0).then_some(Chunk { tokens, cache: &mut self.cache, predictions, choosing })
    }

    /// Applies the predictions of a step, which were computed with [`chunk`](Self::chunk): takes tokens while they equal
    /// the draft, removes the positions of rejected tokens, and publishes pages. Returns the counts of the draft, and
    /// the outcome if the sequence ended.
    pub(super) fn take_step(
        &mut self,
        predictions: &[Prediction<'_>],
        pool: &mut Pool,
        tokenizer: &Tokenizer,
        context_length: usize,
    ) -> (DraftUsage, Option<Result<FinishReason, GenerateError>>) {
        let drafted = std::mem::take(&mut self.drafted);
        let draft = drafted.get(1..).unwrap_or_default();
        let mut predictions = predictions.iter();
        let mut outcome = None;
        let accepted = verify(draft, || {
            outcome = self.take_prediction(*predictions.next()?, tokenizer, context_length);
            if outcome.is_some() { None } else { self.known.last().copied() }
        });
        if !draft.is_empty() {
            pool.truncate(&mut self.cache, self.known.len() - 1);
        }
        pool.publish(&mut self.cache, &self.known);
        if outcome.is_some() {
            pool.publish_part(&mut self.cache, &self.known);
        }
        let usage = DraftUsage { drafted: draft.len() as u64, accepted: accepted as u64 };
        self.drafts += usage;
        (usage, outcome)
    }

    /// Applies a prediction: chooses the next token. Returns the outcome if it was the last one.
    pub(crate) fn take_prediction(
        &mut self,
        prediction: Prediction<'_>,
        tokenizer: &Tokenizer,
        context_length: usize,
    ) -> Option<Result<FinishReason, GenerateError>> {
        let index = self.known.len() - self.prompt_length;
        if let Prediction::Logits(logits) = prediction
            && index == 0
            && self.order.first_logits > 0
        {
            self.first_logits = highest(logits, self.order.first_logits);
        }
        if self.order.max_new_tokens == 0 {
            return Some(Ok(FinishReason::Length));
        }
        let position = self.known.len();
        let chosen = match prediction {
            Prediction::Logits(logits) => choose(logits, &self.order.sampling.choosing(index)),
            Prediction::Token(token) => Some(token),
            Prediction::NotFinite => None,
        };
        let Some(chosen) = chosen else {
            return Some(Err(GenerateError::NotFinite { position }));
        };
        let token = self.order.forced.get(index).copied().unwrap_or(chosen);
        self.known.push(token);
        if self.order.stop_tokens.contains(&token) {
            return Some(Ok(FinishReason::Stop));
        }
        if self.order.end_of_sequence.contains(&token) {
            return Some(Ok(FinishReason::EndOfSequence));
        }
        match self.stop_text_reached(tokenizer) {
            Ok(true) => return Some(Ok(FinishReason::Stop)),
            Ok(false) => {}
            Err(error) => return Some(Err(error)),
        }
        let full = index + 1 >= self.order.max_new_tokens || position + 1 >= context_length;
        full.then_some(Ok(FinishReason::Length))
    }

    /// Searches the end of the completion for the stop texts. A stop text is found as soon as its last token
    /// is generated, so a window is sufficient of as many tokens as the longest text has bytes, plus a few
    /// that decode to nothing.
    fn stop_text_reached(&self, tokenizer: &Tokenizer) -> Result<bool, GenerateError> {
        const SILENT: usize = 16;
        let stops = &self.order.stop_texts;
        let Some(longest) = stops.iter().map(String::len).max() else { return Ok(false) };
        let window = self.generated().len().min(longest + SILENT);
        // One token of context keeps the blank that decoding strips at the start.
        let context = &self.known[self.known.len() - window - 1..];
        let before = tokenizer.decode(&context[..1])?;
        let text = tokenizer.decode(context)?;
        Ok(first_stop(text.strip_prefix(&*before).unwrap_or(&text), stops).is_some())
    }

    /// Streams the tokens generated since the last call. If the reader is behind, they are sent later.
    pub(super) fn stream(&mut self) {
        let new = &self.known[self.prompt_length + self.streamed..];
        if let Some(tokens) = &self.tokens
            && let Ok(place) = tokens.try_reserve()
        {
            self.streamed += new.len();
            place.send(new.to_vec());
        }
    }

    /// Sends the result and returns the cache.
    pub(crate) fn stop(self, outcome: Result<FinishReason, GenerateError>) -> KvCache {
        let Self { order, completion, cache, known: mut prompt, prompt_length, .. } = self;
        let (first_logits, cached, drafts) = (self.first_logits, self.cached, self.drafts);
        let result = outcome.map(|finish| {
            let mut tokens = prompt.split_off(prompt_length);
            let generated = tokens.len();
            let by_token = match finish {
                // Stop tokens are checked before texts.
                FinishReason::Stop => tokens.last().is_some_and(|token| order.stop_tokens.contains(token)),
                FinishReason::EndOfSequence => true,
                FinishReason::Length => false,
            };
            if by_token {
                tokens.pop();
            }
            Completion { prompt, tokens, finish, generated, cached, drafts, first_logits }
        });
        // The receiver may be gone; in that case no result is needed.
        let _ = completion.send(result);
        cache
    }

    /// Whether the receiver was dropped.
    pub(super) fn is_cancelled(&self) -> bool {
        self.completion.is_closed()
    }
}
