//! Recorded tool calls: lookup of replies by call, and conversion of live calls to recordings.
//!
//! The original's recordings contain a page's HTML (`http_get`), logits of ten passages at a time (`dpr`) and
//! addresses of a search (`google`). Recordings of lumos contain the parsed page (`wiki`), the scores of all
//! passages (`rank`; a passage's score may depend on the others) and addresses (`search`). Both are
//! supported.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use thiserror::Error;

use crate::call::{ChatReply, ExternalReply, MathsReply, Passage, SqlGrade, SqlReply, ToolCall, ToolReply};
use crate::families::qa::page::{self, WikiPage};
use crate::families::shop::{ShopReply, ShopRequest};
use crate::families::web::{CandidateScope, PageAction, PageExecution};
use crate::formulation::Behaviour;
use crate::identity::ContentHash;
use crate::request::{Message, Role};

/// Maximum number of passages in one ranking of the original.
const PASSAGES: usize = 10;

/// A recorded tool call: its input, and its output or exception.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedCall {
    /// The tool's name in the recording: `wolfram`, `http_get` or `wiki`, `google` or `search`, `dpr` or
    /// `rank`, `chat`, `carry`, `sql`, `sql_submit`, `external`.
    pub tool: String,
    /// The input.
    pub input: Value,
    /// The output, unless the call raised.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub output: Option<Value>,
    /// The exception as `Name: message`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raises: Option<String>,
}

/// Distinguishes `"output": null` from a missing `output`.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// The exception that the original's client raises if the service has no result pod.
const NO_RESULT: &str = "StopIteration";

/// The original's models for the QA tool and for the judge.
const CHAT_MODEL: &str = "gpt-3.5-turbo";
const JUDGE_MODEL: &str = "gpt-4";

/// The lookup key of a call: the tool and the parts of the input that influence the reply.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallKey {
    /// `maths`, `page`, `search`, `rank`, `chat`, `shop` or `external`.
    pub tool: &'static str,
    /// The query, the address, the question or the last message, for display.
    pub text: String,
    /// Hash of the remaining input: passages, messages.
    more: Option<ContentHash>,
}

impl CallKey {
    fn plain(tool: &'static str, text: impl Into<String>) -> Self {
        Self { tool, text: text.into(), more: None }
    }

    fn rank(question: &str, passages: &[Passage]) -> Self {
        Self { tool: "rank", text: question.to_owned(), more: Some(ContentHash::of_json(&passages)) }
    }

    fn chat(messages: &[Message]) -> Self {
        let text = messages.last().map_or("", |message| &message.content);
        Self { tool: "chat", text: text.to_owned(), more: Some(ContentHash::of_json(&messages)) }
    }

    fn shop(request: &ShopRequest) -> Self {
        Self { tool: "shop", text: request.action.clone(), more: Some(ContentHash::of_json(request)) }
    }

    fn carry(attempt: &PageAction) -> Self {
        let text = format!("{} {}", attempt.action.word(), attempt.element);
        Self { tool: RecordedCall::CARRY, text, more: Some(ContentHash::of_json(attempt)) }
    }

    /// The key under which a call is recorded.
    pub fn of(call: &ToolCall) -> Self {
        match call {
            ToolCall::Maths { query } => Self::plain("maths", query),
            ToolCall::Wiki { request, .. } => Self::plain("page", request.address()),
            ToolCall::Search { query, .. } => Self::plain("search", query),
            ToolCall::Rank { question, passages } => Self::rank(question, passages),
            ToolCall::Chat { messages, .. } => Self::chat(messages),
            ToolCall::Candidates { step, scope } => Self {
                more: Some(ContentHash::of_json(scope)),
                ..Self::plain("candidates", step.to_string())
            },
            ToolCall::Carry(attempt) => Self::carry(attempt),
            ToolCall::Sql { statement } => Self::plain("sql", statement),
            ToolCall::SqlSubmit => Self::plain("sql_submit", ""),
            ToolCall::Shop(request) => Self::shop(request),
            ToolCall::External { name, operation, arguments } => Self {
                more: Some(ContentHash::of_json(arguments)),
                ..Self::plain("external", format!("{name} {operation}"))
            },
        }
    }

    /// The keys of a ranking in the original's recordings: one for every ten passages.
    fn parts(call: &ToolCall) -> Vec<Self> {
        match call {
            ToolCall::Rank { question, passages } => {
                passages.chunks(PASSAGES).map(|passages| Self::rank(question, passages)).collect()
            }
            call => vec![Self::of(call)],
        }
    }
}

/// Errors of finding the recorded reply to a call.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotRecorded {
    /// The call was not recorded.
    #[error("no recorded answer to {} `{}`", .0.tool, .0.text)]
    Missing(CallKey),
    /// The call was recorded, but the output is not a reply of that tool.
    #[error("the record for {} `{}` is not a reply of that tool", .0.tool, .0.text)]
    Malformed(CallKey),
}

/// The recorded reply to a call; `find` returns the recordings by key, in order. A recorded exception becomes
/// the reply [`ToolReply::Raised`] (for the mathematics service: no result), because the original continues
/// with it.
///
/// # Errors
/// See [`NotRecorded`].
pub fn answer<'a>(
    call: &ToolCall,
    mut find: impl FnMut(&CallKey) -> Option<&'a RecordedCall>,
) -> Result<ToolReply, NotRecorded> {
    let key = CallKey::of(call);
    if let Some(recorded) = find(&key) {
        return recorded.reply(call).ok_or(NotRecorded::Malformed(key));
    }
    let parts = CallKey::parts(call);
    if parts.len() < 2 {
        return Err(NotRecorded::Missing(key));
    }
    let mut scores = Vec::new();
    for key in parts {
        let Some(recorded) = find(&key) else { return Err(NotRecorded::Missing(key)) };
        match recorded.reply(call) {
            Some(ToolReply::Rank(part)) => scores.extend(part),
            Some(raised @ ToolReply::Raised { .. }) => return Ok(raised),
            _ => return Err(NotRecorded::Malformed(key)),
        }
    }
    Ok(ToolReply::Rank(scores))
}

impl RecordedCall {
    /// The tool name of actions executed in a browser.
    pub const CARRY: &'static str = "carry";

    /// Records a call and its reply.
    pub fn of(call: &ToolCall, reply: &ToolReply) -> Self {
        let (tool, input) = match call {
            ToolCall::Maths { query } => ("wolfram", json!(query)),
            ToolCall::Wiki { request, .. } => ("wiki", json!(request.address())),
            ToolCall::Search { query, most } => ("search", json!({ "query": query, "stop": most })),
            ToolCall::Rank { question, passages } => {
                let titles: Vec<&str> = passages.iter().map(|passage| passage.title.as_str()).collect();
                let texts: Vec<&str> = passages.iter().map(|passage| passage.text.as_str()).collect();
                ("rank", json!({ "question": question, "titles": titles, "texts": texts }))
            }
            ToolCall::Chat { role, messages, max_new_tokens } => (
                "chat",
                json!({ "role": role, "messages": messages, "temperature": 0, "max_tokens": max_new_tokens }),
            ),
            ToolCall::Candidates { step, scope } => ("candidates", json!({ "step": step, "scope": scope })),
            ToolCall::Carry(attempt) => (Self::CARRY, json!(attempt)),
            ToolCall::Sql { statement } => ("sql", json!(statement)),
            ToolCall::SqlSubmit => ("sql_submit", Value::Null),
            ToolCall::Shop(request) => ("shop", json!(request)),
            ToolCall::External { name, operation, arguments } => {
                ("external", json!({ "name": name, "operation": operation, "arguments": arguments }))
            }
        };
        let (output, raises) = match reply {
            ToolReply::Maths(MathsReply::One(text)) => (json!(text), None),
            ToolReply::Maths(MathsReply::Many(texts)) => (json!(texts), None),
            ToolReply::Maths(MathsReply::Empty) => (Value::Null, None),
            ToolReply::Maths(MathsReply::NoResult { .. }) => (Value::Null, Some(NO_RESULT.to_owned())),
            ToolReply::Wiki(page) => (json!(page), None),
            ToolReply::Search(addresses) => (json!(addresses), None),
            ToolReply::Rank(scores) => (json!(scores), None),
            ToolReply::Chat(reply) if *reply == ChatReply::recorded(&reply.text) => (json!(reply.text), None),
            ToolReply::Chat(reply) => (json!(reply), None),
            ToolReply::Candidates(elements) => (json!(elements), None),
            ToolReply::Carried(carried) => (json!(carried), None),
            ToolReply::Sql(reply) => (json!(reply), None),
            ToolReply::SqlGrade(grade) => (json!(grade), None),
            ToolReply::Raised { message } => (Value::Null, Some(message.clone())),
            ToolReply::Shop(reply) => (json!(reply), None),
            ToolReply::External(reply) => (json!(reply), None),
        };
        let output = raises.is_none().then_some(output);
        Self { tool: tool.to_owned(), input, output, raises }
    }

    /// The lookup key; `None` if the input is not valid for a known tool.
    pub fn key(&self) -> Option<CallKey> {
        let field = |name: &str| self.input.get(name);
        match self.tool.as_str() {
            "wolfram" => Some(CallKey::plain("maths", self.input.as_str()?)),
            "http_get" | "wiki" => Some(CallKey::plain("page", self.input.as_str()?)),
            "google" | "search" => Some(CallKey::plain("search", field("query")?.as_str()?)),
            "dpr" | "rank" => {
                let (titles, texts) = (texts(field("titles")?)?, texts(field("texts")?)?);
                let passages = titles.into_iter().zip(texts).map(|(title, text)| Passage { title, text });
                Some(CallKey::rank(field("question")?.as_str()?, &passages.collect::<Vec<_>>()))
            }
            "chat" => {
                let messages: Vec<Message> = Vec::deserialize(field("messages")?).ok()?;
                Some(CallKey::chat(&messages))
            }
            "candidates" => {
                let step = u32::deserialize(field("step")?).ok()?;
                let scope = CandidateScope::deserialize(field("scope")?).ok()?;
                Some(CallKey::of(&ToolCall::Candidates { step, scope }))
            }
            Self::CARRY => Some(CallKey::carry(&PageAction::deserialize(&self.input).ok()?)),
            "sql" => Some(CallKey::plain("sql", self.input.as_str()?)),
            "sql_submit" => Some(CallKey::plain("sql_submit", "")),
            "shop" => Some(CallKey::shop(&ShopRequest::deserialize(&self.input).ok()?)),
            "external" => Some(CallKey::of(&ToolCall::External {
                name: field("name")?.as_str()?.to_owned(),
                operation: field("operation")?.as_str()?.to_owned(),
                arguments: field("arguments")?.clone(),
            })),
            _ => None,
        }
    }

    /// The first part of the input that differs from the original's for this call, among the parts that do
    /// not influence the reply: the chat model, temperature and token limit; the number of addresses of a
    /// search, and the site. Parts that are missing in the recording are skipped.
    pub fn differing_setting(&self, call: &ToolCall) -> Option<String> {
        let settings = match call {
            ToolCall::Chat { role, max_new_tokens, .. } => vec![
                ("role", json!(role)),
                ("model", json!(if *role == Role::Judge { JUDGE_MODEL } else { CHAT_MODEL })),
                ("temperature", json!(0)),
                ("max_tokens", json!(max_new_tokens)),
            ],
            ToolCall::Search { most, .. } => {
                vec![("tld", json!("co.in")), ("num", json!(10)), ("stop", json!(most)), ("pause", json!(2))]
            }
            _ => Vec::new(),
        };
        let equal = |left: &Value, right: &Value| match (left.as_f64(), right.as_f64()) {
            (Some(left), Some(right)) => left == right,
            _ => left == right,
        };
        settings.into_iter().find_map(|(name, asked)| {
            let recorded = self.input.get(name).filter(|recorded| !equal(recorded, &asked))?;
            Some(format!("{name}: recorded is {recorded}, asked {asked}"))
        })
    }

    /// The reply to a call of which this is a recording (or a part); `None` if it is not a reply of that
    /// tool.
    fn reply(&self, call: &ToolCall) -> Option<ToolReply> {
        if let Some(raised) = &self.raises {
            let message = raised.clone();
            return Some(match call {
                // The original catches both in the same way.
                ToolCall::Maths { .. } => ToolReply::Maths(MathsReply::NoResult { message }),
                _ => ToolReply::Raised { message },
            });
        }
        let output = self.output.as_ref()?;
        Some(match call {
            ToolCall::Maths { .. } => ToolReply::Maths(match output {
                Value::String(text) => MathsReply::One(text.clone()),
                Value::Array(texts) => {
                    MathsReply::Many(texts.iter().map(|text| text.as_str().map(str::to_owned)).collect())
                }
                Value::Null => MathsReply::Empty,
                _ => return None,
            }),
            ToolCall::Wiki { reading, .. } => ToolReply::Wiki(self.page(output, *reading)?),
            ToolCall::Search { .. } => ToolReply::Search(texts(output)?),
            ToolCall::Rank { .. } => ToolReply::Rank(Vec::deserialize(output).ok()?),
            ToolCall::Candidates { .. } => ToolReply::Candidates(Vec::deserialize(output).ok()?),
            ToolCall::Carry(_) => ToolReply::Carried(PageExecution::deserialize(output).ok()?),
            ToolCall::Chat { .. } => ToolReply::Chat(match output {
                Value::String(text) => ChatReply::recorded(text),
                other => ChatReply::deserialize(other).ok()?,
            }),
            ToolCall::Sql { .. } => ToolReply::Sql(SqlReply::deserialize(output).ok()?),
            ToolCall::SqlSubmit => ToolReply::SqlGrade(SqlGrade::deserialize(output).ok()?),
            ToolCall::Shop(_) => ToolReply::Shop(ShopReply::deserialize(output).ok()?),
            ToolCall::External { .. } => ToolReply::External(ExternalReply::deserialize(output).ok()?),
        })
    }

    fn page(&self, output: &Value, reading: Behaviour) -> Option<WikiPage> {
        match output {
            Value::String(html) => Some(page::read(html, reading)),
            other => WikiPage::deserialize(other).ok(),
        }
    }
}

fn texts(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::WikiRequest;
    use crate::families::web::{ActionName, Obstacle, WebResult};

    #[test]
    fn a_null_output_is_not_a_missing_one() {
        let call = ToolCall::Maths { query: "1".to_owned() };
        let reply = |text: &str| serde_json::from_str::<RecordedCall>(text).unwrap().reply(&call);
        let empty = ToolReply::Maths(MathsReply::Empty);
        assert_eq!(reply(r#"{"tool":"wolfram","input":"1","output":null}"#), Some(empty));
        assert_eq!(reply(r#"{"tool":"wolfram","input":"1"}"#), None);
    }

    #[test]
    fn calls_round_trip() {
        let attempt = PageAction {
            step: 2,
            page: 1,
            element: "7".to_owned(),
            action: ActionName::Select,
            text: Some("L".to_owned()),
        };
        let carried =
            PageExecution { action: WebResult::Done, truth: Some(WebResult::Refused(Obstacle::Hidden)) };
        let maths = || ToolCall::Maths { query: "1 + 2".to_owned() };
        let wiki = || ToolCall::Wiki { request: WikiRequest::of("Kyoto"), reading: Behaviour::Paper };
        let messages = vec![Message { role: "user".to_owned(), content: "Who?".to_owned() }];
        let chat = || ToolCall::Chat { role: Role::Qa, messages: messages.clone(), max_new_tokens: 100 };
        let passage = |index: usize| Passage { title: "T".to_owned(), text: index.to_string() };
        let passages: Vec<Passage> = (0..23).map(passage).collect();
        let external = || ToolCall::External {
            name: "weather".to_owned(),
            operation: "forecast".to_owned(),
            arguments: json!({ "city": "Kyoto", "days": 2 }),
        };
        let counted = ChatReply { prompt_tokens: Some(3), ..ChatReply::recorded("Ada") };
        for (call, reply) in [
            (maths(), ToolReply::Maths(MathsReply::One("3".to_owned()))),
            (maths(), ToolReply::Maths(MathsReply::Many(vec![Some("3".to_owned()), None]))),
            (maths(), ToolReply::Maths(MathsReply::Empty)),
            (wiki(), ToolReply::Wiki(WikiPage::of_text("One. Two."))),
            (wiki(), ToolReply::Wiki(WikiPage::Listed(vec!["a".to_owned()]))),
            (wiki(), ToolReply::Raised { message: "ConnectionError: refused".to_owned() }),
            (
                ToolCall::Search { query: "q".to_owned(), most: 3 },
                ToolReply::Search(vec!["https://x".to_owned()]),
            ),
            (
                ToolCall::Rank { question: "q".to_owned(), passages },
                ToolReply::Rank((0..23).map(f64::from).collect()),
            ),
            (chat(), ToolReply::Chat(ChatReply::recorded("Ada"))),
            (chat(), ToolReply::Chat(counted)),
            (ToolCall::Carry(attempt), ToolReply::Carried(carried)),
            (external(), ToolReply::External(ExternalReply::Text("12 °C".to_owned()))),
            (external(), ToolReply::External(ExternalReply::Refused("unknown city".to_owned()))),
        ] {
            let text = serde_json::to_string(&RecordedCall::of(&call, &reply)).unwrap();
            let read: RecordedCall = serde_json::from_str(&text).unwrap();
            let found =
                answer(&call, |key| Some(&read).filter(|recorded| recorded.key().as_ref() == Some(key)));
            assert_eq!(found, Ok(reply));
        }
    }

    #[test]
    fn a_ranking_is_found_as_a_whole_or_in_the_originals_tens() {
        let passage = |index: usize| Passage { title: "T".to_owned(), text: index.to_string() };
        let call = |count: usize| ToolCall::Rank {
            question: "q".to_owned(),
            passages: (0..count).map(passage).collect(),
        };
        let scores = |count: usize, base: f64| ToolReply::Rank((0..count).map(|_| base).collect());
        // The first ten passages are equal, but their scores differ.
        let recorded =
            [RecordedCall::of(&call(10), &scores(10, 1.0)), RecordedCall::of(&call(12), &scores(12, 2.0))];
        let find = |key: &CallKey| recorded.iter().find(|one| one.key().as_ref() == Some(key));
        assert_eq!(answer(&call(10), find), Ok(scores(10, 1.0)));
        assert_eq!(answer(&call(12), find), Ok(scores(12, 2.0)));
        let ToolCall::Rank { question, passages } = call(12) else { unreachable!() };
        let last = ToolCall::Rank { question, passages: passages[10..].to_vec() };
        let tens = [RecordedCall::of(&call(10), &scores(10, 1.0)), RecordedCall::of(&last, &scores(2, 3.0))];
        let found = answer(&call(12), |key| tens.iter().find(|one| one.key().as_ref() == Some(key)));
        let ToolReply::Rank(found) = found.unwrap() else { unreachable!() };
        assert_eq!((found.len(), found[9], found[10]), (12, 1.0, 3.0));
    }

    #[test]
    fn pages_of_the_original_are_read_from_their_html() {
        let html = "<p>Kyoto is a city in Japan that once was its capital, long ago.</p>";
        let recorded = RecordedCall {
            tool: "http_get".to_owned(),
            input: json!("https://en.wikipedia.org/w/index.php?search=Kyoto"),
            output: Some(json!(html)),
            raises: None,
        };
        let call = ToolCall::Wiki { request: WikiRequest::of("Kyoto"), reading: Behaviour::Paper };
        assert_eq!(recorded.key(), Some(CallKey::of(&call)));
        assert!(matches!(recorded.reply(&call), Some(ToolReply::Wiki(WikiPage::Article { .. }))));
        let other = ToolCall::Search { query: "Kyoto".to_owned(), most: 3 };
        let missing = answer(&other, |_| None).unwrap_err().to_string();
        assert_eq!(missing, "no recorded answer to search `Kyoto`");
    }
}
