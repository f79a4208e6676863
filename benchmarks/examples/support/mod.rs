//! Tools over a benchmark's sample corpus, without models and network, for recording cases and for tests.

use std::collections::BTreeMap;

use lumos_benchmarks::Benchmark;
use lumos_environments::maths;
use lumos_tasks::families::qa::page::WikiPage;
use lumos_tasks::{ChatReply, MathsReply, ToolCall, ToolReply, WikiRequest};
use serde::Deserialize;

/// Prefix of the addresses of pages.
const SITE: &str = "https://en.wikipedia.org/wiki/";

/// A page of the corpus.
#[derive(Deserialize)]
struct Entry {
    title: String,
    text: String,
}

/// Tools over a sample corpus.
pub(crate) struct World {
    pages: BTreeMap<String, String>,
}

impl World {
    /// Creates the tools for a benchmark's sample corpus, which may be empty.
    pub(crate) fn of(benchmark: &dyn Benchmark) -> Self {
        let corpus = benchmark.sample_corpus().unwrap_or_default();
        let lines = corpus.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let entries = lines.map(|line| serde_json::from_slice::<Entry>(line).expect("invalid page"));
        Self { pages: entries.map(|entry| (entry.title, entry.text)).collect() }
    }

    /// Returns the reply to a tool call. `chat` returns the replies of a chat model.
    pub(crate) fn answer(&self, call: &ToolCall, chat: impl FnOnce(&str) -> String) -> ToolReply {
        match call {
            ToolCall::Maths { query } => ToolReply::Maths(mathematics(query)),
            ToolCall::Wiki { request, .. } => ToolReply::Wiki(self.page(request)),
            ToolCall::Search { query, most } => {
                let most = usize::try_from(*most).unwrap_or(usize::MAX);
                let titles = self.like(query).into_iter().take(most);
                ToolReply::Search(titles.map(|title| format!("{SITE}{}", title.replace(' ', "_"))).collect())
            }
            ToolCall::Rank { question, passages } => {
                let scores = passages.iter().enumerate().map(|(index, passage)| {
                    // Distinct scores, so that the recorded order does not depend on ties.
                    shared(question, &passage.text) as f64 - index as f64 / 1024.0
                });
                ToolReply::Rank(scores.collect())
            }
            ToolCall::Chat { messages, .. } => {
                let asked = messages.last().map_or("", |message| message.content.as_str());
                ToolReply::Chat(ChatReply::recorded(chat(asked)))
            }
            ToolCall::Candidates { .. } | ToolCall::Carry(_) => {
                panic!("unsupported call: no pages with candidates")
            }
            ToolCall::Sql { .. } | ToolCall::SqlSubmit => {
                ToolReply::Raised { message: "there is no database here".to_owned() }
            }
            ToolCall::Shop(_) | ToolCall::External { .. } => unreachable!("unsupported call: no such tool"),
        }
    }

    fn page(&self, request: &WikiRequest) -> WikiPage {
        let title = match request {
            WikiRequest::Find(title) => title.clone(),
            WikiRequest::Path(path) => path.trim_start_matches("/wiki/").replace('_', " "),
            WikiRequest::Address(address) => address.trim_start_matches(SITE).replace('_', " "),
        };
        match self.pages.get(&title) {
            Some(text) => WikiPage::of_text(text),
            None => WikiPage::Listed(self.like(&title).into_iter().take(5).map(str::to_owned).collect()),
        }
    }

    /// Returns titles of pages that share words with a text, sorted by their number in descending order.
    fn like(&self, text: &str) -> Vec<&str> {
        let mut found: Vec<_> =
            self.pages.keys().map(|title| (shared(text, title), title.as_str())).collect();
        found.retain(|(words, _)| *words > 0);
        found.sort_by(|left, right| right.0.cmp(&left.0).then(left.1.cmp(right.1)));
        found.into_iter().map(|(_, title)| title).collect()
    }
}

/// Returns the reply of the maths service.
pub(crate) fn mathematics(query: &str) -> MathsReply {
    match maths::answer(query) {
        Ok(maths::MathsAnswer::One(text)) => MathsReply::One(text),
        Ok(maths::MathsAnswer::Many(texts)) => MathsReply::Many(texts.into_iter().map(Some).collect()),
        Err(error) => MathsReply::NoResult { message: error.to_string() },
    }
}

/// Counts the words of more than three letters that two texts share.
fn shared(left: &str, right: &str) -> usize {
    let words = |text: &str| -> Vec<String> {
        let words = text.split(|character: char| !character.is_alphanumeric());
        words.filter(|word| word.len() > 3).map(str::to_lowercase).collect()
    };
    let right = words(right);
    words(left).iter().filter(|word| right.contains(word)).count()
}
