//! [`GenerationStream`]: yields the tokens and the text of a sequence while it is generated.
//!
//! The scheduler sends new tokens through a channel; the stream decodes them incrementally and holds back
//! incomplete characters and text that may be part of a stop text. [`StreamEvent::Done`] is the last event.

use std::fmt;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::error::GenerateError;
use crate::request::{FinishReason, Generation, TokenUsage, first_stop};
use crate::scheduler::Completion;
use crate::tokenizer::Tokenizer;

/// Decoding returns this character for an incomplete byte sequence.
const INCOMPLETE: char = '\u{FFFD}';
/// Tokens without text are kept in the window up to this number of tokens.
const LONGEST_WINDOW: usize = 16;

/// New tokens of a sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// The new ids, without the stop or end-of-sequence token.
    pub tokens: Vec<u32>,
    /// The new text. It may lag behind the tokens: it contains whole characters only, and nothing that may be
    /// part of a stop text. After a long sequence of invalid bytes, or of tokens without text, it may lag by a
    /// sixteenth of that sequence. The pieces concatenate to the generation's text, except around bytes that are
    /// not valid text, where the replacement characters depend on the following bytes.
    pub text: String,
}

/// An event of a [`GenerationStream`].
#[derive(Clone, Debug, PartialEq)]
pub enum StreamEvent {
    /// More tokens.
    Delta(Delta),
    /// The end: the same generation that [`Engine::generate`](crate::Engine::generate) returns.
    Done(Generation),
}

/// A sequence that is being generated, returned by [`Engine::stream`](crate::Engine::stream). Dropping it
/// cancels the sequence.
///
/// A slow reader does not delay any sequence, including its own: it receives several tokens per event.
pub struct GenerationStream {
    tokens: mpsc::Receiver<Vec<u32>>,
    completion: Option<oneshot::Receiver<Result<Completion, GenerateError>>>,
    tokenizer: Arc<Tokenizer>,
    text: GrowingText,
    received: usize,
    /// The result to yield after the last delta.
    done: Option<Generation>,
}

impl fmt::Debug for GenerationStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("GenerationStream").field("received", &self.received).finish_non_exhaustive()
    }
}

impl GenerationStream {
    pub(crate) fn new(
        tokens: mpsc::Receiver<Vec<u32>>,
        completion: oneshot::Receiver<Result<Completion, GenerateError>>,
        tokenizer: Arc<Tokenizer>,
        prompt: &[u32],
        stop_texts: Vec<String>,
    ) -> Self {
        let text = GrowingText::new(prompt, stop_texts);
        Self { tokens, completion: Some(completion), tokenizer, text, received: 0, done: None }
    }

    /// The next event; `None` after the end or an error. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<StreamEvent, GenerateError>> {
        if let Some(generation) = self.done.take() {
            return Some(Ok(StreamEvent::Done(generation)));
        }
        let completion = self.completion.as_mut()?;
        if let Some(tokens) = self.tokens.recv().await {
            self.received += tokens.len();
            let text = self.text.push(&tokens, &self.tokenizer).inspect_err(|_| self.completion = None);
            return Some(text.map(|text| StreamEvent::Delta(Delta { tokens, text })));
        }
        let completion = completion.await.unwrap_or(Err(GenerateError::ShutDown));
        self.completion = None;
        Some(completion.and_then(|completion| self.end(completion)))
    }

    /// The final events: a last delta if there is one, then the end.
    fn end(&mut self, completion: Completion) -> Result<StreamEvent, GenerateError> {
        let generation = generation(&self.tokenizer, completion, &self.text.stops)?;
        let tokens = generation.tokens[self.received..].to_vec();
        let text = after(&generation.text, &self.text.given).to_owned();
        if tokens.is_empty() && text.is_empty() {
            return Ok(StreamEvent::Done(generation));
        }
        self.done = Some(generation);
        Ok(StreamEvent::Delta(Delta { tokens, text }))
    }
}

/// Decodes a growing sequence incrementally, using a window of the last tokens only.
struct GrowingText {
    tokens: Vec<u32>,
    /// `tokens[settled..read]` is the context in which new tokens are decoded; the text up to `read` has been
    /// returned.
    settled: usize,
    read: usize,
    /// Length of `tokens` at which the window is decoded next.
    due: usize,
    stops: Vec<String>,
    /// Decoded text that may be part of a stop text.
    held: String,
    given: String,
}

impl GrowingText {
    fn new(prompt: &[u32], stops: Vec<String>) -> Self {
        let tokens = prompt[prompt.len().saturating_sub(8)..].to_vec();
        let read = tokens.len();
        Self { tokens, settled: 0, read, due: 0, stops, held: String::new(), given: String::new() }
    }

    /// The text that these tokens add, as far as it is final.
    fn push(&mut self, tokens: &[u32], tokenizer: &Tokenizer) -> Result<String, GenerateError> {
        self.tokens.extend(tokens);
        if self.tokens.len() < self.due {
            return Ok(String::new());
        }
        let before = tokenizer.decode(&self.tokens[self.settled..self.read])?;
        let whole = tokenizer.decode(&self.tokens[self.settled..])?;
        if whole.ends_with(INCOMPLETE) {
            self.postpone();
            return Ok(String::new());
        }
        let new = after(&whole, &before);
        if new.is_empty() {
            if self.tokens.len() - self.settled > LONGEST_WINDOW {
                self.tokens.truncate(self.read);
            }
            self.postpone();
        } else {
            self.settled = self.read;
        }
        // After tokens without text, such as special tokens, the context stays: decoding strips the blank at the
        // start of a text.
        self.read = self.tokens.len();
        self.held.push_str(new);
        let longest = self.stops.iter().map(String::len).max().unwrap_or(1);
        let certain = first_stop(&self.held, &self.stops)
            .unwrap_or_else(|| self.held.floor_char_boundary((self.held.len() + 1).saturating_sub(longest)));
        let text: String = self.held.drain(..certain).collect();
        self.given.push_str(&text);
        Ok(text)
    }

    /// Postpones the next decoding, in proportion to the length of the window. Invalid bytes stay in the window until
    /// text follows: decoding it with each of them would take quadratic time.
    fn postpone(&mut self) {
        self.due = self.tokens.len() + (self.tokens.len() - self.settled) / LONGEST_WINDOW;
    }
}

/// Builds the result of a finished sequence.
pub(crate) fn generation(
    tokenizer: &Tokenizer,
    completion: Completion,
    stop_texts: &[String],
) -> Result<Generation, GenerateError> {
    let Completion { prompt, tokens, finish, generated, cached, drafts, first_logits } = completion;
    let before = tokenizer.decode(&prompt)?;
    let mut all = prompt.clone();
    all.extend(&tokens);
    let whole = tokenizer.decode(&all)?;
    let mut text = after(&whole, &before).to_owned();
    if finish == FinishReason::Stop
        && let Some(start) = first_stop(&text, stop_texts)
    {
        text.truncate(start);
    }
    let usage = TokenUsage {
        prompt_tokens: prompt.len(),
        completion_tokens: generated,
        cached_tokens: cached,
        drafts,
    };
    Ok(Generation { prompt_tokens: prompt, tokens, text, finish, usage, first_logits })
}

/// `whole` without as many characters as `before` has. The prompt's text may itself end differently when more
/// bytes of a character follow.
pub(crate) fn after<'a>(whole: &'a str, before: &str) -> &'a str {
    match whole.strip_prefix(before) {
        Some(rest) => rest,
        None => whole.char_indices().nth(before.chars().count()).map_or("", |(start, _)| &whole[start..]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixtures::byte_tokenizer;

    /// Invalid bytes, tokens without text, and the bytes of a character.
    const REPEATED: [&[&str]; 3] = [&["<0xFF>"], &["</s>"], &["<0xE6>", "<0xBC>", "<0xA2>"]];

    fn tokenizer() -> Tokenizer {
        let json = byte_tokenizer().to_string();
        Tokenizer::from_json(json.as_bytes(), "tokenizer.json".as_ref()).unwrap()
    }

    #[test]
    fn pieces_are_whole_characters_and_add_up() {
        let tokenizer = tokenizer();
        let prompt = tokenizer.encode("the inn").unwrap();
        let all = tokenizer.encode("the inn in the é 漢字 🙂 a thin hat").unwrap();
        let pieces = |stops: &[&str]| -> (Vec<String>, String) {
            let stops = stops.iter().map(|stop| (*stop).to_owned()).collect();
            let mut growing = GrowingText::new(&prompt, stops);
            let new = &all[prompt.len()..];
            let pieces = new.iter().map(|token| growing.push(&[*token], &tokenizer).unwrap()).collect();
            (pieces, growing.given)
        };
        let (free, given) = pieces(&[]);
        assert_eq!(given, " in the é 漢字 🙂 a thin hat");
        assert_eq!(free.concat(), given);
        assert!(free.len() > 15 && free.contains(&"漢".to_owned()) && !given.contains(INCOMPLETE));
        // Text that may be the start of the stop text is held back; the text before it is not.
        assert_eq!(pieces(&["thin"]).1, " in the é 漢字 🙂 a ");
        assert_eq!(pieces(&["never"]).1, " in the é 漢字 🙂 a thin");
        assert_eq!(pieces(&["hat", "never", "a "]).1, " in the é 漢字 🙂 ");
        // Special tokens have no text and leave the blank that follows them.
        let the = tokenizer.id("▁the").unwrap();
        let (_, new) = all.split_at(prompt.len());
        let (first, rest) = new.split_at(new.iter().position(|token| *token == the).unwrap());
        for count in [1, 40] {
            let mut growing = GrowingText::new(&prompt, Vec::new());
            for token in [first, vec![2; count].as_slice(), rest].concat() {
                growing.push(&[token], &tokenizer).unwrap();
            }
            assert_eq!(growing.given, given);
            assert!(growing.tokens.len() <= all.len() + LONGEST_WINDOW);
        }
    }

    #[test]
    fn invalid_bytes_take_linear_time() {
        const COUNT: usize = 4000;
        let tokenizer = tokenizer();
        let [invalid, the] = ["<0xFF>", "▁the"].map(|piece| tokenizer.id(piece).unwrap());
        let mut growing = GrowingText::new(&[], Vec::new());
        let mut decoded = 0;
        for length in 1..=COUNT {
            decoded += if length < growing.due { 0 } else { length };
            assert_eq!(growing.push(&[invalid], &tokenizer).unwrap(), "");
        }
        assert!(decoded < 20 * COUNT, "{decoded}");
        let later = COUNT / LONGEST_WINDOW;
        for _ in 0..later {
            growing.push(&[the], &tokenizer).unwrap();
        }
        assert_eq!(growing.given, ["\u{FFFD}".repeat(COUNT), " the".repeat(later)].concat());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn postponed_text_equals_the_text_decoded_at_once(
            parts in prop::collection::vec((prop::sample::select(&REPEATED), 0usize..150), 1..6),
            lengths in prop::collection::vec(1usize..20, 1..20),
        ) {
            let tokenizer = tokenizer();
            let prompt = tokenizer.encode("the inn").unwrap();
            let id = |piece: &str| tokenizer.id(piece).unwrap();
            let mut tokens = Vec::new();
            for (pieces, count) in parts {
                tokens.extend(pieces.repeat(count).into_iter().map(id));
                tokens.push(id("▁the"));
            }
            let before = tokenizer.decode(&prompt).unwrap();
            let whole = tokenizer.decode(&[&prompt[..], &tokens[..]].concat()).unwrap();
            let text = after(&whole, &before);
            let new = || GrowingText::new(&prompt, Vec::new());
            let (mut growing, mut eager) = (new(), new());
            let mut lengths = lengths.into_iter().cycle();
            let mut rest = &tokens[..];
            while !rest.is_empty() {
                let (some, later) = rest.split_at(lengths.next().unwrap().min(rest.len()));
                growing.push(some, &tokenizer).unwrap();
                eager.due = 0;
                eager.push(some, &tokenizer).unwrap();
                prop_assert!(eager.given.starts_with(&growing.given));
                rest = later;
            }
            prop_assert_eq!(&eager.given, text);
            prop_assert_eq!(growing.given.clone() + after(text, &growing.given), text);
        }
    }
}
