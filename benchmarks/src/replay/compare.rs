//! Comparison of a recorded case with its replay.
//!
//! [`case`] drives the episode (`drive`) and compares prompts, tool calls, evidence and scores with the
//! recording. The error is the first difference.

use lumos_tasks::outcome::Value as Prediction;
use lumos_tasks::recorded::Case;
use lumos_tasks::{AnswerForm, Behaviour, Role, Target, Task, ToolCall, ToolReply};
use serde::Serialize;
use serde_json::Value;

use super::drive::{self, Driven, drive};
use super::web;
use crate::benchmark::Benchmark;
use crate::judge::{self, Judgement};
use crate::loading::single;
use crate::metrics::{F1, says_yes};
use crate::score::Scoring;

/// Compares a case with the result of the current code. The error describes the first difference.
pub(super) fn case(case: &Case, benchmark: &dyn Benchmark) -> Result<(), String> {
    let behaviour = drive::behaviour(case);
    if behaviour == Behaviour::Paper
        && let Some(exception) = benchmark.refused_by_original(&case.item)
    {
        return refused(exception, case);
    }
    let read = |record: &Value| match behaviour {
        Behaviour::Paper => benchmark.read_as_original(record),
        Behaviour::Corrected => benchmark.read(record),
    };
    let item = single(&case.item, read).map_err(|error| format!("failed to read the item: {error}"))?;
    let (task, target) = (item.task.clone(), item.target.clone());
    let driven = drive(case, item, benchmark)?;
    if let Target::Web { steps, .. } = &target {
        // The episode is the same for every formulation name.
        if !benchmark.formulations().contains(&case.formulation) {
            return Err(format!("{} has no formulation {:?}", benchmark.name(), case.formulation));
        }
        return web::compare(case, &driven, steps);
    }
    let judged = judged(case, &driven, &task, &target, benchmark)?;
    if let Some(raised) = &case.expected.raises {
        if case.effective_turns == Some(0) {
            return Err(format!("expected the record to be rejected with {raised}, but it was accepted"));
        }
        exception(raised, &driven, &judged)?;
    }
    turns(case, &driven, &judged)?;
    record(case, &driven, &target)?;
    scores(case, &driven, &judged, &task, &target, benchmark)
}

/// Result of the judge's recorded call.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Judged {
    NotAsked,
    /// The call raised this exception, which ends the original's run. Here the judge runs in a separate pass.
    Raised(String),
    Said(Judgement),
}

/// Compares the judge's prompt with the original's, if the recording continues with that call.
fn judged(
    case: &Case,
    driven: &Driven,
    task: &Task,
    target: &Target,
    benchmark: &dyn Benchmark,
) -> Result<Judged, String> {
    let mut calls = driven.calls();
    let is_judged = benchmark.metrics().iter().any(|metric| metric.judged);
    if !is_judged || calls == case.tools.len() {
        return Ok(Judged::NotAsked);
    }
    let Some(messages) = judge::question_about(task, target, &driven.outcome) else {
        return Ok(Judged::NotAsked);
    };
    let max_new_tokens = judge::MAX_VERDICT_TOKENS;
    let call = ToolCall::Chat { role: Role::Judge, messages, max_new_tokens };
    match drive::answered(case, &mut calls, &call)? {
        ToolReply::Chat(reply) => Ok(Judged::Said(Judgement::read(&reply.text, Scoring::Paper))),
        ToolReply::Raised { message } => Ok(Judged::Raised(message)),
        _ => Err("invalid recorded reply of the judge".to_owned()),
    }
}

/// Compares the exception that ended the original's run with the one that the replay predicts. If the replay
/// predicts none, the item must end without a prediction.
fn exception(raised: &str, driven: &Driven, judged: &Judged) -> Result<(), String> {
    let evidence = driven.evidence();
    let known = match judged {
        Judged::Raised(message) => Some(name(message)),
        Judged::NotAsked | Judged::Said(_) => evidence.and_then(|evidence| evidence.raised.as_deref()),
    };
    let prediction = evidence.and_then(|evidence| evidence.prediction.as_ref());
    match (known, prediction) {
        (Some(known), _) if known == name(raised) => Ok(()),
        (Some(known), _) => Err(format!("expected exception {raised}, got {known}")),
        (None, None) => Ok(()),
        (None, Some(prediction)) => {
            Err(format!("expected exception {raised} and no prediction, got {}", prediction.to_python_text()))
        }
    }
}

/// A record that the original rejects must be recorded as rejected with the same exception, before any model
/// call.
fn refused(exception: &str, case: &Case) -> Result<(), String> {
    let expected = &case.expected;
    match &expected.raises {
        Some(raised) if name(raised) == exception => {}
        Some(raised) => return Err(format!("the record was rejected with {exception}, expected {raised}")),
        None => return Err(format!("the record was rejected with {exception}, expected an outcome")),
    }
    // The original's recordings count one turn of a single model although it was not called.
    let turns = u32::from(!case.formulation.has_modules());
    match case.effective_turns {
        Some(recorded) if recorded > turns => {
            Err(format!("the record was rejected before the first turn, expected {recorded} turns"))
        }
        _ if expected.pred.is_some() || expected.correct.is_some() || !expected.answer.is_null() => {
            Err("the record was rejected, expected a prediction and a gold answer".to_owned())
        }
        _ => Ok(()),
    }
}

/// Returns the name of an exception written `Name: message`.
pub(super) fn name(raised: &str) -> &str {
    raised.split(':').next().unwrap_or_default()
}

/// Checks that the replay used the whole recording, as far as it can affect the outcome.
fn turns(case: &Case, driven: &Driven, judged: &Judged) -> Result<(), String> {
    let role = if case.formulation.has_modules() { Role::Planner } else { Role::Answerer };
    let asked = driven.asked(role);
    let prompts = case.prompts.of(role).len();
    let effective = case.effective_turns.map_or(prompts, |turns| turns as usize);
    // Before an exception after its loop the original may have made further calls; all of its turns are
    // recorded.
    let went_on = case.expected.raises.is_some() && asked < effective && effective == prompts;
    if asked != effective && !went_on {
        return Err(format!("the episode ended after {asked} turns, expected {effective}"));
    }
    let failed = case.expected.results == Some(None);
    let calls = driven.calls() + usize::from(*judged != Judged::NotAsked);
    if calls < case.tools.len() && !failed && !went_on {
        return Err(format!("got {calls} tool calls, expected {}", case.tools.len()));
    }
    Ok(())
}

/// Compares the recorded evidence field by field. With an exception the original records nothing else.
fn record(case: &Case, driven: &Driven, target: &Target) -> Result<(), String> {
    let expected = &case.expected;
    if let Some(recorded) = &expected.evidence {
        return equal("evidence", recorded, &serde_json::json!(driven.outcome.evidence));
    }
    let evidence = driven.evidence().ok_or("the episode ended without evidence")?;
    if case.formulation.has_modules() {
        list("subgoals", expected.subgoals.as_deref(), &evidence.subgoals)?;
        list("actions", expected.actions.as_deref(), &evidence.actions)?;
        if let Some(results) = &expected.results {
            equal("results", results, &evidence.results)?;
        }
    }
    if expected.raises.is_none() || expected.pred.is_some() {
        equal("pred", &expected.pred, &evidence.prediction)?;
    }
    if expected.raises.is_none() || !expected.answer.is_null() {
        equal("answer", &expected.answer, &Value::from(target.text()))?;
    }
    Ok(())
}

/// Compares how the item was scored.
fn scores(
    case: &Case,
    driven: &Driven,
    judged: &Judged,
    task: &Task,
    target: &Target,
    benchmark: &dyn Benchmark,
) -> Result<(), String> {
    let expected = &case.expected;
    if expected.evidence.is_some() {
        return Ok(());
    }
    let prediction = driven.evidence().and_then(|evidence| evidence.prediction.as_ref());
    let score = benchmark.score(target, &driven.outcome, Scoring::Paper).unwrap_or_default();
    let is_correct = score.is_correct(benchmark.metrics());
    let correct = u8::from(is_correct);
    let judged_correct = u8::from(*judged == Judged::Said(Judgement::Correct));
    if expected.correct.is_some() {
        equal("correct", &expected.correct, &Some(is_correct))?;
    }
    if expected.em.is_some() {
        equal("em", &expected.em, &Some(correct))?;
    }
    if expected.llm_acc.is_some() {
        equal("llm_acc", &expected.llm_acc, &Some(judged_correct))?;
    }
    if let (Some(recorded), Some(share)) = (expected.f1, score.share(F1.name))
        && (recorded - share.numerator).abs() > 1e-12
    {
        return Err(format!("f1: expected {recorded}, got {}", share.numerator));
    }
    if let Some(recorded) = &expected.final_pred {
        equal("final_pred", recorded, &taken_for(task, prediction))?;
    }
    if let Some(recorded) = &expected.printed {
        let printed = match expected.llm_acc {
            Some(_) => format!("EM: {correct} LLM_Acc: {judged_correct}"),
            None => format!("Acc: {:.1}", f64::from(correct)),
        };
        equal("printed", recorded, &printed)?;
    }
    Ok(())
}

/// Returns how StrategyQA's script interprets a prediction.
pub(super) fn taken_for(task: &Task, prediction: Option<&Prediction>) -> Option<String> {
    match (task, prediction) {
        (Task::Qa { answer: AnswerForm::YesNo, .. }, Some(Prediction::Text(text))) => {
            Some(if says_yes(text) { "true" } else { "false" }.to_owned())
        }
        _ => None,
    }
}

fn list(field: &str, recorded: Option<&[String]>, got: &[String]) -> Result<(), String> {
    let Some(recorded) = recorded else { return Ok(()) };
    for (index, (recorded, got)) in recorded.iter().zip(got).enumerate() {
        if let Some(difference) = differing_texts(recorded, got) {
            return Err(format!("{field}, entry {}: {difference}", index + 1));
        }
    }
    if recorded.len() == got.len() {
        return Ok(());
    }
    let (recorded_count, got_count) = (recorded.len(), got.len());
    let surplus = recorded.get(got_count).or_else(|| got.get(recorded_count)).map_or("", String::as_str);
    Err(format!(
        "{field}: expected {recorded_count} entries, got {got_count}; the first unmatched entry is {surplus:?}"
    ))
}

pub(super) fn equal<T: PartialEq + Serialize>(field: &str, recorded: &T, got: &T) -> Result<(), String> {
    if recorded == got {
        return Ok(());
    }
    let written = |value: &T| serde_json::to_string(value).unwrap_or_else(|error| error.to_string());
    Err(format!("{field}: expected {}, got {}", written(recorded), written(got)))
}

/// Describes the first difference between two texts; `None` if they are equal.
pub(super) fn differing_texts(recorded: &str, got: &str) -> Option<String> {
    if recorded == got {
        return None;
    }
    let (recorded, got): (Vec<char>, Vec<char>) = (recorded.chars().collect(), got.chars().collect());
    let at = recorded.iter().zip(&got).take_while(|(left, right)| left == right).count();
    let line = recorded[..at].iter().filter(|character| **character == '\n').count() + 1;
    Some(format!(
        "differs from character {} (line {line}): expected {}, got {}",
        at + 1,
        excerpt(&recorded, at),
        excerpt(&got, at)
    ))
}

/// Returns a few characters before and after a position, quoted.
fn excerpt(text: &[char], at: usize) -> String {
    const BEFORE: usize = 20;
    const BEHIND: usize = 40;
    let (start, end) = (at.saturating_sub(BEFORE), (at + BEHIND).min(text.len()));
    let shown: String = text[start..end].iter().collect();
    let (front, back) = (if start > 0 { "…" } else { "" }, if end < text.len() { "…" } else { " (end)" });
    format!("{front}{shown:?}{back}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_shown_in_their_surroundings() {
        assert_eq!(differing_texts("same", "same"), None);
        insta::assert_snapshot!(
            differing_texts("one\ntwo three four five six seven", "one\ntwo three four fife six").unwrap(),
            @r#"differs from character 22 (line 2): expected …"ne\ntwo three four five six seven" (end), got …"ne\ntwo three four fife six" (end)"#
        );
        insta::assert_snapshot!(
            differing_texts("12", "123").unwrap(),
            @r#"differs from character 3 (line 1): expected "12" (end), got "123" (end)"#
        );
    }
}
