//! `lumos verify` and `lumos replay`: compute recorded outcomes again and compare the results.

#[cfg(feature = "candle-transformers")]
mod reference;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use futures::{StreamExt, stream};
use lumos_benchmarks::replay::{self, ReplayResult};
use lumos_coordinator::CheckpointReader;
use lumos_coordinator::manifest::Manifest;
use lumos_coordinator::spec::BatchSize;
use lumos_tasks::{Item, Outcome as Episode, Step, UnitId, WorkUnit};
use lumos_worker::activity::EpisodeProgress;
use lumos_worker::{Backends, EpisodeLimits, drive};
use serde::Serialize;
use serde_json::json;

use super::results::open;
use crate::cli::{EngineArgs, ReplayArgs, SpeedArgs, VerifyArgs};
use crate::exit::{CommandResult, Exit, Failure};
use crate::pipeline::{Executor, Options};
use crate::settings;

/// Default batch size, if the run used a different one.
const ALONE: u32 = 1;
/// Default batch size if the run computed one sequence at a time.
const TOGETHER: u32 = 8;

/// A unit of the sample and its recorded outcome.
struct Sampled {
    label: String,
    item: u64,
    unit: WorkUnit,
    recorded: Episode,
}

/// Result of recomputing a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Comparison {
    /// Equal in every step.
    Equal,
    /// A reply differs, and the ending is equal.
    Reply,
    /// The ending differs.
    Ending,
    /// The unit could not be computed.
    Fault,
}

/// `lumos verify`: recomputes a sample of a run with a different batch size and compares it with the recorded
/// outcomes.
pub(crate) async fn verify(arguments: &VerifyArgs) -> CommandResult {
    let folder = arguments.runs.folder(&arguments.run)?;
    let (mut manifest, checkpoint) = open(&folder)?;
    let sample = sample(&manifest, &checkpoint, arguments.sample)?;
    drop(checkpoint);
    if sample.is_empty() {
        return Err(Failure {
            exit: Exit::NothingSelected,
            ..Failure::input(format!("no settled units in `{}`", folder.display()))
        });
    }
    let batch_size = match arguments.batch_size.as_deref() {
        Some(size) => size.parse::<BatchSize>().map_err(Failure::input)?,
        None if manifest.spec.batch_size == BatchSize::Fixed(ALONE) => BatchSize::Fixed(TOGETHER),
        None => BatchSize::Fixed(ALONE),
    };
    manifest.spec.batch_size = batch_size;
    let speed = SpeedArgs { threads: arguments.threads, ..SpeedArgs::default() };
    let engine = EngineArgs { speed, ..EngineArgs::default() };
    let models = settings::models_of(&manifest.spec, &engine, settings::Computes::Here)?;
    let executor = Executor::new(models, &folder, Options::default());
    executor.check_models(&manifest).await?;
    Executor::note_gpu(&manifest);
    if arguments.reference {
        return compare_with_reference(&executor, &sample, arguments.json).await;
    }
    let in_phases = executor.arrange_run(&manifest).await?;
    executor.check_tools(&manifest)?;
    let total = sample.len();
    let mut counts = [0_usize; 4];
    let mut out = io::stdout().lock();
    let again = stream::iter(sample).map(|sampled| again(sampled, &executor));
    let mut compared = std::pin::pin!(again.buffered(settings::concurrency(&manifest.spec, in_phases)));
    while let Some(result) = compared.next().await {
        let (sampled, comparison) = result?;
        counts[comparison as usize] += 1;
        if arguments.json {
            let line = json!({
                "unit": sampled.unit.id, "configuration": sampled.label, "item": sampled.item, "comparison": comparison,
            });
            writeln!(out, "{line}")?;
        } else if comparison != Comparison::Equal {
            writeln!(out, "{}, item {}: {}", sampled.label, sampled.item, comparison.words())?;
        }
    }
    // In the order of the comparisons.
    let [equal, replies, endings, faults] = counts;
    if arguments.json {
        let totals = json!({
            "units": total, "equal": equal, "reply_flips": replies, "ending_flips": endings, "faults": faults,
            "batch_size": batch_size,
        });
        writeln!(out, "{totals}")?;
    } else {
        writeln!(
            out,
            "{total} units at batch size {batch_size}: {equal} equal, {endings} with a different ending, {replies} \
             with a different reply and the same ending, {faults} faulted"
        )?;
    }
    Ok(match (replies + endings, faults) {
        (0, 0) => Exit::Complete,
        (0, _) => Exit::Outstanding,
        _ => Exit::CheckFailed,
    })
}

#[cfg(feature = "candle-transformers")]
async fn compare_with_reference(executor: &Executor, sample: &[Sampled], json: bool) -> CommandResult {
    reference::compare(&executor.models, sample, json).await
}

#[cfg(not(feature = "candle-transformers"))]
#[allow(clippy::unused_async, reason = "as with the feature")]
async fn compare_with_reference(_: &Executor, _: &[Sampled], _: bool) -> CommandResult {
    Err(Failure::input("this program was built without `candle-transformers`")
        .hint("build it with `--features candle-transformers`"))
}

impl Comparison {
    fn of(recorded: &Episode, again: &Episode) -> Self {
        let replies = |outcome: &Episode| -> Vec<String> {
            let reply = |step: &Step| match step {
                Step::Generate { reply, .. } => Some(reply.clone()),
                _ => None,
            };
            outcome.steps.iter().filter_map(reply).collect()
        };
        if again.is_fault() {
            Self::Fault
        } else if recorded.ending != again.ending || recorded.evidence != again.evidence {
            Self::Ending
        } else if replies(recorded) != replies(again) {
            Self::Reply
        } else {
            Self::Equal
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Equal => "as recorded",
            Self::Reply => "different reply, same ending",
            Self::Ending => "different ending",
            Self::Fault => "faulted",
        }
    }
}

/// Selects the settled units with the smallest identities. These are hashes, so the sample is deterministic
/// and evenly distributed.
fn sample(manifest: &Manifest, checkpoint: &CheckpointReader, size: usize) -> Result<Vec<Sampled>, Failure> {
    let mut chosen: BTreeMap<UnitId, Sampled> = BTreeMap::new();
    checkpoint.for_each_settled(manifest, |planned, item, record| {
        if chosen.len() >= size && chosen.last_key_value().is_none_or(|(last, _)| record.unit >= *last) {
            return Ok::<_, Failure>(());
        }
        let Item { id, task, setup, .. } = item.clone();
        let unit = WorkUnit::new(id, task, setup, Arc::clone(&planned.configuration));
        let sampled = Sampled {
            label: planned.label.clone(),
            item: item.index,
            unit,
            recorded: record.outcome.clone(),
        };
        chosen.insert(record.unit.clone(), sampled);
        if chosen.len() > size {
            chosen.pop_last();
        }
        Ok(())
    })?;
    Ok(chosen.into_values().collect())
}

async fn again(sampled: Sampled, executor: &Executor) -> Result<(Sampled, Comparison), Failure> {
    let backends = Backends::of(&executor.models, &executor.tools, &sampled.unit.configuration).await;
    let backends = backends.map_err(Failure::usage)?;
    let (outcome, _) =
        drive(&sampled.unit, &backends, EpisodeLimits::default(), &EpisodeProgress::default()).await;
    let comparison = Comparison::of(&sampled.recorded, &outcome);
    Ok((sampled, comparison))
}

/// `lumos replay`: runs recorded cases with the current code and compares the results.
pub(crate) fn replay(arguments: &ReplayArgs) -> CommandResult {
    let mut out = io::stdout().lock();
    let (mut passed, mut failed) = (0u64, 0u64);
    let mut skipped: BTreeMap<String, u64> = BTreeMap::new();
    let benchmark = arguments.task_file.as_deref().map(settings::task_file).transpose()?;
    for file in &arguments.files {
        for recorded in replay::read_cases(file).map_err(Failure::usage)? {
            let recorded = recorded.map_err(Failure::usage)?;
            let verdict = match (&benchmark, recorded.case()) {
                (Some(own), Some(case)) => replay::replay_on(case, own.benchmark()),
                _ => recorded.replay(),
            };
            print(&mut out, &verdict, arguments.json)?;
            match &verdict {
                ReplayResult { skipped: Some(reason), .. } => {
                    *skipped.entry(reason.clone()).or_default() += 1;
                }
                ReplayResult { difference: Some(_), .. } => failed += 1,
                ReplayResult { .. } => passed += 1,
            }
        }
    }
    if !arguments.json {
        let count: u64 = skipped.values().sum();
        let of_skipped = if count > 0 { format!(", {count} skipped") } else { String::new() };
        writeln!(out, "{passed} passed, {failed} failed{of_skipped}")?;
        for (reason, count) in skipped {
            writeln!(out, "{count} skipped: {reason}")?;
        }
    }
    Ok(if failed > 0 { Exit::CheckFailed } else { Exit::Complete })
}

fn print(out: &mut impl Write, verdict: &ReplayResult, json: bool) -> io::Result<()> {
    let ReplayResult { id, difference, skipped } = verdict;
    if json {
        let mut object = json!({ "id": id, "passed": verdict.passed(), "difference": difference });
        if let Some(reason) = skipped {
            object["skipped"] = reason.as_str().into();
        }
        writeln!(out, "{object}")?;
    } else if let Some(difference) = difference {
        writeln!(out, "{id}: {difference}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use lumos_tasks::{Ending, Fault, FaultKind, Finish, Reason, Role, Stage};

    use super::*;

    fn episode(reply: &str, ending: Ending) -> Episode {
        let step = Step::Generate {
            turn: 1,
            role: Role::Planner,
            prompt: "p".to_owned(),
            reply: reply.to_owned(),
            finish: Finish::Stop,
            prompt_tokens: None,
            completion_tokens: None,
        };
        Episode { ending, evidence: None, steps: vec![step] }
    }

    #[test]
    fn flips_are_told_apart() {
        let recorded = episode("a", Ending::Answered);
        let compare = |again| Comparison::of(&recorded, &again);
        assert_eq!(compare(recorded.clone()), Comparison::Equal);
        assert_eq!(compare(episode("b", Ending::Answered)), Comparison::Reply);
        let reason = Reason { stage: Stage::Limit, turn: 1, detail: String::new() };
        assert_eq!(compare(episode("a", Ending::GaveUp(reason))), Comparison::Ending);
        let fault = Fault { kind: FaultKind::Model, message: String::new() };
        assert_eq!(compare(episode("b", Ending::Faulted(fault))), Comparison::Fault);
    }
}
