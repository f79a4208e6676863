//! Training annotations from trajectories, in the layout of the original's data (allenai/lumos, `train_annots`).
//!
//! Every row has exactly the keys `dataset`, `id` and `messages`. Iterative and one-time episodes have a row per module:
//! the conversation of its last prompt ([`conversation`]). Rows are in a file of all of the original's domains
//! (`lumos_unified_plan_iterative.jsonl`) and in one of their domain; `provenance.jsonl` names the unit of each row.
//! Items of test sets are left out unless they are asked for ([`is_training_data`]).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use lumos_benchmarks::{Benchmark, is_training_data};
use lumos_tasks::families::{conversation, ends_planning};
use lumos_tasks::{ContentHash, Ending, Evidence, Formulation, Message, Role, Step};
use serde_json::{Value, json};

use crate::display::rounds_exhausted;
use crate::results::benchmark;

use super::convert::{ExportFormat, ExportSummary};
use super::source::{RecordedUnit, RunSource};
use super::{ExportError, create_folder, write_line};

/// The module whose conversations are exported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AnnotatedModule {
    /// The planner.
    Plan,
    /// The grounder.
    Ground,
    /// Both.
    #[default]
    Both,
}

impl FromStr for AnnotatedModule {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "plan" => Ok(Self::Plan),
            "ground" => Ok(Self::Ground),
            "both" => Ok(Self::Both),
            _ => Err(format!("unknown module `{word}`: expected one of plan, ground, both")),
        }
    }
}

/// Which units become annotations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AnnotationOptions {
    /// Also units without the full score in the main metric.
    pub wrong: bool,
    /// Only episodes of at most this many planner turns.
    pub max_turns: Option<u32>,
    /// Also items of test sets, in files with the prefix `test_`.
    pub allow_test: bool,
    /// The modules.
    pub module: AnnotatedModule,
}

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "annotations",
    about: "training data in the layout of the published Lumos annotations",
    rows: "annotations",
    write: |folder, source, options, _| {
        let warning = "the files test_* may contain items of test sets; do not train on them";
        let warning = options.annotations.allow_test.then_some(warning);
        Ok(ExportSummary { warning, ..write(folder, source, &options.annotations)? })
    },
};

/// Writes the annotations of a run below a folder.
fn write(
    folder: &Path,
    source: &RunSource<'_>,
    options: &AnnotationOptions,
) -> Result<ExportSummary, ExportError> {
    let folder = folder.join("train_annots");
    create_folder(&folder)?;
    let mut files = AnnotationFiles {
        prefix: if options.allow_test { "test_" } else { "" },
        folder,
        open: BTreeMap::new(),
        counts: HashMap::new(),
        seen: HashSet::new(),
    };
    let mut summary = ExportSummary::default();
    let mut guarded = 0;
    for (position, _, planned, _) in source.cells() {
        let configuration = &planned.configuration;
        let benchmark = benchmark(&source.manifest.spec, &configuration.benchmark)?;
        let data = source.manifest.data_of(benchmark.name()).map(|data| &data.sha256);
        source.for_each_recorded(position, |unit| {
            let mut skip = |reason: String| {
                *summary.skipped.entry(reason).or_default() += 1;
            };
            let is_training = data.is_some_and(|data| is_training_data(benchmark, data, unit.item));
            if !is_training && !options.allow_test {
                guarded += 1;
                skip(match benchmark.definition() {
                    Some(_) => format!("{} items that are not training data", benchmark.name()),
                    None => format!("{} items of a test set", benchmark.name()),
                });
                return Ok(());
            }
            if let Some(reason) = unsuitable(unit, options) {
                skip(reason.to_owned());
                return Ok(());
            }
            for (module, role) in [("plan", Role::Planner), ("ground", Role::Grounder)] {
                let is_asked = match options.module {
                    AnnotatedModule::Both => true,
                    AnnotatedModule::Plan => role == Role::Planner,
                    AnnotatedModule::Ground => role == Role::Grounder,
                };
                if !is_asked {
                    continue;
                }
                match messages(unit, role) {
                    Err(reason) => skip(format!("{module}: {reason}")),
                    Ok(messages) if !files.add(source, unit, module, &messages)? => {
                        skip(format!("{module}: repeats another conversation"));
                    }
                    Ok(_) => summary.rows += 1,
                }
            }
            Ok(())
        })?;
    }
    if summary.rows == 0 {
        let reasons = summary.skipped.iter().map(|(reason, count)| format!("{reason} ({count})"));
        let reasons = reasons.collect::<Vec<_>>().join(", ");
        return Err(match guarded {
            0 => ExportError::Nothing(if reasons.is_empty() {
                "no unit is recorded".to_owned()
            } else {
                reasons
            }),
            _ => ExportError::OnlyTestItems(reasons),
        });
    }
    summary.files = files.close()?;
    Ok(summary)
}

/// Returns why a unit cannot be an annotation, if it cannot.
fn unsuitable(unit: &RecordedUnit<'_>, options: &AnnotationOptions) -> Option<&'static str> {
    let outcome = unit.outcome();
    let formulation = unit.planned.configuration.formulation;
    if !matches!(formulation, Formulation::Iterative | Formulation::OneTime) {
        return Some("formulations without a conversation per module");
    }
    match &outcome.ending {
        Ending::Faulted(_) => return Some("faulted"),
        Ending::GaveUp(_) => return Some("gave up"),
        Ending::Answered if rounds_exhausted(outcome) => return Some("rounds exhausted"),
        Ending::Answered => {}
    }
    if !options.wrong && !unit.is_correct() {
        return Some("not correct");
    }
    let turns = outcome.steps.iter().map(Step::turn).max().unwrap_or(0);
    options.max_turns.is_some_and(|most| turns > most).then_some("too many turns")
}

/// Returns the conversation of a module, or the reason why it is left out.
fn messages(unit: &RecordedUnit<'_>, role: Role) -> Result<Vec<Message>, &'static str> {
    let last = unit.outcome().steps.iter().rev().find_map(|step| match step {
        Step::Generate { role: by, prompt, reply, .. } if *by == role => Some((prompt, reply)),
        _ => None,
    });
    let (prompt, reply) = last.ok_or("no reply of the module")?;
    let is_iterative = unit.planned.configuration.formulation == Formulation::Iterative;
    // In a shop and on a database, the grounder's purchase or submission ends an answered episode.
    let ends_with_action = matches!(unit.outcome().evidence, Some(Evidence::Shop(_) | Evidence::Sql(_)));
    if role == Role::Planner && is_iterative && !ends_with_action && !ends_planning(reply) {
        return Err("planning was not ended");
    }
    conversation(prompt, reply).ok_or("the prompt cannot be split into turns")
}

/// The open files.
struct AnnotationFiles {
    folder: PathBuf,
    prefix: &'static str,
    open: BTreeMap<PathBuf, BufWriter<File>>,
    /// Number of rows by domain, module and formulation.
    counts: HashMap<String, u64>,
    /// Hashes of the conversations of each module, because runs of several seeds or behaviours repeat them.
    seen: HashSet<ContentHash>,
}

impl AnnotationFiles {
    /// Adds a row to the files of its module. Returns `false` if an equal conversation was added before.
    fn add(
        &mut self,
        source: &RunSource<'_>,
        unit: &RecordedUnit<'_>,
        module: &str,
        messages: &[Message],
    ) -> Result<bool, ExportError> {
        let configuration = &unit.planned.configuration;
        if !self.seen.insert(ContentHash::of_json(&(module, messages))) {
            return Ok(false);
        }
        let known = lumos_benchmarks::find(&configuration.benchmark);
        let original = known.and_then(Benchmark::annotation_domain);
        let (domain, is_original) = (original.unwrap_or(&configuration.benchmark), original.is_some());
        let kind = format!("{module}_{}.jsonl", configuration.formulation);
        let own = format!("lumos_{domain}_{kind}");
        let number = self.counts.entry(own.clone()).or_default();
        let id = format!("{domain}_{number}");
        *number += 1;
        let row = json!({"dataset": domain, "id": id, "messages": messages});
        if is_original {
            self.write(&format!("lumos_unified_{kind}"), &row)?;
        }
        self.write(&own, &row)?;
        let mut provenance = json!({
            "file": format!("{}{own}", self.prefix),
            "id": id,
            "run": source.manifest.identity,
            "benchmark": configuration.benchmark,
            "formulation": configuration.formulation,
            "behaviour": configuration.behaviour,
            "models": configuration.models,
            "item": unit.item.index,
            "item_hash": unit.item.id.content,
            "unit": unit.unit,
        });
        if configuration.benchmark == "mind2web" {
            provenance["note"] = json!("earlier turns of the planner are gold sentences, not replies");
        }
        self.write("provenance.jsonl", &provenance)?;
        Ok(true)
    }

    fn write(&mut self, name: &str, row: &Value) -> Result<(), ExportError> {
        let path = self.folder.join(format!("{}{name}", self.prefix));
        let fail = ExportError::at(&path);
        if !self.open.contains_key(&path) {
            let file = File::create(&path).map_err(&fail)?;
            self.open.insert(path.clone(), BufWriter::new(file));
        }
        match self.open.get_mut(&path) {
            Some(file) => write_line(file, row).map_err(&fail),
            None => Ok(()),
        }
    }

    /// Writes everything to disk and returns the files.
    fn close(self) -> Result<Vec<PathBuf>, ExportError> {
        let mut files = Vec::new();
        for (path, file) in self.open {
            let synced =
                file.into_inner().map_err(io::IntoInnerError::into_error).and_then(|file| file.sync_all());
            synced.map_err(ExportError::at(&path))?;
            files.push(path);
        }
        Ok(files)
    }
}
