//! Tool calls and their replies, at the lowest possible level, so that they can be recorded, cached and
//! replayed.
//!
//! An [`Episode`](crate::Episode) requests a [`ToolCall`]; the driver answers it with a [`ToolReply`].

use serde::{Deserialize, Serialize};

use crate::families::qa::page::WikiPage;
use crate::families::shop::{ShopReply, ShopRequest};
use crate::families::web::{CandidateElement, CandidateScope, PageAction, PageExecution};
use crate::formulation::Behaviour;
use crate::request::{Message, Role};

/// One call to a tool.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "tool", rename_all = "snake_case")]
pub enum ToolCall {
    /// A query to the mathematics service (WolframAlpha in the original). Answered by [`ToolReply::Maths`].
    Maths {
        /// The query text: `2 + 3`, `Solve x + 1 = 2`, `Expand 2x + x`.
        query: String,
    },
    /// Fetches a page of the encyclopaedia (English Wikipedia in the original). Answered by
    /// [`ToolReply::Wiki`].
    Wiki {
        /// The requested page.
        request: WikiRequest,
        /// How its text is read; see [`page::read`](crate::families::qa::page::read).
        reading: Behaviour,
    },
    /// Searches for pages that may answer a question (Google's first results in the original). Answered by
    /// [`ToolReply::Search`].
    Search {
        /// The search query; the original appends ` Wikipedia`.
        query: String,
        /// Maximum number of addresses.
        most: u32,
    },
    /// Scores the relevance of passages to a question (a DPR reader's relevance logits in the original).
    /// Answered by [`ToolReply::Rank`].
    Rank {
        /// The question.
        question: String,
        /// The passages; scores have the same order.
        passages: Vec<Passage>,
    },
    /// Requests a reply of a chat model, decoded greedily. The driver uses the model of the role
    /// ([`Configuration::models`](crate::Configuration)). Answered by [`ToolReply::Chat`].
    Chat {
        /// The role whose model is used: [`Role::Qa`].
        role: Role,
        /// The conversation.
        messages: Vec<Message>,
        /// Maximum number of tokens in the reply.
        max_new_tokens: u32,
    },
    /// Requests the candidates of a web page. Answered by [`ToolReply::Candidates`].
    Candidates {
        /// The gold step that the page belongs to, counted from 0.
        step: u32,
        /// Which candidates to return.
        scope: CandidateScope,
    },
    /// Executes a step's action in a browser. Answered by [`ToolReply::Carried`].
    Carry(PageAction),
    /// Executes a statement on the episode's own database. Answered by [`ToolReply::Sql`].
    Sql {
        /// The statement as written by the model.
        statement: String,
    },
    /// Grades the last statement's result. Answered by [`ToolReply::SqlGrade`].
    SqlSubmit,
    /// An action in the shop of the episode's session. Answered by [`ToolReply::Shop`].
    Shop(ShopRequest),
    /// A call to a tool that is not part of the program: an MCP server, an HTTP service, another process, or a tool that
    /// a program built on this library registers. Answered by [`ToolReply::External`].
    External {
        /// The tool's name: the word before `=` in `--tool weather=mcp:…`.
        name: String,
        /// The operation: an MCP server's tool, or the `operation` in the request to another tool.
        operation: String,
        /// The arguments: a JSON object.
        arguments: serde_json::Value,
    },
}

impl ToolCall {
    /// The tool's name: the word before `=` in `--tool maths=native`, or the role for [`ToolCall::Chat`].
    /// Page requests and searches go to the same backend, so both are `wiki`.
    pub fn tool(&self) -> &str {
        match self {
            Self::Maths { .. } => "maths",
            Self::Wiki { .. } | Self::Search { .. } => "wiki",
            Self::Rank { .. } => "rank",
            Self::Chat { role, .. } => role.name(),
            Self::Candidates { .. } | Self::Carry(_) => "web",
            Self::Sql { .. } | Self::SqlSubmit => "sql",
            Self::Shop(_) => "shop",
            Self::External { name, .. } => name,
        }
    }
}

/// A page to fetch.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WikiRequest {
    /// The page with this title, or otherwise the list of search results for it.
    Find(String),
    /// The page at this path of the site: `/wiki/Kyoto`.
    Path(String),
    /// The page at this full address.
    Address(String),
}

impl WikiRequest {
    /// Parses a query (upstream `search_step` in `eval/hotpotqa/utils.py`): an address if it contains
    /// `https://`, a path if it contains `/wiki/`, otherwise a title.
    pub fn of(query: &str) -> Self {
        if query.contains("https://") {
            Self::Address(query.to_owned())
        } else if query.contains("/wiki/") {
            Self::Path(query.to_owned())
        } else {
            Self::Find(query.to_owned())
        }
    }

    /// The address that the original requests. As in the original, spaces become `+` and nothing else is
    /// escaped.
    pub fn address(&self) -> String {
        match self {
            Self::Find(text) => {
                format!("https://en.wikipedia.org/w/index.php?search={}", text.replace(' ', "+"))
            }
            Self::Path(path) => format!("https://en.wikipedia.org{path}"),
            Self::Address(address) => address.clone(),
        }
    }

    /// The requested page in the query's own words.
    pub fn text(&self) -> &str {
        match self {
            Self::Find(text) | Self::Path(text) | Self::Address(text) => text,
        }
    }
}

/// A passage to rank.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Passage {
    /// Title of the page that the passage is from.
    pub title: String,
    /// Text of the passage.
    pub text: String,
}

impl Passage {
    pub(crate) fn untitled(text: &str) -> Self {
        Self { title: String::new(), text: text.to_owned() }
    }
}

/// The reply of a tool. Infrastructure faults are not replies; the driver reports them separately.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "tool", content = "reply", rename_all = "snake_case")]
pub enum ToolReply {
    /// The mathematics service's first result pod.
    Maths(MathsReply),
    /// The parsed page.
    Wiki(WikiPage),
    /// Addresses, best first; may be empty.
    Search(Vec<String>),
    /// One score for each passage, in the order of the passages; higher is more relevant.
    Rank(Vec<f64>),
    /// The chat model's reply.
    Chat(ChatReply),
    /// A page's candidates.
    Candidates(Vec<CandidateElement>),
    /// The result of a step's action in a browser.
    Carried(PageExecution),
    /// The result of the statement.
    Sql(SqlReply),
    /// The grade of the last statement's result.
    SqlGrade(SqlGrade),
    /// The call raised in the original. Only recordings contain this, so that an episode continues as the
    /// original did; a failure of a live call is a fault.
    Raised {
        /// The exception: `Name: message`.
        message: String,
    },
    /// The current state of the shop session.
    Shop(ShopReply),
    /// The result of a tool that is not part of the program.
    External(ExternalReply),
}

impl ToolReply {
    /// The reply as recorded in a trajectory: without data that the next call repeats or that the item's
    /// pages contain.
    pub(crate) fn for_trajectory(&self) -> Self {
        match self {
            Self::Candidates(elements) => {
                let bare = |element: &CandidateElement| CandidateElement {
                    id: element.id.clone(),
                    text: String::new(),
                };
                Self::Candidates(elements.iter().map(bare).collect())
            }
            other => other.clone(),
        }
    }
}

/// The result of a tool that is not part of the program.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExternalReply {
    /// The result's text; JSON text if the tool returned a structure.
    Text(String),
    /// The tool rejected the call, for example because of an invalid argument; its message. This is the agent's error.
    Refused(String),
}

/// The mathematics service's first result pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MathsReply {
    /// A pod with one subpod: the plain text of the subpod.
    One(String),
    /// A pod with several subpods: their plain texts; `None` for a subpod without text.
    Many(Vec<Option<String>>),
    /// A pod with one subpod that has no plain text.
    Empty,
    /// No result pod: the service did not understand the query, or there is no result.
    NoResult {
        /// Details for people.
        message: String,
    },
}

/// A chat model's reply.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ChatReply {
    /// The text, stripped by the backend as the original's client does.
    pub text: String,
    /// Tokens in the conversation, if the backend counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u32>,
    /// Tokens in the reply, if the backend counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_tokens: Option<u32>,
}

impl ChatReply {
    /// A reply that was recorded as text only.
    pub fn recorded(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// The result of a statement, limited to the part that a model is shown.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SqlReply {
    /// A result.
    Rows {
        /// The first rows, formatted as Python tuples: at most [`SqlReply::SHOWN_ROWS`].
        rows: Vec<String>,
        /// Total number of rows.
        count: u64,
    },
    /// The statement was executed and has no result.
    Nothing,
    /// The statement failed: the server's message, or why it was rejected.
    Error(String),
}

impl SqlReply {
    /// Maximum number of rows that a model is shown (upstream `experiments/policies.py`).
    pub const SHOWN_ROWS: usize = 50;
}

/// The grade of a result compared with the gold result.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SqlGrade {
    /// The original's reward, from -1 to 1.
    pub reward: f64,
    /// Corrected scoring: whether the rows are equal, in the gold query's order if it specifies one.
    pub is_same: bool,
    /// The gold query failed.
    pub corrupt_gold: bool,
    /// The gold query returns no rows.
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
