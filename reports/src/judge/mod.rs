//! Judging a run by a model: a separate pass with its own manifest and checkpoint in the run's folder.
//!
//! ```text
//! runs/<name>/judge/<pass>/manifest.json    the judge
//!                          checkpoint/      every question and every reply
//!             judge/current                 the pass whose verdicts are reported
//! ```
//! A question to the judge is an item, and its unit is an episode of one call
//! ([`Task::Judge`](lumos_tasks::Task)). Passes are therefore dispatched, retried, distributed to workers and
//! resumed by the same code as runs, and the run's own checkpoint is not changed. The identity of a question
//! is derived from its text, so outcomes with the same prediction for the same item are judged once.

mod verdicts;

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use lumos_benchmarks::judge::{MAX_VERDICT_TOKENS, prompt_hash, question_about};
use lumos_coordinator::atomic_file::{create_private_folder, write_whole};
use lumos_coordinator::manifest::{Manifest, ManifestError, ManifestParts, ModelRecord, PlannedData};
use lumos_coordinator::spec::{MemorySize, ResolvedSpec};
use lumos_coordinator::{Checkpoint, CheckpointError, CheckpointReader, PlanMark, for_each_unit};
use lumos_tasks::{
    Behaviour, Configuration, ContentHash, Formulation, GenerationSettings, Item, ItemId, Message,
    ModelIdentity, Placement, Role, Sampling, Setup, Target, Task,
};
use thiserror::Error;

use crate::results::{ScoreError, benchmark};

pub(crate) use verdicts::{JudgeReport, Verdicts};

/// Benchmark name of the questions of a pass.
const BENCHMARK: &str = "judge";

/// Name of the folder of passes in a run's folder.
const FOLDER: &str = "judge";
/// Name of the file that contains the name of the pass whose verdicts are reported.
const CURRENT: &str = "current";

/// Error of planning a pass.
#[derive(Debug, Error)]
pub enum JudgeError {
    /// The run's checkpoint cannot be read, or the pass's checkpoint cannot be written.
    #[error(transparent)]
    Score(#[from] ScoreError),
    /// No benchmark of the run has a judged metric.
    #[error("no metric of {0} needs a judge")]
    Unjudged(String),
    /// The pass's manifest cannot be written.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The pass cannot be marked as the current one.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
}

impl From<CheckpointError> for JudgeError {
    fn from(error: CheckpointError) -> Self {
        Self::Score(error.into())
    }
}

/// A planned pass, the input of [`dispatch`](lumos_coordinator::dispatch::dispatch).
#[derive(Debug)]
pub struct Pass {
    /// The manifest of the pass.
    pub manifest: Manifest,
    /// Its folder.
    pub folder: PathBuf,
    /// Its questions and their recorded replies.
    pub checkpoint: Checkpoint,
    /// Settled units that are incorrect without a question, because they have no prediction.
    pub unasked: u64,
}

/// A judge, and its device and memory if it is an engine of this process.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The model.
    pub model: ModelRecord,
    /// The device of every role.
    pub device: Placement,
    /// Memory limit.
    pub memory: Option<MemorySize>,
}

/// Returns the configuration under which a judge's questions run.
pub fn configuration(judge: &ModelIdentity) -> Configuration {
    Configuration {
        benchmark: BENCHMARK.to_owned(),
        formulation: Formulation::Direct,
        behaviour: Behaviour::Paper,
        max_rounds: 1,
        models: BTreeMap::from([(Role::Judge, judge.clone())]),
        tools: Vec::new(),
        generation: GenerationSettings { sampling: Sampling::Greedy, max_new_tokens: MAX_VERDICT_TOKENS },
        seed: 0,
        prompts: prompt_hash(),
        format: lumos_tasks::PromptFormat::default(),
        agent: None,
    }
}

/// Returns the identity of a question.
fn question_id(messages: &[Message]) -> ItemId {
    ItemId { content: ContentHash::of_json(&messages), occurrence: 0 }
}

/// Plans a pass over the settled units of a run, or extends it with units settled since, and marks it as the
/// pass whose verdicts are reported. Blocks.
///
/// # Errors
/// If a checkpoint cannot be read or written, or the run has no judged metric.
pub fn plan(
    run: &Path,
    manifest: &Manifest,
    checkpoint: &CheckpointReader,
    judge: Asked,
) -> Result<Pass, JudgeError> {
    let Asked { model: judge, device, memory } = judge;
    let (questions, unasked) = questions(manifest, checkpoint)?;
    let configuration = configuration(&judge.identity);
    let ids: Vec<(u64, ItemId)> = questions.iter().map(|item| (item.index, item.id.clone())).collect();
    let spec = ResolvedSpec {
        name: format!("{} judged by {}", manifest.spec.name, judge.identity.name),
        generation: configuration.generation,
        // All items of a partial run are judged together.
        partition: None,
        // The rules are about the run's own configurations.
        exclude: Vec::new(),
        overrides: Vec::new(),
        // The judge may be computed elsewhere than the run's own models.
        device,
        memory,
        ..manifest.spec.clone()
    };
    let pass = passes(run).join(configuration.identity().short());
    let mut judged = Manifest::new(ManifestParts {
        spec,
        configurations: vec![configuration.into()],
        models: vec![judge],
        data: vec![PlannedData {
            benchmark: BENCHMARK,
            source: "the outcomes of the run".to_owned(),
            sha256: ContentHash::of_json(&ids.iter().map(|(_, id)| id).collect::<Vec<_>>()),
            records: ids.len() as u64,
            invalid: 0,
            items: &ids,
        }],
        git_revision: manifest.git_revision.clone(),
        created: Timestamp::now(),
    });
    create_private_folder(&passes(run)).map_err(|error| CheckpointError::of_io(&pass, &error))?;
    let recorded = Checkpoint::create(&pass.join("checkpoint"))?;
    // Keeps the run token, so that work and results of a session that ended early are taken up from the queue.
    if let Ok(before) = Manifest::read(&pass)
        && before.identity == judged.identity
    {
        judged.created = before.created;
    }
    if let Err(error) = store(run, &pass, &judged, &questions, &recorded) {
        // Closing a database whose disk is full may never end.
        recorded.abandon();
        return Err(error);
    }
    Ok(Pass { manifest: judged, folder: pass, checkpoint: recorded, unasked })
}

/// Stores the questions and the manifest of a pass, and marks it as the current one.
fn store(
    run: &Path,
    pass: &Path,
    judged: &Manifest,
    questions: &[Item],
    recorded: &Checkpoint,
) -> Result<(), JudgeError> {
    let items = recorded.store_items(BENCHMARK, questions)?;
    let scoring = judged.spec.scoring.clone();
    recorded.plan_complete(&PlanMark { identity: judged.identity.clone(), items, scoring })?;
    judged.write(pass)?;
    mark(run, pass)
}

/// Returns every distinct question, in the order of reports, and the number of units that need none.
fn questions(manifest: &Manifest, checkpoint: &CheckpointReader) -> Result<(Vec<Item>, u64), JudgeError> {
    let mut chosen = manifest.clone();
    let mut unjudged = Vec::new();
    for planned in std::mem::take(&mut chosen.configurations) {
        let name = &planned.configuration.benchmark;
        if benchmark(&manifest.spec, name)?.metrics().iter().any(|metric| metric.judged) {
            chosen.configurations.push(planned);
        } else {
            unjudged.push(name.clone());
        }
    }
    if chosen.configurations.is_empty() {
        unjudged.dedup();
        return Err(JudgeError::Unjudged(unjudged.join(", ")));
    }
    let (mut questions, mut known, mut unasked) = (Vec::new(), HashSet::new(), 0);
    for_each_unit(&chosen, checkpoint, |view| {
        let Some(record) = view.settled() else { return Ok(()) };
        match question_about(&view.item.task, &view.item.target, &record.outcome) {
            Some(messages) => {
                let id = question_id(&messages);
                if known.insert(id.clone()) {
                    questions.push(question(questions.len() as u64, id, messages));
                }
            }
            None => unasked += 1,
        }
        Ok::<_, JudgeError>(())
    })?;
    Ok((questions, unasked))
}

fn question(index: u64, id: ItemId, messages: Vec<Message>) -> Item {
    Item {
        id,
        index,
        name: None,
        group: None,
        record: serde_json::Value::Null,
        task: Task::Judge { messages, max_new_tokens: MAX_VERDICT_TOKENS },
        setup: Setup::None,
        // The question contains the gold answer, and the reply is not scored against a target.
        target: Target::Text { answer: String::new() },
    }
}

/// Marks the pass whose verdicts are reported.
fn mark(run: &Path, pass: &Path) -> Result<(), JudgeError> {
    let name = pass.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let file = passes(run).join(CURRENT);
    write_whole(&file, |out| writeln!(out, "{name}")).map_err(|source| JudgeError::Io { file, source })
}

/// Returns the folders of a run's passes, sorted by name.
///
/// # Errors
/// If the folder cannot be read.
pub fn pass_folders(run: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(passes(run)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut folders = Vec::new();
    for entry in entries {
        let folder = entry?.path();
        if folder.join("checkpoint").is_dir() {
            folders.push(folder);
        }
    }
    folders.sort();
    Ok(folders)
}

/// Returns the folder of passes in a run's folder.
fn passes(run: &Path) -> PathBuf {
    run.join(FOLDER)
}

#[cfg(test)]
mod tests;
