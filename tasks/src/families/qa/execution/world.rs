//! The tools' replies so far, and the next call. Passages are selected by the ranker's scores (upstream
//! `get_max_idx` in `eval/hotpotqa/utils.py` and `ParagraphRetrieve` in `qa_tool.py`).

use crate::call::{MathsReply, Passage, ToolCall, ToolReply, WikiRequest};
use crate::families::Failure;
use crate::families::execution::{Interrupt, Replies, unfit};
use crate::families::qa::page::WikiPage;
use crate::families::qa::prompts;
use crate::formulation::Behaviour;
use crate::request::{Message, Role};

/// Number of passages kept.
const KEPT: usize = 5;

/// The tools' replies so far, consumed in order.
#[derive(Debug)]
pub(crate) struct World<'a> {
    replies: Replies<'a>,
    behaviour: Behaviour,
}

impl<'a> World<'a> {
    pub(crate) fn new(replies: &'a [ToolReply], behaviour: Behaviour) -> Self {
        Self { replies: Replies::new(replies), behaviour }
    }

    /// Fetches a page of the encyclopaedia.
    pub(super) fn page(&mut self, query: &str) -> Result<&'a WikiPage, Interrupt> {
        let reading = self.behaviour;
        match self.replies.take(|| ToolCall::Wiki { request: WikiRequest::of(query), reading })? {
            ToolReply::Wiki(WikiPage::Unreadable { message }) => Err(Failure::tool(message.as_str()).into()),
            ToolReply::Wiki(page) => Ok(page),
            _ => Err(unfit()),
        }
    }

    /// Searches for addresses of pages.
    pub(super) fn search(&mut self, query: &str, most: u32) -> Result<&'a [String], Interrupt> {
        match self.replies.take(|| ToolCall::Search { query: query.to_owned(), most })? {
            ToolReply::Search(addresses) => Ok(addresses),
            _ => Err(unfit()),
        }
    }

    /// The passages most relevant to a question, as lines of evidence.
    pub(super) fn evidence(&mut self, question: &str, passages: &[Passage]) -> Result<String, Interrupt> {
        if passages.is_empty() {
            return Ok(String::new());
        }
        let scores = self.replies.rank(question, || passages.to_vec())?;
        Ok(evidence(passages, scores, self.behaviour))
    }

    /// The QA tool: its model answers from the context, and without one if it finds no answer there.
    pub(crate) fn question_answering(&mut self, question: &str, context: &str) -> Result<String, Interrupt> {
        let mut reply = self.chat(prompts::ask_with_context(question, context))?;
        if reply.contains("No answer") {
            reply = self.chat(prompts::ask_without_context(question))?;
        }
        Ok(format!("Question: {question}; {reply}"))
    }

    fn chat(&mut self, messages: Vec<Message>) -> Result<&'a str, Interrupt> {
        let max_new_tokens = prompts::MAX_ANSWER_TOKENS;
        match self.replies.take(|| ToolCall::Chat { role: Role::Qa, messages, max_new_tokens })? {
            ToolReply::Chat(reply) => Ok(&reply.text),
            _ => Err(unfit()),
        }
    }

    /// The value of an arithmetic expression, if the mathematics service has one.
    pub(super) fn arithmetic(&mut self, query: &str) -> Result<Option<&'a str>, Interrupt> {
        match self.replies.take(|| ToolCall::Maths { query: query.to_owned() })? {
            ToolReply::Maths(MathsReply::One(text)) => Ok(Some(text)),
            ToolReply::Maths(_) => Ok(None),
            _ => Err(unfit()),
        }
    }
}

/// Whether the QA tool found an answer.
pub(super) fn is_answer(reply: &str) -> bool {
    !reply.to_lowercase().contains("no answer")
}

/// Indices of the `most` highest scores, the highest first.
///
/// Among equal scores the original prefers the last (it sorts in ascending order and reads from the end);
/// corrected behaviour prefers the first, which is more likely to be relevant on a page.
pub fn highest(scores: &[f64], most: usize, behaviour: Behaviour) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    let score = |index: &usize| scores.get(*index).copied().unwrap_or(f64::NEG_INFINITY);
    match behaviour {
        Behaviour::Paper => {
            order.sort_by(|left, right| score(left).total_cmp(&score(right)));
            order.reverse();
        }
        Behaviour::Corrected => order.sort_by(|left, right| score(right).total_cmp(&score(left))),
    }
    order.truncate(most);
    order
}

/// The best passages, formatted as evidence, one per line.
fn evidence(passages: &[Passage], scores: &[f64], behaviour: Behaviour) -> String {
    let best = highest(scores, KEPT, behaviour);
    let texts = best.iter().filter_map(|index| passages.get(*index)).map(|passage| &passage.text);
    texts.enumerate().map(|(index, text)| format!("Evidence {}: {text}\n", index + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_come_first() {
        for behaviour in Behaviour::ALL {
            assert_eq!(highest(&[-1.0, 3.0, 2.0], 2, behaviour), [1, 2]);
            assert_eq!(highest(&[], 2, behaviour), [0usize; 0]);
        }
        assert_eq!(highest(&[1.0, 1.0, 1.0], 2, Behaviour::Paper), [2, 1]);
        assert_eq!(highest(&[1.0, 1.0, 1.0], 2, Behaviour::Corrected), [0, 1]);
    }

    #[test]
    fn evidence_is_numbered() {
        let passage = |text: &str| Passage { title: "T".to_owned(), text: text.to_owned() };
        let passages = [passage("a"), passage("b")];
        assert_eq!(evidence(&passages, &[0.0, 1.0], Behaviour::Paper), "Evidence 1: b\nEvidence 2: a\n");
    }
}
