//! Calls of tools that are not part of the program: `lumos tool weather --backend exec:… --operation forecast '{…}'`.

use std::io::{self, Write};

use lumos_environments::lines::LineReader;
use lumos_tasks::ToolCall;
use lumos_tools::{ToolFault, Tools};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{print_plain, result};
use crate::cli::ToolArgs;
use crate::exit::{CommandResult, Exit, Failure};
use crate::interrupt::Signals;
use crate::progress::write_line;

/// A line of standard input.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    operation: String,
    #[serde(default = "no_arguments")]
    arguments: Value,
    /// Returned unchanged with the result.
    #[serde(default)]
    id: Option<Value>,
}

fn no_arguments() -> Value {
    json!({})
}

/// Makes the call of the command line, those of standard input, or lists the tool's operations. A signal stops it.
pub(super) async fn run(arguments: &ToolArgs, tools: &dyn Tools) -> CommandResult {
    let mut signals = Signals::listen();
    let calls = async {
        match (&arguments.argument, arguments.jsonl) {
            (_, true) => many(&arguments.name, tools).await,
            (None, false) if arguments.operation.is_none() => list(tools).await,
            (text, false) => one(arguments, text.as_deref().unwrap_or("{}"), tools).await,
        }
    };
    // Programs have their own process groups, so a terminal does not interrupt them. A call that is dropped kills its
    // program.
    let ran = tokio::select! {
        ran = calls => ran,
        () = signals.signalled() => Ok(Exit::Interrupted),
    };
    tools.shut_down().await;
    ran
}

async fn one(arguments: &ToolArgs, text: &str, tools: &dyn Tools) -> CommandResult {
    let bad = |why: String| {
        Failure::input(format!("invalid arguments `{text}`: {why}"))
            .hint(r#"pass a JSON object, for example --operation forecast '{"city": "Kyoto"}'"#)
    };
    let Some(operation) = arguments.operation.clone() else {
        return Err(Failure::input("missing --operation: the operation to call").hint(
            r#"for example --operation forecast '{"city": "Kyoto"}'; without arguments, an MCP server's tools are listed"#,
        ));
    };
    let values: Value = serde_json::from_str(text).map_err(|error| bad(error.to_string()))?;
    if !values.is_object() {
        return Err(bad("expected a JSON object".to_owned()));
    }
    match result(tools.call(&call(&arguments.name, operation, values)).await?) {
        Ok((_, result)) => {
            print_plain(&result);
            Ok(Exit::Complete)
        }
        Err(message) => {
            write_line(format_args!("refused: {message}"));
            Ok(Exit::CheckFailed)
        }
    }
}

/// Makes one call per line, in order. Prints `result`, `refused` or `error`.
async fn many(name: &str, tools: &dyn Tools) -> CommandResult {
    let (sender, mut lines) = mpsc::channel(1);
    // On another thread, so that a signal also stops the wait for a line.
    tokio::task::spawn_blocking(move || {
        for line in LineReader::new(io::stdin().lock()) {
            if sender.blocking_send(line).is_err() {
                break;
            }
        }
    });
    let mut out = io::stdout().lock();
    let mut failed: Option<ToolFault> = None;
    while let Some(line) = lines.recv().await {
        let (number, line) = line.map_err(|error| Failure::input(format!("standard input, {error}")))?;
        let Line { operation, arguments, id } = serde_json::from_str(&line).map_err(|error| {
            Failure::input(format!("standard input, line {number}: {error}"))
                .hint(r#"each line is one object: {"operation": "forecast", "arguments": {"city": "Kyoto"}}"#)
        })?;
        let mut answer = json!({ "operation": operation });
        match tools.call(&call(name, operation, arguments)).await {
            Ok(reply) => match result(reply) {
                Ok((field, result)) => answer[field] = result,
                Err(message) => answer["refused"] = json!(message),
            },
            Err(fault) => {
                answer["error"] = json!(fault.to_string());
                failed.get_or_insert(fault);
            }
        }
        if let Some(id) = id {
            answer["id"] = id;
        }
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    failed.map_or(Ok(Exit::Complete), |fault| Err(Failure::from(fault)))
}

/// Lists the tool's operations with their arguments; required ones are marked with `*`.
async fn list(tools: &dyn Tools) -> CommandResult {
    let operations = tools.operations().await?;
    if operations.is_empty() {
        println!("the tool does not list its operations; call one with --operation NAME '{{…}}'");
    }
    for operation in operations {
        println!("{}", plain(&operation.name));
        for line in operation.description.lines().filter(|line| !line.trim().is_empty()) {
            println!("  {}", plain(line.trim()));
        }
        let required = operation.arguments["required"].as_array().cloned().unwrap_or_default();
        for (name, schema) in operation.arguments["properties"].as_object().into_iter().flatten() {
            let mark = if required.iter().any(|one| one == name.as_str()) { "*" } else { "" };
            let kind = schema["type"].as_str().unwrap_or("value");
            let about = schema["description"].as_str().unwrap_or_default();
            println!("    {}", plain(format!("{name}{mark}  {kind}  {about}").trim_end()));
        }
    }
    Ok(Exit::Complete)
}

fn call(name: &str, operation: String, arguments: Value) -> ToolCall {
    ToolCall::External { name: name.to_owned(), operation, arguments }
}

/// A tool's text without control characters.
fn plain(text: &str) -> String {
    text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect()
}
