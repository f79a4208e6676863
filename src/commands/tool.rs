//! `lumos tool`: one tool by hand.

use std::io::{self, BufRead, Write};

use lumos_tasks::{MathsReply, ToolCall, ToolReply};
use lumos_worker::tools::{ToolFault, Tools, maths_backend};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::ToolArgs;
use crate::exit::{Exit, Failure, Outcome};

/// One line of standard input.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    query: String,
    /// Anything a caller wants back beside the result.
    #[serde(default)]
    id: Option<Value>,
}

pub(crate) async fn run(arguments: &ToolArgs) -> Outcome {
    if arguments.name == "rank" {
        let model = arguments.model.as_deref().ok_or_else(|| {
            Failure::input("which model ranks?").hint("name one: lumos tool rank --model dpr:<folder>")
        })?;
        return super::rank::run(model).await;
    }
    if arguments.name != "maths" {
        let name = &arguments.name;
        return Err(Failure::input(format!("there is no tool `{name}`; known are maths and rank")));
    }
    let tools = maths_backend(&arguments.backend).map_err(Failure::usage)?;
    if let Some(query) = &arguments.argument {
        return match ask(tools.as_ref(), query).await? {
            Ok(Value::Array(results)) => {
                for result in results {
                    println!("{}", result.as_str().unwrap_or("null"));
                }
                Ok(Exit::Complete)
            }
            Ok(result) => {
                println!("{}", result.as_str().unwrap_or("null"));
                Ok(Exit::Complete)
            }
            Err(message) => {
                eprintln!("no result: {message}");
                Ok(Exit::CheckFailed)
            }
        };
    }
    let mut out = io::stdout().lock();
    for (index, line) in io::stdin().lock().lines().enumerate() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let Line { query, id } = serde_json::from_str(&line).map_err(|error| {
            Failure::input(format!("standard input, line {}: {error}", index + 1))
                .hint(r#"each line is one object: {"query": "2 + 3"}"#)
        })?;
        let mut answer = match ask(tools.as_ref(), &query).await? {
            Ok(result) => json!({ "query": query, "result": result }),
            Err(message) => json!({ "query": query, "error": message }),
        };
        if let (Some(id), Some(object)) = (id, answer.as_object_mut()) {
            object.insert("id".to_owned(), id);
        }
        writeln!(out, "{answer}")?;
    }
    Ok(Exit::Complete)
}

/// A result, or why there is none. A tool that cannot be asked at all is a fault.
async fn ask(tools: &dyn Tools, query: &str) -> Result<Result<Value, String>, ToolFault> {
    let call = ToolCall::Maths { query: query.to_owned() };
    Ok(match tools.call(&call).await? {
        ToolReply::Maths(MathsReply::One(text)) => Ok(Value::String(text)),
        ToolReply::Maths(MathsReply::Many(texts)) => Ok(json!(texts)),
        ToolReply::Maths(MathsReply::Empty) => Ok(Value::Null),
        ToolReply::Maths(MathsReply::NoResult { message }) => Err(message),
        _ => Err("the tool gave no result of a query".to_owned()),
    })
}
