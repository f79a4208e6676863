//! Generation requests ([`GenerateRequest`]) and their results ([`Generation`]).
//!
//! A request has a [`Prompt`], a [`StopCondition`], [`SamplingParams`] and limits. The result contains
//! the generated ids and their text, the reason why the sequence ended ([`FinishReason`]) and token counts
//! ([`TokenUsage`]).

use std::time::Instant;

use crate::speculation::DraftUsage;

/// The input of a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Raw text; no special tokens are added.
    Text(String),
    /// Token ids.
    Tokens(Vec<u32>),
}

/// Stop conditions, in addition to the end-of-sequence token and the length limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopCondition {
    /// The end of a line: the last id of the tokenizer's encoding of `"\n"`, or the text `"\n"` if other tokens contain
    /// it too ([`Tokenizer::newline_is_unique`](crate::Tokenizer::newline_is_unique)).
    Newline,
    /// The same, or one of these texts: as a token if the vocabulary has one for it, otherwise as a text.
    NewlineOr(Vec<String>),
    /// Any of these ids.
    Tokens(Vec<u32>),
    /// Stops when the completion contains one of these texts; the first one and everything after it are removed.
    Texts(Vec<String>),
    /// No stop condition.
    Never,
}

/// How the next token is chosen; greedily by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplingParams {
    /// 0 selects the most likely token (the lowest id among equals); otherwise logits are divided by the
    /// temperature.
    pub temperature: f64,
    /// Of the tokens that `top_k` keeps, keep the most likely ones until their probabilities reach this share
    /// of the total.
    pub top_p: Option<f64>,
    /// Keep this many of the most likely tokens.
    pub top_k: Option<usize>,
    /// Seed of the random numbers. A token's random number depends only on the seed and the token's index.
    pub seed: u64,
}

impl SamplingParams {
    /// Always selects the most likely token.
    pub const GREEDY: Self = Self { temperature: 0.0, top_p: None, top_k: None, seed: 0 };
}

/// A request to generate one sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateRequest {
    /// The prompt.
    pub input: Prompt,
    /// When to stop.
    pub stop: StopCondition,
    /// Maximum number of tokens to generate, or [`UNLIMITED`](Self::UNLIMITED).
    pub max_new_tokens: usize,
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// Continue after the end-of-sequence token.
    pub ignore_eos: bool,
    /// Number of highest logits after the prompt to return; 0 for none.
    pub first_logits: usize,
    /// Tokens that replace the chosen ones, in order: logits are computed and a token is chosen as usual,
    /// then this token is used instead. For measurements on recorded sequences.
    pub forced: Vec<u32>,
    /// Fail the request at this time.
    pub deadline: Option<Instant>,
}

impl GenerateRequest {
    /// Value of `max_new_tokens` without a limit: the sequence ends at its stop condition, or when the model's maximum
    /// sequence length or the KV cache is full.
    pub const UNLIMITED: usize = usize::MAX;

    /// Greedy decoding of a text until the first newline token, as Lumos modules are queried.
    pub fn text(text: impl Into<String>, max_new_tokens: usize) -> Self {
        Self {
            input: Prompt::Text(text.into()),
            stop: StopCondition::Newline,
            max_new_tokens,
            sampling: SamplingParams::GREEDY,
            ignore_eos: false,
            first_logits: 0,
            forced: Vec::new(),
            deadline: None,
        }
    }
}

/// Why a sequence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The stop condition was met.
    Stop,
    /// The end-of-sequence token.
    EndOfSequence,
    /// The limit `max_new_tokens` or the model's maximum sequence length was reached, or the KV cache is full.
    Length,
}

/// Token counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenUsage {
    /// Tokens in the prompt.
    pub prompt_tokens: usize,
    /// Generated tokens, including the stop or end-of-sequence token.
    pub completion_tokens: usize,
    /// Prompt tokens taken from the prefix cache instead of being computed.
    pub cached_tokens: usize,
    /// Tokens that lookup decoding drafted and accepted. Only these counts depend on the setting.
    pub drafts: DraftUsage,
}

/// A generated sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// The prompt's ids.
    pub prompt_tokens: Vec<u32>,
    /// The generated ids, without the stop or end-of-sequence token at the end. With [`StopCondition::Texts`] they
    /// include the tokens of the stop text.
    pub tokens: Vec<u32>,
    /// decode(prompt + tokens) without its prefix decode(prompt), special tokens skipped: decoding `tokens`
    /// alone would lose a leading blank.
    pub text: String,
    /// Why it ended.
    pub finish: FinishReason,
    /// Token counts.
    pub usage: TokenUsage,
    /// The highest logits after the prompt, as (id, logit), highest first.
    pub first_logits: Vec<(u32, f32)>,
}

/// Position of the first stop text.
pub(crate) fn first_stop(text: &str, stops: &[String]) -> Option<usize> {
    stops.iter().filter_map(|stop| text.find(&**stop)).min()
}
