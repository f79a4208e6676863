//! Requests of an episode to a model ([`Request`]) and the replies ([`Completion`]).
//!
//! A request names the [`Role`] of the model, its [`Input`], the [`Stop`] condition and the [`Sampling`]
//! settings. The driver sends it to the role's backend.

use serde::{Deserialize, Serialize};

use crate::prompt_format::TemplatedPrompt;

/// The role of the model that a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Writes subgoals.
    Planner,
    /// Turns subgoals into actions.
    Grounder,
    /// Answers on its own (chain of thought, direct).
    Answerer,
    /// Answers questions of the QA tool (GPT-3.5 in the original).
    Qa,
    /// Judges whether a prediction is correct, in a separate pass (GPT-4 in the original).
    Judge,
}

impl Role {
    /// All roles, in the order of reports.
    pub const ALL: [Self; 5] = [Self::Planner, Self::Grounder, Self::Answerer, Self::Qa, Self::Judge];

    /// The name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Planner => "planner",
            Self::Grounder => "grounder",
            Self::Answerer => "answerer",
            Self::Qa => "qa",
            Self::Judge => "judge",
        }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name())
    }
}

/// One message of a conversation, for models with a chat template.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// The text.
    pub content: String,
}

/// The input of a model.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// Raw text without BOS token or template, as Lumos modules are trained.
    Raw(String),
    /// Token ids, used unchanged.
    Tokens(Vec<u32>),
    /// Messages, formatted by the model's chat template.
    Chat(Vec<Message>),
    /// A conversation of planner, grounder or answerer that is not in Lumos's layout.
    Templated(Box<TemplatedPrompt>),
}

/// Where a reply ends, in addition to EOS and the limit on new tokens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// At the newline token: the last id of the tokenizer's encoding of `"\n"`.
    Newline,
    /// At one of these tokens.
    Tokens(Vec<u32>),
    /// At this text.
    Text(String),
    /// No stop condition.
    Never,
}

/// How the next token is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampling {
    /// Selects the most likely token; the lowest id among equals.
    Greedy,
    /// Samples from the tempered distribution.
    Random {
        /// Above 0; 1 leaves the distribution unchanged.
        temperature: f64,
        /// Nucleus sampling: only the most likely tokens that together reach this probability.
        top_p: Option<f64>,
        /// Only this many of the most likely tokens.
        top_k: Option<u32>,
    },
}

/// A request to a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The role of the model.
    pub role: Role,
    /// The input.
    pub input: Input,
    /// Where the reply ends.
    pub stop: Stop,
    /// Maximum number of tokens in the reply.
    pub max_new_tokens: u32,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Seed for sampling, derived from unit and turn.
    pub seed: u64,
}

impl Request {
    /// The raw text of the prompt, if the input is text; of a conversation, its text in Lumos's layout.
    pub fn prompt(&self) -> &str {
        match &self.input {
            Input::Raw(text) => text,
            Input::Templated(prompt) => &prompt.text,
            Input::Tokens(_) | Input::Chat(_) => "",
        }
    }
}

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The stop token or text was reached.
    Stop,
    /// EOS was generated.
    EndOfSequence,
    /// The limit on new tokens was reached.
    Length,
}

/// US dollars in billionths: sums of integers do not depend on their order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NanoDollars(pub u64);

impl NanoDollars {
    /// The amount in dollars.
    #[expect(clippy::cast_precision_loss, reason = "exact up to nine million dollars")]
    pub fn dollars(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl std::ops::AddAssign for NanoDollars {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }
}

/// Tokens that lookup decoding drafted and verified. Replies do not depend on them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraftCounts {
    /// Tokens drafted and computed.
    pub drafted: u64,
    /// Drafted tokens that equal the chosen ones. Each saves one pass of the model for its reply.
    pub accepted: u64,
}

impl DraftCounts {
    /// Share of accepted tokens; 0 without drafts.
    #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
    pub fn acceptance(self) -> f64 {
        self.accepted as f64 / self.drafted.max(1) as f64
    }
}

impl std::ops::AddAssign for DraftCounts {
    fn add_assign(&mut self, other: Self) {
        self.drafted = self.drafted.saturating_add(other.drafted);
        self.accepted = self.accepted.saturating_add(other.accepted);
    }
}

/// A model's reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completion {
    /// The reply's text, unstripped, without the stop.
    pub text: String,
    /// Why it ended.
    pub finish: Finish,
    /// Tokens in the prompt, if the backend counts them.
    pub prompt_tokens: Option<u32>,
    /// Generated tokens, including the stop token, if the backend counts them.
    pub completion_tokens: Option<u32>,
    /// Prompt tokens found in a prefix cache. Depends on the schedule, so it is recorded as telemetry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u32>,
    /// Tokens that lookup decoding drafted for the reply. Depends on the schedule, so it is recorded as telemetry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drafts: Option<DraftCounts>,
    /// Cost of the reply, if prices are configured. Recorded as telemetry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<NanoDollars>,
}

impl Completion {
    /// A reply that was recorded as text only.
    pub fn recorded(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            finish: Finish::Stop,
            prompt_tokens: None,
            completion_tokens: None,
            cached_tokens: None,
            drafts: None,
            cost: None,
        }
    }
}
