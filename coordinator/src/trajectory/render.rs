//! Renders a record as text.

use lumos_benchmarks::{Scoring, Share, Unit};
use lumos_tasks::{Ending, Finish, Step};

use crate::checkpoint::Record;
use crate::display::{call_text, observation_text, prediction_text, reply_text, rounds_exhausted, task_text};
use crate::score::{ScoreError, benchmark};

use super::find::FoundUnit;
use super::layout::Page;

/// Rendering options.
#[derive(Debug, Clone, Copy)]
pub struct Show {
    /// Width of the output in columns.
    pub width: usize,
    /// Whether to use bold and dim text (ANSI sequences).
    pub colours: bool,
    /// Whether to show prompts in full.
    pub prompts: bool,
}

impl Default for Show {
    fn default() -> Self {
        Self { width: 100, colours: false, prompts: false }
    }
}

/// Renders a unit's task, trajectory, ending and scores.
///
/// # Errors
/// If its benchmark is unknown.
pub fn show(found: &FoundUnit<'_>, scorings: &[Scoring], how: Show) -> Result<String, ScoreError> {
    let mut page = Page::new(how.width, how.colours);
    let item = &found.item;
    let named = item.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    let group =
        item.group.as_ref().map(|group| format!(", {}", group.replace('\n', ", "))).unwrap_or_default();
    let benchmark = benchmark(&found.configuration.configuration.benchmark)?;
    page.heading(&format!("{} item {}{named}{group}", benchmark.title(), item.index));
    page.note(&format!("{}, unit {}", found.configuration.label, found.unit.short()));
    page.gap();
    page.heading("Task");
    page.entry("", task_text(&item.task));
    page.entry("gold", item.target.text());
    if found.records.is_empty() {
        page.gap();
        page.note("outstanding: not recorded yet");
    }
    for record in &found.records {
        page.gap();
        attempt(&mut page, record, how);
        for &scoring in scorings {
            let Some(score) = benchmark.score(&item.target, &record.outcome, scoring) else { continue };
            let verdicts: Vec<_> = score
                .shares()
                .map(|(metric, share)| {
                    let definition = benchmark.metrics().iter().find(|definition| definition.name == metric);
                    verdict(metric, share, definition.map_or(Unit::Percent, |definition| definition.unit))
                })
                .collect();
            page.entry("verdict", &format!("{} ({scoring} scoring)", verdicts.join(", ")));
        }
    }
    Ok(page.finish())
}

/// Describes an item's score in a metric.
fn verdict(metric: &str, share: Share, unit: Unit) -> String {
    let Share { numerator, denominator } = share;
    match unit {
        Unit::Count(counted) if counted == metric => format!("{numerator} {counted}"),
        Unit::Count(counted) => format!("{numerator} {counted} by {metric}"),
        Unit::Percent if denominator > 0.0 && denominator <= 1.0 && [0.0, 1.0].contains(&numerator) => {
            let full = if numerator >= denominator { "correct" } else { "wrong" };
            format!("{full} by {metric}")
        }
        Unit::Percent => format!("{numerator} of {denominator} by {metric}"),
    }
}

fn attempt(page: &mut Page, record: &Record, how: Show) {
    let telemetry = &record.telemetry;
    let (read, written) = record.outcome.tokens();
    let worker =
        if telemetry.worker.is_empty() { String::new() } else { format!(" on {}", telemetry.worker) };
    page.heading(&format!("Attempt {}", record.attempt));
    page.note(&format!("{:.2} s{worker}, {read} tokens read, {written} written", telemetry.seconds));
    let mut turn = 0;
    for step in &record.outcome.steps {
        let (Step::Generate { turn: now, .. }
        | Step::Call { turn: now, .. }
        | Step::Action { turn: now, .. }) = step;
        if *now != turn {
            turn = *now;
            page.gap();
            page.heading(&format!("Turn {turn}"));
        }
        match step {
            Step::Generate { role, prompt, reply, finish, .. } => {
                if how.prompts {
                    page.entry("prompt", prompt);
                }
                page.entry(
                    role.name(),
                    if reply.trim().is_empty() { "(an empty reply)" } else { reply.trim() },
                );
                if *finish == Finish::Length {
                    page.entry("", "(cut off at the limit on new tokens)");
                }
            }
            Step::Call { call, reply, .. } => {
                page.entry("tool", &format!("{} → {}", call_text(call), reply_text(reply)));
            }
            Step::Action { action, observation, .. } => {
                page.entry("action", &format!("{action} → {}", observation_text(observation)));
            }
        }
    }
    page.gap();
    page.heading("Ending");
    match &record.outcome.ending {
        Ending::Answered => {
            page.entry("answered", prediction_text(&record.outcome).as_deref().unwrap_or("(no text)"));
            if rounds_exhausted(&record.outcome) {
                page.entry("", "the planner had not finished when its rounds were used up");
            }
        }
        Ending::GaveUp(reason) => {
            page.entry(
                "gave up",
                &format!("{} in turn {}: {}", reason.stage.name(), reason.turn, reason.detail),
            );
        }
        Ending::Faulted(fault) => page.entry("faulted", &fault.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fractions_are_correct_or_wrong() {
        let share = |numerator, denominator| Share { numerator, denominator };
        assert_eq!(verdict("exact_match", share(1.0, 1.0), Unit::Percent), "correct by exact_match");
        assert_eq!(verdict("exact_match", share(0.0, 1.0), Unit::Percent), "wrong by exact_match");
        assert_eq!(verdict("reward", share(0.25, 1.0), Unit::Percent), "0.25 of 1 by reward");
        assert_eq!(verdict("turns", share(1.0, 1.0), Unit::Count("turns")), "1 turns");
        assert_eq!(verdict("turns", share(7.0, 1.0), Unit::Count("turns")), "7 turns");
    }
}
