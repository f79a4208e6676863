//! `lumos tool`: calls one tool with queries from the command line or standard input.

mod external;

use std::io::{self, Write};
use std::path::Path;

use futures::{StreamExt, TryStreamExt, stream};
use lumos_environments::lines::LineReader;
use lumos_tasks::families::qa::page::WikiPage;
use lumos_tasks::{Behaviour, ExternalReply, MathsReply, Passage, ToolCall, ToolReply, WikiRequest};
use lumos_tools::{TOOLS, ToolFault, ToolSets, Tools, rank_backend};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::ToolArgs;
use crate::exit::{CommandResult, Exit, Failure};
use crate::progress::write_line;

/// A line of standard input.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    query: String,
    /// Passages to rank.
    #[serde(default)]
    texts: Vec<String>,
    /// Titles of the passages, if any.
    #[serde(default)]
    titles: Option<Vec<String>>,
    /// Returned unchanged with the result.
    #[serde(default)]
    id: Option<Value>,
}

/// A tool that the command supports.
#[derive(Debug, Clone, Copy)]
enum ByHand {
    Maths,
    Rank,
    Wiki,
}

impl ByHand {
    fn named(name: &str) -> Result<Self, Failure> {
        match name {
            "maths" => Ok(Self::Maths),
            "rank" => Ok(Self::Rank),
            "wiki" => Ok(Self::Wiki),
            _ => Err(Failure::input(format!("unknown tool `{name}`: expected maths, rank or wiki"))
                .hint(format!("for a tool of your own, add --backend, for example `lumos tool {name} --backend 'exec:…'`"))),
        }
    }

    /// Returns the default backend.
    fn usual(self) -> &'static str {
        match self {
            Self::Maths => "native",
            Self::Rank => "bm25",
            Self::Wiki => "live",
        }
    }

    /// Number of lines processed together. A reader model scores the passages of several questions at once;
    /// other tools process each line at once.
    fn together(self) -> usize {
        match self {
            Self::Rank => 64,
            Self::Maths | Self::Wiki => 1,
        }
    }

    /// Parses a line of standard input.
    fn read(self, line: &str, number: u64) -> Result<(Line, ToolCall), Failure> {
        let bad = |error: String| {
            Failure::input(format!("standard input, line {number}: {error}")).hint(match self {
                Self::Rank => r#"each line is one object: {"query": "…", "texts": ["…"], "titles": ["…"]}"#,
                _ => r#"each line is one object: {"query": "2 + 3"}"#,
            })
        };
        let line: Line = serde_json::from_str(line).map_err(|error| bad(error.to_string()))?;
        let call = self.call(&line).map_err(bad)?;
        Ok((line, call))
    }

    /// Returns the tool call for a line.
    fn call(self, line: &Line) -> Result<ToolCall, String> {
        let query = line.query.clone();
        match self {
            Self::Rank => {
                let Line { texts, titles, .. } = line;
                if texts.is_empty() {
                    return Err("`texts` is empty".to_owned());
                }
                let titles = titles.as_deref();
                if let Some(titles) = titles.filter(|titles| titles.len() != texts.len()) {
                    return Err(format!(
                        "{} titles for {} texts: expected one title per text",
                        titles.len(),
                        texts.len()
                    ));
                }
                let title =
                    |index: usize| titles.and_then(|titles| titles.get(index)).cloned().unwrap_or_default();
                let texts = texts.iter().cloned().enumerate();
                let passages = texts.map(|(index, text)| Passage { title: title(index), text }).collect();
                Ok(ToolCall::Rank { question: query, passages })
            }
            _ if !line.texts.is_empty() || line.titles.is_some() => {
                Err("`texts` and `titles` are only valid for rank".to_owned())
            }
            Self::Maths => Ok(ToolCall::Maths { query }),
            Self::Wiki => {
                Ok(ToolCall::Wiki { request: WikiRequest::of(&query), reading: Behaviour::Corrected })
            }
        }
    }
}

pub(crate) async fn run(arguments: &ToolArgs) -> CommandResult {
    if let Some(backend) = arguments.backend.as_ref().filter(|_| !TOOLS.contains(&arguments.name.as_str())) {
        let sets = ToolSets::default();
        let planned = sets.identify(&arguments.name, backend).map_err(Failure::usage)?;
        return external::run(arguments, sets.backend(&planned).await.map_err(Failure::usage)?.as_ref())
            .await;
    }
    let tool = ByHand::named(&arguments.name)?;
    if arguments.operation.is_some() {
        return Err(Failure::input(format!(
            "--operation is for tools that are not built in, not for {}",
            arguments.name
        )));
    }
    // Passages for rank are always read from standard input.
    if arguments.argument.is_none() && !arguments.jsonl && !matches!(tool, ByHand::Rank) {
        let name = &arguments.name;
        let hint = format!("pass a query, or pass queries on standard input: `lumos tool {name} --jsonl`");
        return Err(Failure::input(format!("missing query for `{name}`")).hint(hint));
    }
    let backend = arguments.model.as_ref().or(arguments.backend.as_ref());
    let backend = backend.map_or_else(|| tool.usual(), String::as_str);
    // A ranker's model may be given as a folder.
    let folder = matches!(tool, ByHand::Rank) && Path::new(backend).is_dir();
    let backend = if folder { &format!("{}:{backend}", rank_backend(Path::new(backend))) } else { backend };
    let sets = ToolSets::default();
    let planned = sets.identify(&arguments.name, backend).map_err(Failure::usage)?;
    let tools = sets.backend(&planned).await.map_err(Failure::usage)?;
    match &arguments.argument {
        Some(_) if matches!(tool, ByHand::Rank) => {
            Err(Failure::input("rank reads passages from standard input")
                .hint(r#"echo '{"query": "…", "texts": ["…"]}' | lumos tool rank --jsonl"#))
        }
        Some(query) => one(tool, tools.as_ref(), query).await,
        None => many(tool, tools.as_ref()).await,
    }
}

/// Runs one query and prints its result as text.
async fn one(tool: ByHand, tools: &dyn Tools, query: &str) -> CommandResult {
    let line = Line { query: query.to_owned(), ..Line::default() };
    let call = tool.call(&line).map_err(Failure::input)?;
    match result(tools.call(&call).await?) {
        Ok((_, result)) => {
            print_plain(&result);
            Ok(Exit::Complete)
        }
        Err(message) => {
            write_line(format_args!("no result: {message}"));
            Ok(Exit::CheckFailed)
        }
    }
}

/// Prints one result per line, in order. An invalid query yields an error in its line; the others are
/// processed.
async fn many(tool: ByHand, tools: &dyn Tools) -> CommandResult {
    let lines = LineReader::new(io::stdin().lock()).map(|line| {
        let (number, line) = line.map_err(|error| Failure::input(format!("standard input, {error}")))?;
        tool.read(&line, number)
    });
    let asked = stream::iter(lines).map(|read| async {
        let (line, call) = read?;
        Ok::<_, Failure>((line, tools.call(&call).await))
    });
    let mut replies = asked.buffered(tool.together());
    let mut out = io::stdout().lock();
    let mut failed: Option<ToolFault> = None;
    while let Some((line, reply)) = replies.try_next().await? {
        let mut answer = json!({});
        if !matches!(tool, ByHand::Rank) {
            answer["query"] = json!(line.query);
        }
        match reply {
            Ok(reply) => match result(reply) {
                Ok((field, result)) => answer[field] = result,
                Err(message) => answer["error"] = json!(message),
            },
            Err(fault) => {
                answer["error"] = json!(fault.to_string());
                failed.get_or_insert(fault);
            }
        }
        if let Some(id) = line.id {
            answer["id"] = id;
        }
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    failed.map_or(Ok(Exit::Complete), |fault| Err(Failure::from(fault)))
}

/// Returns a result and its field name, or an error.
fn result(reply: ToolReply) -> Result<(&'static str, Value), String> {
    Ok(match reply {
        ToolReply::Maths(MathsReply::One(text)) => ("result", Value::String(text)),
        ToolReply::Maths(MathsReply::Many(texts)) => ("result", json!(texts)),
        ToolReply::Maths(MathsReply::Empty) => ("result", Value::Null),
        ToolReply::Maths(MathsReply::NoResult { message })
        | ToolReply::Wiki(WikiPage::Unreadable { message })
        | ToolReply::Raised { message }
        | ToolReply::External(ExternalReply::Refused(message)) => return Err(message),
        ToolReply::External(ExternalReply::Text(text)) => ("result", Value::String(text)),
        ToolReply::Wiki(page) => ("result", json!(page)),
        ToolReply::Search(addresses) => ("result", json!(addresses)),
        ToolReply::Rank(scores) => ("scores", json!(scores)),
        ToolReply::Chat(_)
        | ToolReply::Candidates(_)
        | ToolReply::Carried(_)
        | ToolReply::Sql(_)
        | ToolReply::SqlGrade(_)
        | ToolReply::Shop(_) => {
            return Err("the tool did not return a result".to_owned());
        }
    })
}

/// Prints a result as text, one entry per line. For a page, prints its table, or the titles it lists, first.
fn print_plain(result: &Value) {
    match result {
        Value::Array(texts) => {
            texts.iter().for_each(|text| println!("{}", text.as_str().unwrap_or("null")));
        }
        Value::Object(page) => page.values().for_each(print_plain),
        text => println!("{}", text.as_str().unwrap_or("null")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    #[tokio::test]
    async fn queries_are_read_from_standard_input_only_on_request() {
        for more in ["--backend native", "--model native"] {
            let words = ["lumos", "tool", "maths"].into_iter().chain(more.split(' '));
            let Command::Tool(arguments) = Cli::try_parse_from(words).unwrap().command else { panic!() };
            let failure = run(&arguments).await.unwrap_err();
            let message = failure.error.to_string();
            assert_eq!((failure.exit, message.as_str()), (Exit::Usage, "missing query for `maths`"));
            assert!(failure.hint.is_some_and(|hint| hint.ends_with("`lumos tool maths --jsonl`")));
        }
    }
}
