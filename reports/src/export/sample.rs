//! A line of a samples file.
//!
//! Values that differ in structure between units are JSON strings, because `datasets` and pyarrow infer the type of a
//! field from the first lines and fail when it changes.

use lumos_tasks::{ContentHash, Ending, Step};
use serde_json::{Map, Value, json};

use crate::display::{prediction_text, task_text};
use crate::report::json::generation_kwargs;

use super::source::RecordedUnit;

/// Returns a recorded unit with lm-eval's fields followed by lumos's own. `key` is the name of its configuration.
///
/// Each metric's value under the main scoring is stored under the metric's name; a faulted unit has no metrics.
pub(super) fn sample(unit: &RecordedUnit<'_>, key: &str) -> Value {
    let (item, outcome) = (unit.item, unit.outcome());
    let configuration = &unit.planned.configuration;
    let prediction = prediction_text(outcome).unwrap_or_default();
    let (task, target) = (task_text(&item.task), item.target.text());
    let error = match &outcome.ending {
        Ending::Answered => String::new(),
        Ending::GaveUp(reason) => {
            text(&json!({"stage": reason.stage, "turn": reason.turn, "detail": reason.detail}))
        }
        Ending::Faulted(fault) => text(&json!({"kind": fault.kind, "message": fault.message})),
    };
    let first_prompt = outcome.steps.iter().find_map(|step| match step {
        Step::Generate { prompt, .. } => Some(prompt.as_str()),
        Step::Call { .. } | Step::Action { .. } => None,
    });
    let metrics: Vec<&str> = match unit.is_fault() {
        true => Vec::new(),
        false => unit.metrics.iter().map(|metric| metric.name).collect(),
    };
    let hash = |text: &str| json!(ContentHash::of_bytes(text.as_bytes()));
    let mut line = Map::new();
    let mut put = |name: &str, value: Value| {
        line.insert(name.to_owned(), value);
    };
    put("doc_id", json!(item.index));
    put("doc", json!({"question": task, "record": text(&item.record)}));
    put("target", json!(target));
    // One entry per item: readers take a second one for the choices of a multiple-choice question.
    let kwargs = generation_kwargs(&configuration.generation);
    put("arguments", json!({"gen_args_0": {"arg_0": task, "arg_1": kwargs}}));
    put("resps", json!([[prediction]]));
    put("filtered_resps", json!([prediction]));
    put("filter", json!("none"));
    put("metrics", json!(metrics));
    put("doc_hash", json!(item.id.content));
    put("prompt_hash", hash(first_prompt.unwrap_or_default()));
    put("target_hash", hash(target));
    for metric in &metrics {
        put(metric, json!(unit.main_value(metric)));
    }
    put("task", json!(key));
    put("benchmark", json!(configuration.benchmark));
    put("formulation", json!(configuration.formulation));
    put("behaviour", json!(configuration.behaviour));
    put("seed", json!(configuration.seed));
    put("configuration", json!(unit.planned.identity));
    put("unit", json!(unit.unit));
    put("item", json!(item.name.as_deref().unwrap_or_default()));
    put("group", json!(item.group.as_deref().unwrap_or_default()));
    put("status", json!(outcome.ending.status()));
    put("error", json!(error));
    let scores: Map<_, _> =
        unit.scores.iter().map(|(scoring, score)| (scoring.name().to_owned(), json!(score))).collect();
    put("scores", json!(text(&Value::Object(scores))));
    let judge = unit.verdict.as_ref().map(|verdict| {
        let judgement = |(scoring, _): &(lumos_benchmarks::Scoring, _)| {
            (scoring.name().to_owned(), json!(verdict.judgement(*scoring)))
        };
        let judgements: Map<_, _> = unit.scores.iter().map(judgement).collect();
        text(&json!({"verdict": verdict, "judgement": judgements}))
    });
    put("judge", json!(judge.unwrap_or_default()));
    let evidence = outcome.evidence.as_ref().map(|evidence| text(&json!(evidence)));
    put("evidence", json!(evidence.unwrap_or_default()));
    put("trajectory", json!(text(&json!(outcome.steps))));
    put("telemetry", json!(text(&json!(unit.record.telemetry))));
    Value::Object(line)
}

/// Returns a value as JSON text.
fn text(value: &Value) -> String {
    value.to_string()
}
