//! Requests and their results.

use std::time::Instant;

use crate::error::GenerateError;
use crate::scheduler::Completion;
use crate::tokenizer::Tokenizer;

/// What a sequence starts with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Raw text; no special tokens are added.
    Text(String),
    /// Token ids.
    Tokens(Vec<u32>),
}

/// When a sequence ends, besides its end-of-sequence token and its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The last id of the tokenizer's encoding of `"\n"`.
    Newline,
    /// Any of these ids.
    Tokens(Vec<u32>),
    /// As soon as the completion contains this text, which is cut off together with what follows it.
    Text(String),
    /// The same for whichever of several texts comes first.
    Texts(Vec<String>),
    /// Nothing else.
    Never,
}

/// How the next token is chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// 0 takes the most likely token (the lowest id among equals); above it, logits are divided by it.
    pub temperature: f64,
    /// Keep the most likely of the tokens that `top_k` leaves until their probabilities add up to this part of theirs.
    pub top_p: Option<f64>,
    /// Keep this many of the most likely tokens.
    pub top_k: Option<usize>,
    /// Seed of the random stream, which depends on it and on the token's index and on nothing else.
    pub seed: u64,
}

impl Sampling {
    /// Always the most likely token.
    pub const GREEDY: Self = Self { temperature: 0.0, top_p: None, top_k: None, seed: 0 };
}

impl Default for Sampling {
    fn default() -> Self {
        Self::GREEDY
    }
}

/// One sequence to generate.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateRequest {
    /// What it starts with.
    pub input: Input,
    /// When it ends.
    pub stop: Stop,
    /// Most tokens to generate.
    pub max_new_tokens: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Go on after the end-of-sequence token.
    pub ignore_eos: bool,
    /// How many of the highest logits after the prompt to return; 0 for none.
    pub first_logits: usize,
    /// Tokens taken in place of the chosen ones, in order: logits are computed and a token is chosen as ever, then this one
    /// is taken. For measurements on recorded sequences.
    pub forced: Vec<u32>,
    /// Give up at this time.
    pub deadline: Option<Instant>,
}

impl GenerateRequest {
    /// Greedy decoding of a text until the first newline token, as Lumos modules are asked.
    pub fn text(text: impl Into<String>, max_new_tokens: usize) -> Self {
        Self {
            input: Input::Text(text.into()),
            stop: Stop::Newline,
            max_new_tokens,
            sampling: Sampling::GREEDY,
            ignore_eos: false,
            first_logits: 0,
            forced: Vec::new(),
            deadline: None,
        }
    }
}

/// Why a sequence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// Its stop condition.
    Stop,
    /// The end-of-sequence token.
    EndOfSequence,
    /// `max_new_tokens`, or the longest sequence that the model takes.
    Length,
}

/// Tokens counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens generated, the stop or end-of-sequence token included.
    pub completion_tokens: usize,
    /// Prompt tokens that were not computed again because an earlier sequence began with them.
    pub cached_tokens: usize,
}

/// A generated sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// The prompt's ids.
    pub prompt_tokens: Vec<u32>,
    /// The generated ids, without the stop or end-of-sequence token that ended them. With [`Stop::Text`] and
    /// [`Stop::Texts`] they include the tokens that spelled the stop text.
    pub tokens: Vec<u32>,
    /// decode(prompt + tokens) without its leading decode(prompt), special tokens skipped: decoding `tokens`
    /// alone would lose a leading blank.
    pub text: String,
    /// Why it ended.
    pub finish: Finish,
    /// Tokens counted.
    pub usage: Usage,
    /// The highest logits after the prompt, as (id, logit), highest first.
    pub first_logits: Vec<(u32, f32)>,
}

/// The result of a sequence that came to its end.
pub(crate) fn generation(
    tokenizer: &Tokenizer,
    completion: Completion,
    stop_texts: &[String],
) -> Result<Generation, GenerateError> {
    let Completion { prompt, tokens, finish, generated, cached, first_logits } = completion;
    let before = tokenizer.decode(&prompt)?;
    let mut all = prompt.clone();
    all.extend(&tokens);
    let whole = tokenizer.decode(&all)?;
    let mut text = after(&whole, &before).to_owned();
    if finish == Finish::Stop
        && let Some(start) = first_stop(&text, stop_texts)
    {
        text.truncate(start);
    }
    let usage = Usage { prompt_tokens: prompt.len(), completion_tokens: generated, cached_tokens: cached };
    Ok(Generation { prompt_tokens: prompt, tokens, text, finish, usage, first_logits })
}

/// Where the first of the stop texts begins.
pub(crate) fn first_stop(text: &str, stops: &[String]) -> Option<usize> {
    stops.iter().filter_map(|stop| text.find(&**stop)).min()
}

/// `whole` without as many characters as `before` has: the prompt's text may itself end differently once more
/// bytes of a character follow.
pub(crate) fn after<'a>(whole: &'a str, before: &str) -> &'a str {
    match whole.strip_prefix(before) {
        Some(rest) => rest,
        None => whole.char_indices().nth(before.chars().count()).map_or("", |(start, _)| &whole[start..]),
    }
}
