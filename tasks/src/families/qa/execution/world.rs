//! The tools' replies so far, and the next call.

use crate::call::{MathsReply, Passage, ToolCall, ToolReply, WikiRequest};
use crate::families::Failure;
use crate::families::qa::page::WikiPage;
use crate::families::qa::{prompts, ranking};
use crate::formulation::Behaviour;
use crate::request::{Message, Role};

/// Stops an action: the next call, or a failure.
#[derive(Debug)]
pub(crate) enum Interrupt {
    Ask(ToolCall),
    Failed(Failure),
}

impl From<Failure> for Interrupt {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The tools' replies so far, consumed in order.
#[derive(Debug)]
pub(crate) struct World<'a> {
    answers: std::slice::Iter<'a, ToolReply>,
    pub(crate) behaviour: Behaviour,
}

impl<'a> World<'a> {
    pub(crate) fn new(answers: &'a [ToolReply], behaviour: Behaviour) -> Self {
        Self { answers: answers.iter(), behaviour }
    }

    fn ask(&mut self, call: impl FnOnce() -> ToolCall) -> Result<&'a ToolReply, Interrupt> {
        match self.answers.next() {
            None => Err(Interrupt::Ask(call())),
            Some(ToolReply::Raised { message }) => Err(Failure::tool(message.as_str()).into()),
            Some(reply) => Ok(reply),
        }
    }

    /// Fetches a page of the encyclopaedia.
    pub(super) fn page(&mut self, query: &str) -> Result<&'a WikiPage, Interrupt> {
        let reading = self.behaviour;
        match self.ask(|| ToolCall::Wiki { request: WikiRequest::of(query), reading })? {
            ToolReply::Wiki(WikiPage::Unreadable { message }) => Err(Failure::tool(message.as_str()).into()),
            ToolReply::Wiki(page) => Ok(page),
            _ => Err(unfit()),
        }
    }

    /// Searches for addresses of pages.
    pub(super) fn search(&mut self, query: &str, most: u32) -> Result<&'a [String], Interrupt> {
        match self.ask(|| ToolCall::Search { query: query.to_owned(), most })? {
            ToolReply::Search(addresses) => Ok(addresses),
            _ => Err(unfit()),
        }
    }

    /// The passages most relevant to a question, as lines of evidence.
    pub(super) fn evidence(&mut self, question: &str, passages: &[Passage]) -> Result<String, Interrupt> {
        if passages.is_empty() {
            return Ok(String::new());
        }
        let call = || ToolCall::Rank { question: question.to_owned(), passages: passages.to_vec() };
        match self.ask(call)? {
            ToolReply::Rank(scores) => Ok(ranking::evidence(passages, scores, self.behaviour)),
            _ => Err(unfit()),
        }
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
        match self.ask(|| ToolCall::Chat { role: Role::Qa, messages, max_new_tokens })? {
            ToolReply::Chat(reply) => Ok(&reply.text),
            _ => Err(unfit()),
        }
    }

    /// The value of an arithmetic expression, if the mathematics service has one.
    pub(super) fn arithmetic(&mut self, query: &str) -> Result<Option<&'a str>, Interrupt> {
        match self.ask(|| ToolCall::Maths { query: query.to_owned() })? {
            ToolReply::Maths(MathsReply::One(text)) => Ok(Some(text)),
            ToolReply::Maths(_) => Ok(None),
            _ => Err(unfit()),
        }
    }
}

/// A reply from another tool: a bug in the driver that the action cannot handle.
fn unfit() -> Interrupt {
    Failure::tool("a reply of another tool came").into()
}

/// Whether the QA tool found an answer.
pub(super) fn is_answer(reply: &str) -> bool {
    !reply.to_lowercase().contains("no answer")
}
