//! Calls that touch the world, each at the lowest level there is, so that it can be recorded, cached and replayed.

use serde::{Deserialize, Serialize};

use crate::families::qa::page::Page;
use crate::families::shop::{ShopReply, ShopRequest};
use crate::families::web::{Attempt, CandidateScope, Carried, Element};
use crate::formulation::Behaviour;
use crate::request::{Message, Role};

/// One call to a tool.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "tool", rename_all = "snake_case")]
pub enum ToolCall {
    /// One query to the mathematics service (WolframAlpha in the original). Answered by [`ToolReply::Maths`].
    Maths {
        /// The query's text: `2 + 3`, `Solve x + 1 = 2`, `Expand 2x + x`.
        query: String,
    },
    /// One page of the encyclopaedia (English Wikipedia in the original). Answered by [`ToolReply::Wiki`].
    Wiki {
        /// The page asked for.
        request: WikiRequest,
        /// How its text is read: see [`page::read`](crate::families::qa::page::read).
        reading: Behaviour,
    },
    /// Addresses of pages that may answer a question (Google's first results in the original). Answered by
    /// [`ToolReply::Search`].
    Search {
        /// The text searched for; the original appends ` Wikipedia`.
        query: String,
        /// The most addresses wanted.
        most: u32,
    },
    /// How relevant each of some passages is to a question (a DPR reader's relevance logits in the original).
    /// Answered by [`ToolReply::Rank`].
    Rank {
        /// The question.
        question: String,
        /// The passages; the order counts.
        passages: Vec<Passage>,
    },
    /// One reply of a chat model, greedily decoded. The driver asks the model of the role
    /// ([`Configuration::models`](crate::Configuration)). Answered by [`ToolReply::Chat`].
    Chat {
        /// Whose model is asked: [`Role::Qa`].
        role: Role,
        /// The conversation.
        messages: Vec<Message>,
        /// The most tokens the reply may have.
        max_new_tokens: u32,
    },
    /// What the candidates of a web page look like. Answered by [`ToolReply::Candidates`].
    Candidates {
        /// The gold step whose page it is, counted from 0.
        step: u32,
        /// Which candidates.
        scope: CandidateScope,
    },
    /// A step's action, to be carried out in a browser. Answered by [`ToolReply::Carried`].
    Carry(Attempt),
    /// One statement on the episode's own database. Answered by [`ToolReply::Sql`].
    Sql {
        /// The statement, as the model wrote it.
        statement: String,
    },
    /// What the last statement's result is worth. Answered by [`ToolReply::SqlGrade`].
    SqlSubmit,
    /// What is done in the shop of the episode's session. Answered by [`ToolReply::Shop`].
    Shop(ShopRequest),
}

impl ToolCall {
    /// The tool's name: the word before `=` in `--tool maths=native`, the role for [`ToolCall::Chat`]. Whoever has
    /// pages also searches, so both are `wiki`.
    pub fn tool(&self) -> &'static str {
        match self {
            Self::Maths { .. } => "maths",
            Self::Wiki { .. } | Self::Search { .. } => "wiki",
            Self::Rank { .. } => "rank",
            Self::Chat { role, .. } => role.name(),
            Self::Candidates { .. } | Self::Carry(_) => "web",
            Self::Sql { .. } | Self::SqlSubmit => "sql",
            Self::Shop(_) => "shop",
        }
    }
}

/// Which page is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WikiRequest {
    /// The page of this title, or else the list of search results for it.
    Find(String),
    /// The page at this path of the site: `/wiki/Kyoto`.
    Path(String),
    /// The page at this whole address.
    Address(String),
}

impl WikiRequest {
    /// What the text of a query asks for (upstream `search_step` in `eval/hotpotqa/utils.py`): an address where it
    /// holds `https://`, a path where it holds `/wiki/`, a title otherwise.
    pub fn of(query: &str) -> Self {
        if query.contains("https://") {
            Self::Address(query.to_owned())
        } else if query.contains("/wiki/") {
            Self::Path(query.to_owned())
        } else {
            Self::Find(query.to_owned())
        }
    }

    /// The address the original asks. Blanks become `+`; nothing else is escaped, as there.
    pub fn address(&self) -> String {
        match self {
            Self::Find(text) => {
                format!("https://en.wikipedia.org/w/index.php?search={}", text.replace(' ', "+"))
            }
            Self::Path(path) => format!("https://en.wikipedia.org{path}"),
            Self::Address(address) => address.clone(),
        }
    }

    /// What was asked for, in the query's own words.
    pub fn text(&self) -> &str {
        match self {
            Self::Find(text) | Self::Path(text) | Self::Address(text) => text,
        }
    }
}

/// A passage to be ranked.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Passage {
    /// The title of the page it is from.
    pub title: String,
    /// Its text.
    pub text: String,
}

/// What a tool replied. A fault of the infrastructure is no reply: the driver reports it apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "tool", content = "reply", rename_all = "snake_case")]
pub enum ToolReply {
    /// The mathematics service's first result pod.
    Maths(MathsReply),
    /// The page, read.
    Wiki(Page),
    /// Addresses, the best first; there may be none.
    Search(Vec<String>),
    /// One score for each passage, in the order of the passages; higher is more relevant.
    Rank(Vec<f64>),
    /// The chat model's reply.
    Chat(ChatReply),
    /// A page's candidates.
    Candidates(Vec<Element>),
    /// What a browser made of a step's action.
    Carried(Carried),
    /// What the statement gave.
    Sql(SqlReply),
    /// What the last statement's result is worth.
    SqlGrade(SqlGrade),
    /// The call raised in the original. Only recordings hold this, so that an episode takes it as the original
    /// does; what fails live is a fault.
    Raised {
        /// What was raised: `Name: message`.
        message: String,
    },
    /// Where the visit stands now.
    Shop(ShopReply),
}

impl ToolReply {
    /// The reply as it stands in a trajectory: without what the next call repeats and the item's pages say.
    pub fn for_trajectory(&self) -> Self {
        match self {
            Self::Candidates(elements) => {
                let bare = |element: &Element| Element { id: element.id.clone(), text: String::new() };
                Self::Candidates(elements.iter().map(bare).collect())
            }
            other => other.clone(),
        }
    }
}

/// The mathematics service's first result pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MathsReply {
    /// A pod with one subpod: its plain text.
    One(String),
    /// A pod with several subpods: their plain texts; one without text is `None`.
    Many(Vec<Option<String>>),
    /// A pod with one subpod that has no plain text.
    Empty,
    /// No result pod: the service did not understand, or there is no result.
    NoResult {
        /// What a person may want to know about it.
        message: String,
    },
}

/// A chat model's reply.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ChatReply {
    /// Its text, stripped by the backend, as the original's client does.
    pub text: String,
    /// Tokens of the conversation, where the backend counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u32>,
    /// Tokens of the reply, where the backend counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_tokens: Option<u32>,
}

impl ChatReply {
    /// A reply that was recorded as text alone.
    pub fn recorded(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// What a statement gave, as far as a model is shown it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SqlReply {
    /// A result.
    Rows {
        /// The first rows, each as Python prints a tuple: at most [`SqlReply::SHOWN_ROWS`].
        rows: Vec<String>,
        /// How many rows there are.
        count: u64,
    },
    /// It was carried out and has no result.
    Nothing,
    /// It was not carried out: the server's message, or why it was refused.
    Error(String),
}

impl SqlReply {
    /// The most rows a model is shown (upstream `experiments/policies.py`).
    pub const SHOWN_ROWS: usize = 50;
}

/// What a result is worth beside the gold result.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SqlGrade {
    /// The original's reward: from -1 to 1.
    pub reward: f64,
    /// Corrected: the same rows, in the gold query's order where it asks for one.
    pub is_same: bool,
    /// The gold query failed.
    pub corrupt_gold: bool,
    /// The gold query gives no rows.
    pub empty_gold: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_become_the_addresses_of_the_original() {
        for (query, address) in [
            ("Ford CD2", "https://en.wikipedia.org/w/index.php?search=Ford+CD2"),
            ("AT&T", "https://en.wikipedia.org/w/index.php?search=AT&T"),
            ("/wiki/Port_Amity", "https://en.wikipedia.org/wiki/Port_Amity"),
            ("see /wiki/X", "https://en.wikipedia.orgsee /wiki/X"),
            ("https://en.wikipedia.org/wiki/X", "https://en.wikipedia.org/wiki/X"),
        ] {
            assert_eq!(WikiRequest::of(query).address(), address);
        }
    }

    #[test]
    fn calls_and_replies_are_written_flat() {
        let call = ToolCall::Wiki { request: WikiRequest::of("Kyoto"), reading: Behaviour::Paper };
        let text = serde_json::to_string(&call).unwrap();
        assert_eq!(text, r#"{"tool":"wiki","request":{"find":"Kyoto"},"reading":"paper"}"#);
        assert_eq!(serde_json::from_str::<ToolCall>(&text).unwrap(), call);
        let reply = ToolReply::Rank(vec![0.5, -1.25]);
        let text = serde_json::to_string(&reply).unwrap();
        assert_eq!(text, r#"{"tool":"rank","reply":[0.5,-1.25]}"#);
        assert_eq!(serde_json::from_str::<ToolReply>(&text).unwrap(), reply);
    }
}
