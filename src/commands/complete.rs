//! `lumos complete`: generates text from prompts on the command line or standard input.

use std::io::{self, Write};

use futures::{StreamExt, TryStreamExt, stream};
use lumos_engine::{FinishReason, GenerateRequest, Generation, Prompt, SamplingParams, StopCondition};
use lumos_environments::lines::LineReader;
use lumos_models::{EngineSettings, InProcessModel};
use lumos_tasks::{Formulation, Role};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::CompleteArgs;
use crate::exit::{CommandResult, Exit, Failure};
use crate::settings;

/// A line of standard input.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    prompt: String,
    /// Returned unchanged with the result.
    #[serde(default)]
    id: Option<Value>,
}

pub(crate) async fn run(arguments: CompleteArgs) -> CommandResult {
    let prompts = prompts(&arguments)?;
    let model = load(&arguments).await?;
    let concurrency = usize::try_from(arguments.concurrency).unwrap_or(usize::MAX);
    let generate = |line: Line| {
        let (model, request) = (model.clone(), request(&arguments, &line.prompt));
        async move { model.generate(request).await.map(|generation| (line, generation)) }
    };
    let mut replies = stream::iter(prompts).map(generate).buffered(concurrency);
    let mut out = io::stdout().lock();
    while let Some((line, generation)) = replies.try_next().await.map_err(Failure::usage)? {
        if arguments.jsonl {
            writeln!(out, "{}", object(line, &generation))?;
        } else {
            writeln!(out, "{}", generation.text)?;
        }
    }
    Ok(Exit::Complete)
}

fn prompts(arguments: &CompleteArgs) -> Result<Vec<Line>, Failure> {
    match arguments.prompt.as_deref() {
        Some("-") => Ok(vec![Line { prompt: io::read_to_string(io::stdin())?, id: None }]),
        Some(prompt) => Ok(vec![Line { prompt: prompt.to_owned(), id: None }]),
        None => {
            let mut lines = Vec::new();
            for line in LineReader::new(io::stdin().lock()) {
                let (number, line) =
                    line.map_err(|error| Failure::input(format!("standard input, {error}")))?;
                lines.push(serde_json::from_str(&line).map_err(|error| {
                    Failure::input(format!("standard input, line {number}: {error}"))
                        .hint(r#"each line is one object: {"prompt": "…"}"#)
                })?);
            }
            Ok(lines)
        }
    }
}

async fn load(arguments: &CompleteArgs) -> Result<InProcessModel, Failure> {
    let role = match arguments.role.as_str() {
        "planner" => Role::Planner,
        "grounder" => Role::Grounder,
        other => {
            return Err(Failure::input(format!(
                "invalid value `{other}` for --role: expected planner or grounder"
            )));
        }
    };
    let formulation: Formulation = arguments.formulation.parse().map_err(Failure::usage)?;
    let source = settings::model_source(&arguments.model, role, formulation)?;
    let backend = arguments.backend.backend.unwrap_or_default();
    let device = settings::placement(&arguments.engine, backend)?.of(role);
    let settings = EngineSettings {
        backend,
        max_sequence_length: arguments.max_sequence_length.and_then(|length| usize::try_from(length).ok()),
        ..settings::engine(&arguments.engine, device)?
    };
    let loading = tokio::task::spawn_blocking(move || InProcessModel::load(source, &settings));
    loading.await?.map_err(Failure::usage)
}

fn request(arguments: &CompleteArgs, prompt: &str) -> GenerateRequest {
    GenerateRequest {
        input: Prompt::Text(prompt.to_owned()),
        stop: match arguments.stop.as_deref() {
            None => StopCondition::Newline,
            Some("") => StopCondition::Never,
            Some(text) => StopCondition::Texts(vec![text.to_owned()]),
        },
        max_new_tokens: arguments.max_new_tokens,
        sampling: SamplingParams {
            temperature: arguments.temperature,
            seed: arguments.seed,
            ..SamplingParams::GREEDY
        },
        ignore_eos: arguments.ignore_eos,
        first_logits: arguments.logits,
        forced: Vec::new(),
        deadline: None,
    }
}

fn object(line: Line, generation: &Generation) -> Value {
    let mut object = json!({
        "prompt_tokens": generation.prompt_tokens,
        "tokens": generation.tokens,
        "text": generation.text,
        "finish": match generation.finish {
            FinishReason::Stop => "stop",
            FinishReason::EndOfSequence => "end_of_sequence",
            FinishReason::Length => "length",
        },
        "usage": {
            "prompt_tokens": generation.usage.prompt_tokens,
            "completion_tokens": generation.usage.completion_tokens,
            "cached_tokens": generation.usage.cached_tokens,
        },
    });
    if !generation.first_logits.is_empty() {
        object["logits"] = json!(generation.first_logits);
    }
    if let Some(id) = line.id {
        object["id"] = id;
    }
    object
}
