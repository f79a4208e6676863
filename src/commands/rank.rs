//! `lumos tool rank`: passages scored by hand.

use std::io::{self, BufRead, Write};

use futures::{StreamExt, TryStreamExt, stream};
use lumos_tasks::{Passage, ToolCall, ToolReply};
use lumos_worker::tools::rank_backend;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::exit::{Exit, Failure, Outcome};

/// Questions that are scored together at most.
const TOGETHER: usize = 64;

/// One line of standard input.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    query: String,
    texts: Vec<String>,
    #[serde(default)]
    titles: Option<Vec<String>>,
    /// Anything a caller wants back beside the scores.
    #[serde(default)]
    id: Option<Value>,
}

pub(crate) async fn run(model: &str) -> Outcome {
    let tools = rank_backend(model).map_err(Failure::usage)?;
    let lines = io::stdin().lock().lines().enumerate().filter_map(|(index, line)| match line {
        Ok(line) if line.trim().is_empty() => None,
        Ok(line) => Some(call(&line, index + 1)),
        Err(error) => Some(Err(error.into())),
    });
    let lines = lines.collect::<Result<Vec<_>, Failure>>()?;
    let asked = lines.into_iter().map(|(call, id)| {
        let tools = &tools;
        async move { tools.call(&call).await.map(|reply| (reply, id)) }
    });
    let mut replies = stream::iter(asked).buffered(TOGETHER);
    let mut out = io::stdout().lock();
    while let Some((reply, id)) = replies.try_next().await? {
        let ToolReply::Rank(scores) = reply else {
            return Err(anyhow::anyhow!("the tool gave no scores").into());
        };
        let mut answer = json!({ "scores": scores });
        if let (Some(id), Some(object)) = (id, answer.as_object_mut()) {
            object.insert("id".to_owned(), id);
        }
        writeln!(out, "{answer}")?;
    }
    Ok(Exit::Complete)
}

fn call(line: &str, number: usize) -> Result<(ToolCall, Option<Value>), Failure> {
    let wrong = |message: String| {
        Failure::input(format!("standard input, line {number}: {message}"))
            .hint(r#"each line is one object: {"query": "…", "texts": ["…"], "titles": ["…"]}, titles may be left out"#)
    };
    let Line { query, texts, titles, id } =
        serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
    let titles = titles.unwrap_or_else(|| vec![String::new(); texts.len()]);
    if titles.len() != texts.len() {
        return Err(wrong(format!("{} titles for {} texts", titles.len(), texts.len())));
    }
    let passages = titles.into_iter().zip(texts).map(|(title, text)| Passage { title, text }).collect();
    Ok((ToolCall::Rank { question: query, passages }, id))
}
