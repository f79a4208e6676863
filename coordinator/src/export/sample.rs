//! A line of a samples file.

use lumos_benchmarks::Scoring;
use lumos_tasks::{ContentHash, Ending, Step};
use serde_json::{Map, Value, json};

use crate::display::{prediction_text, status};
use crate::judge::Verdicts;
use crate::unit_view::{ScoreError, UnitView, benchmark};

/// Returns a recorded unit with lm-eval's fields followed by lumos's own, or `None` for an outstanding unit.
///
/// Each metric's value under the main scoring is stored under the metric's name. A faulted unit has no metric
/// values.
///
/// # Errors
/// If the unit's benchmark is unknown.
pub(super) fn sample(
    view: &UnitView<'_>,
    scorings: &[Scoring],
    verdicts: Option<&Verdicts>,
) -> Result<Option<Value>, ScoreError> {
    let Some(record) = &view.record else { return Ok(None) };
    let item = view.item;
    let configuration = &view.configuration.configuration;
    let benchmark = benchmark(&configuration.benchmark)?;
    let outcome = &record.outcome;
    let (mut arguments, mut replies) = (Map::new(), Vec::new());
    let mut first_prompt = None;
    for step in &outcome.steps {
        if let Step::Generate { prompt, reply, .. } = step {
            let number = arguments.len();
            arguments.insert(
                format!("gen_args_{number}"),
                json!({"arg_0": prompt, "arg_1": configuration.generation}),
            );
            replies.push(json!([reply]));
            first_prompt.get_or_insert(prompt.as_str());
        }
    }
    let prediction = prediction_text(outcome);
    let target = item.target.text();
    let error = match &outcome.ending {
        Ending::Answered => Value::Null,
        Ending::GaveUp(reason) => {
            json!({"stage": reason.stage, "turn": reason.turn, "detail": reason.detail})
        }
        Ending::Faulted(fault) => json!({"kind": fault.kind, "message": fault.message}),
    };
    let measured = benchmark.metrics().iter().filter(|metric| benchmark.is_measured(metric, configuration));
    let metrics: Vec<&str> = measured.map(|metric| metric.name).collect();
    let mut line = Map::new();
    let mut put = |name: &str, value: Value| {
        line.insert(name.to_owned(), value);
    };
    put("doc_id", json!(item.index));
    put("doc", item.record.clone());
    put("target", json!(target));
    put("arguments", Value::Object(arguments));
    put("resps", Value::Array(replies));
    put("filtered_resps", json!([prediction]));
    put("filter", json!("none"));
    put("metrics", json!(metrics));
    put("doc_hash", json!(item.id.content));
    put("prompt_hash", json!(ContentHash::of_bytes(first_prompt.unwrap_or_default().as_bytes())));
    put("target_hash", json!(ContentHash::of_bytes(target.as_bytes())));
    let is_judged = benchmark.metrics().iter().any(|metric| metric.judged);
    let verdict = verdicts
        .filter(|_| is_judged && view.settled().is_some())
        .and_then(|verdicts| verdicts.of(&view.unit, item, outcome));
    let mut scores = Map::new();
    for (index, &scoring) in scorings.iter().enumerate() {
        let score = view.settled().and_then(|_| benchmark.score(&item.target, outcome, scoring));
        let score = match &verdict {
            Some(verdict) => score.map(|score| verdict.add_to(score, scoring)),
            None => score,
        };
        if index == 0 {
            for metric in &metrics {
                let share = score.as_ref().and_then(|score| score.share(metric));
                put(metric, json!(share.map(|share| share.numerator / share.denominator)));
            }
        }
        scores.insert(scoring.name().to_owned(), json!(score));
    }
    put("task", json!(configuration.benchmark));
    put("formulation", json!(configuration.formulation));
    put("behaviour", json!(configuration.behaviour));
    put("seed", json!(configuration.seed));
    put("configuration", json!(view.configuration.identity));
    put("unit", json!(view.unit));
    put("item", json!(item.name));
    put("group", json!(item.group));
    put("status", json!(status(&outcome.ending)));
    put("error", error);
    put("scores", Value::Object(scores));
    if let Some(verdict) = &verdict {
        let judgements: Map<_, _> = scorings
            .iter()
            .map(|&scoring| (scoring.name().to_owned(), json!(verdict.judgement(scoring))))
            .collect();
        put("judge", json!({ "verdict": verdict, "judgement": judgements }));
    }
    put("evidence", json!(outcome.evidence));
    put("trajectory", json!(outcome.steps));
    put("telemetry", json!(record.telemetry));
    Ok(Some(Value::Object(line)))
}
