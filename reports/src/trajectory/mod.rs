//! Finds single records and renders them as text, for `lumos show`.
//!
//! [`find()`] returns the units that match a position, a name or a unit's first digits, and [`show`] renders
//! one with its prompts, replies, actions and scores.

mod layout;

use lumos_benchmarks::{MetricDefinition, Scoring, Share, Unit, main_metric};
use lumos_tasks::shell::quoted;
use lumos_tasks::{Ending, Finish, Item, Step, UnitId};

use crate::display::{
    ROUNDS_EXHAUSTED, call_text, ending_text, observation_text, reply_text, rounds_exhausted, task_text,
};
use crate::results::{ScoreError, benchmark};

use layout::Page;
pub use layout::harmless;
use lumos_benchmarks::task_file::TaskFile;
use lumos_coordinator::manifest::{Manifest, PlannedConfiguration};
use lumos_coordinator::spec::ResolvedSpec;
use lumos_coordinator::{CheckpointError, CheckpointReader, Record, unit_of};

/// A unit that was found.
#[derive(Debug)]
pub struct FoundUnit<'a> {
    /// Settings of its run.
    pub(crate) spec: &'a ResolvedSpec,
    /// Its configuration.
    pub configuration: &'a PlannedConfiguration,
    /// Its item.
    pub item: Item,
    /// Its identity.
    pub unit: UnitId,
    /// Its records: faults by attempt, then the outcome that settled it. Empty while it is outstanding.
    pub records: Vec<Record>,
}

/// Minimum number of digits that identify a unit.
const DIGITS: usize = 6;

/// Finds units, in the order of reports. `asked` is an item's name, an item's position, or at least the first
/// six digits of a unit's identity; the first interpretation with a match is used. `keeps` filters the configurations.
///
/// # Errors
/// If the checkpoint or a record cannot be read.
pub fn find<'a>(
    manifest: &'a Manifest,
    checkpoint: &CheckpointReader,
    asked: &str,
    keeps: impl Fn(&PlannedConfiguration) -> bool,
) -> Result<Vec<FoundUnit<'a>>, CheckpointError> {
    let mut by_name = Vec::new();
    let mut by_unit = Vec::new();
    let mut by_position = Vec::new();
    let position: Option<u64> = asked.parse().ok();
    let digits = asked.len() >= DIGITS && asked.chars().all(|digit| digit.is_ascii_hexdigit());
    let asked_unit = asked.to_ascii_lowercase();
    for configuration in manifest.configurations.iter().filter(|one| keeps(one)) {
        let benchmark = &configuration.configuration.benchmark;
        // An item's own name may be a number, which then is not its position.
        let is_named = has_names(&manifest.spec, benchmark);
        if let Some(position) = position
            && !is_named
            && configuration.has_item(position)
            && let Some(item) = checkpoint.item(benchmark, position)?
        {
            by_position.push((configuration, item));
            continue;
        }
        for item in checkpoint.items(benchmark) {
            let item = item?;
            if !configuration.has_item(item.index) {
                break;
            }
            let found = if item.name.as_deref() == Some(asked) {
                &mut by_name
            } else if is_named && position == Some(item.index) {
                &mut by_position
            } else if digits && unit_of(configuration, &item).as_str().starts_with(&asked_unit) {
                &mut by_unit
            } else {
                continue;
            };
            found.push((configuration, item));
        }
    }
    let found = [by_name, by_position, by_unit].into_iter().find(|found| !found.is_empty());
    found
        .unwrap_or_default()
        .into_iter()
        .map(|(configuration, item)| {
            let unit = unit_of(configuration, &item);
            let records = checkpoint.records_of(&unit)?;
            Ok(FoundUnit { spec: &manifest.spec, configuration, item, unit, records })
        })
        .collect()
}

/// Whether names of a benchmark's items take precedence over positions.
fn has_names(spec: &ResolvedSpec, benchmark: &str) -> bool {
    spec.task_files.get(benchmark).is_some_and(TaskFile::has_names)
}

/// Returns an item as an argument of `lumos show`: its position, or its name if names take precedence. The first digits
/// of its unit replace a name that is missing, looks like an option or has control characters.
pub(crate) fn item_argument(
    spec: &ResolvedSpec,
    benchmark: &str,
    position: u64,
    name: Option<&str>,
    unit: &str,
) -> String {
    if !has_names(spec, benchmark) {
        return position.to_string();
    }
    let is_plain = |name: &&str| !name.starts_with('-') && !name.contains(char::is_control);
    name.filter(is_plain).map_or_else(|| unit.to_owned(), quoted)
}

/// Returns the benchmark of the first item of a run, and the item as an argument of `lumos show`.
pub fn first_item(manifest: &Manifest, checkpoint: &CheckpointReader) -> Option<(String, String)> {
    manifest.configurations.iter().find_map(|planned| {
        let benchmark = &planned.configuration.benchmark;
        let item = checkpoint.items(benchmark).next()?.ok()?;
        let unit = unit_of(planned, &item);
        let name = item.name.as_deref();
        Some((benchmark.clone(), item_argument(&manifest.spec, benchmark, item.index, name, unit.short())))
    })
}

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
    let benchmark = benchmark(found.spec, &found.configuration.configuration.benchmark)?;
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
            let main = main_metric(benchmark.metrics(), |metric| score.share(metric.name).is_some());
            let verdicts: Vec<_> = score
                .shares()
                .map(|(metric, share)| {
                    let definition = benchmark.metrics().iter().find(|definition| definition.name == metric);
                    verdict(metric, share, definition, main)
                })
                .collect();
            page.entry("verdict", &format!("{} ({scoring} scoring)", verdicts.join(", ")));
        }
    }
    Ok(page.finish())
}

/// Describes an item's score in a metric.
fn verdict(
    metric: &str,
    share: Share,
    definition: Option<&MetricDefinition>,
    main: Option<&MetricDefinition>,
) -> String {
    let Share { numerator, denominator } = share;
    let unknown = MetricDefinition::proportion("", "");
    let definition = definition.unwrap_or(&unknown);
    let is_binary = definition.decides(main)
        && definition.kind.range() == Some((0.0, 1.0))
        && denominator > 0.0
        && denominator <= 1.0
        && [0.0, 1.0].contains(&numerator);
    match definition.unit {
        Unit::Count(counted) if counted == metric => format!("{numerator} {counted}"),
        Unit::Count(counted) => format!("{numerator} {counted} by {metric}"),
        Unit::Percent if is_binary => {
            let full = if definition.is_full(share) { "correct" } else { "wrong" };
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
        if step.turn() != turn {
            turn = step.turn();
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
    let (ending, detail) = ending_text(&record.outcome);
    page.entry(ending, &detail);
    if record.outcome.ending == Ending::Answered && rounds_exhausted(&record.outcome) {
        page.entry("", ROUNDS_EXHAUSTED);
    }
}

#[cfg(test)]
mod tests;
