//! What an episode asks of a model, and what comes back.

use serde::{Deserialize, Serialize};

/// The module a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Writes subgoals.
    Planner,
    /// Turns subgoals into actions.
    Grounder,
    /// Answers on its own (chain of thought, direct).
    Answerer,
    /// Answers the questions of the QA tool (GPT-3.5 in the original).
    Qa,
    /// Says whether a prediction is correct, in a pass of its own (GPT-4 in the original).
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

/// One message of a conversation, for models that take a chat template.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// The text.
    pub content: String,
}

/// What a model reads.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// Text as it is, no BOS, no template: what Lumos modules are trained on.
    Raw(String),
    /// Token ids as they are.
    Tokens(Vec<u32>),
    /// Messages, laid out by the model's own template.
    Chat(Vec<Message>),
}

/// Where a reply ends (beside EOS and the limit on new tokens).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// At the newline token: the last id of the tokenizer's encoding of `"\n"`.
    Newline,
    /// At one of these tokens.
    Tokens(Vec<u32>),
    /// At this text.
    Text(String),
    /// Nowhere.
    Never,
}

/// How the next token is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampling {
    /// The most likely token; the lowest id among equals.
    Greedy,
    /// At random, from the tempered distribution.
    Random {
        /// Above 0; 1 leaves the distribution as it is.
        temperature: f64,
        /// Nucleus: only the most likely tokens that together reach this probability.
        top_p: Option<f64>,
        /// Only this many of the most likely tokens.
        top_k: Option<u32>,
    },
}

/// A request to a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The module asked.
    pub role: Role,
    /// What it reads.
    pub input: Input,
    /// Where the reply ends.
    pub stop: Stop,
    /// The most tokens the reply may have.
    pub max_new_tokens: u32,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Seed of the random choice, derived from unit and turn.
    pub seed: u64,
}

impl Request {
    /// The raw text of the prompt, where the request has one.
    pub fn prompt(&self) -> &str {
        match &self.input {
            Input::Raw(text) => text,
            Input::Tokens(_) | Input::Chat(_) => "",
        }
    }
}

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// At the stop token or text.
    Stop,
    /// At EOS.
    EndOfSequence,
    /// At the limit on new tokens.
    Length,
}

/// US dollars in billionths: sums of whole numbers do not depend on their order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NanoDollars(pub u64);

impl NanoDollars {
    /// In whole dollars.
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

/// A model's reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completion {
    /// The reply's text, unstripped, without the stop.
    pub text: String,
    /// Why it ended.
    pub finish: Finish,
    /// Tokens of the prompt, where the backend counts them.
    pub prompt_tokens: Option<u32>,
    /// Tokens generated, the stop token included, where the backend counts them.
    pub completion_tokens: Option<u32>,
    /// Tokens of the prompt that a cache already held: depends on the schedule, so it goes to telemetry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u32>,
    /// What the reply cost, where prices are set: not the agent's doing either, so it goes to telemetry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<NanoDollars>,
}

impl Completion {
    /// A reply that was recorded as text alone.
    pub fn recorded(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            finish: Finish::Stop,
            prompt_tokens: None,
            completion_tokens: None,
            cached_tokens: None,
            cost: None,
        }
    }
}
