//! One sequence on its way through the scheduler.

use std::time::Instant;

use tokio::sync::oneshot;

use crate::error::GenerateError;
use crate::model::{Chunk, KvCache};
use crate::request::{Finish, Sampling};
use crate::sampler::{highest, sample};
use crate::tokenizer::Tokenizer;

/// A checked request.
pub(crate) struct Order {
    /// Counts requests, so that prompts are computed in order of arrival.
    pub(crate) arrival: u64,
    /// At least one token, fewer than the context length.
    pub(crate) prompt: Vec<u32>,
    /// Ids that end the sequence with [`Finish::Stop`].
    pub(crate) stop_tokens: Vec<u32>,
    /// Text that ends it.
    pub(crate) stop_text: Option<String>,
    /// Ids that end it with [`Finish::EndOfSequence`].
    pub(crate) end_of_sequence: Vec<u32>,
    pub(crate) max_new_tokens: usize,
    pub(crate) sampling: Sampling,
    pub(crate) first_logits: usize,
    pub(crate) deadline: Option<Instant>,
}

/// What the scheduler made of an order.
#[derive(Debug)]
pub(crate) struct Completion {
    pub(crate) prompt: Vec<u32>,
    /// Without the stop or end-of-sequence token.
    pub(crate) tokens: Vec<u32>,
    pub(crate) finish: Finish,
    /// With the stop or end-of-sequence token.
    pub(crate) generated: usize,
    pub(crate) first_logits: Vec<(u32, f32)>,
}

type Reply = oneshot::Sender<Result<Completion, GenerateError>>;

pub(super) struct Sequence {
    pub(super) order: Order,
    pub(super) reply: Reply,
    pub(super) cache: KvCache,
    pub(super) tokens: Vec<u32>,
    first_logits: Vec<(u32, f32)>,
    /// Prompt tokens that are in the cache.
    computed: usize,
    /// Tokens of the chunk that is being computed.
    in_step: usize,
}

/// A sequence that is over.
pub(super) struct Stopped {
    pub(super) reply: Reply,
    pub(super) cache: KvCache,
    pub(super) result: Result<Completion, GenerateError>,
}

impl Sequence {
    pub(super) fn new(order: Order, reply: Reply) -> Self {
        let (cache, tokens, first_logits) = (KvCache::default(), Vec::new(), Vec::new());
        Self { order, reply, cache, tokens, first_logits, computed: 0, in_step: 0 }
    }

    /// Whether a part of the prompt is not in the cache yet.
    pub(super) fn is_prefilling(&self) -> bool {
        self.computed < self.order.prompt.len()
    }

    /// The next tokens to compute, at most `limit`.
    pub(super) fn next_chunk(&mut self, limit: usize) -> Chunk<'_> {
        let (prompt, tokens) = (&self.order.prompt, &self.tokens);
        if self.computed < prompt.len() {
            let end = prompt.len().min(self.computed + limit);
            self.in_step = end - self.computed;
            Chunk { tokens: &prompt[self.computed..end], cache: &mut self.cache, logits: end == prompt.len() }
        } else {
            self.in_step = 0;
            Chunk { tokens: &tokens[tokens.len() - 1..], cache: &mut self.cache, logits: true }
        }
    }

    /// Notes that the chunk is computed; true when it gave logits.
    pub(super) fn advance(&mut self) -> bool {
        self.computed += std::mem::take(&mut self.in_step);
        !self.is_prefilling()
    }

    /// Chooses the next token; the outcome when that was the last one.
    pub(super) fn take_logits(
        &mut self,
        logits: &[f32],
        tokenizer: &Tokenizer,
        context_length: usize,
    ) -> Option<Result<Finish, GenerateError>> {
        if self.tokens.is_empty() && self.order.first_logits > 0 {
            self.first_logits = highest(logits, self.order.first_logits);
        }
        if self.order.max_new_tokens == 0 {
            return Some(Ok(Finish::Length));
        }
        let position = self.order.prompt.len() + self.tokens.len();
        let Some(token) = sample(logits, &self.order.sampling, self.tokens.len()) else {
            return Some(Err(GenerateError::NotFinite { position }));
        };
        self.tokens.push(token);
        if self.order.stop_tokens.contains(&token) {
            return Some(Ok(Finish::Stop));
        }
        if self.order.end_of_sequence.contains(&token) {
            return Some(Ok(Finish::EndOfSequence));
        }
        match self.stop_text_reached(tokenizer) {
            Ok(true) => return Some(Ok(Finish::Stop)),
            Ok(false) => {}
            Err(error) => return Some(Err(error)),
        }
        let full = self.tokens.len() >= self.order.max_new_tokens || position + 1 >= context_length;
        full.then_some(Ok(Finish::Length))
    }

    /// Looks for the stop text in the end of the completion: it is found as soon as its last token is there, so
    /// a window of as many tokens as it has bytes, and a few that decode to nothing, is enough.
    fn stop_text_reached(&self, tokenizer: &Tokenizer) -> Result<bool, GenerateError> {
        const SILENT: usize = 16;
        let Some(stop) = &self.order.stop_text else { return Ok(false) };
        let window = self.tokens.len().min(stop.len() + SILENT);
        // One token of context keeps the blank that decoding strips at the start.
        let mut context = vec![
            *self.tokens[..self.tokens.len() - window]
                .last()
                .unwrap_or(self.order.prompt.last().unwrap_or(&0)),
        ];
        let before = tokenizer.decode(&context)?;
        context.extend(&self.tokens[self.tokens.len() - window..]);
        let text = tokenizer.decode(&context)?;
        Ok(text.strip_prefix(&*before).unwrap_or(&text).contains(&**stop))
    }

    pub(super) fn stop(mut self, outcome: Result<Finish, GenerateError>) -> Stopped {
        let result = outcome.map(|finish| {
            let generated = self.tokens.len();
            let by_token = match finish {
                Finish::Stop => self.order.stop_text.is_none(),
                Finish::EndOfSequence => true,
                Finish::Length => false,
            };
            if by_token {
                self.tokens.pop();
            }
            let (prompt, tokens, first_logits) = (self.order.prompt, self.tokens, self.first_logits);
            Completion { prompt, tokens, finish, generated, first_logits }
        });
        Stopped { reply: self.reply, cache: self.cache, result }
    }
}
