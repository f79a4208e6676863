//! Turns a task file into a benchmark.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use lumos_tasks::families::{maths, qa};
use lumos_tasks::{ContentHash, Formulation, Item, Outcome, Role, Target};

use super::record::{self, cluster};
use super::{AnswerKind, DataFormat, TaskDefinition, TaskFamily, TaskFigure, TaskFile};
use crate::benchmark::{
    Benchmark, BenchmarkDescription, MODULES, PublishedFigure, PublishedItems, QA_MODULES, QA_TOOLS,
};
use crate::error::DataError;
use crate::judge::LLM_ACCURACY;
use crate::loading::{Builder, DataSource, Items, Layout, Located, open_records};
use crate::metrics::{
    ACCURACY, EXACT_MATCH, F1, MetricDefinition, score_value, score_words, score_yes_or_no,
};
use crate::score::Scoring;

/// A benchmark that is described by a task file.
struct TaskFileBenchmark(&'static BenchmarkDescription);

impl Benchmark for TaskFileBenchmark {
    fn description(&self) -> &'static BenchmarkDescription {
        self.0
    }

    fn cluster(&self, item: &Item) -> Option<String> {
        cluster(&self.task_file()?.definition, &item.record)
    }
}

/// Returns the benchmark of a task file. Names and metrics of benchmarks are borrowed for the whole process, so each
/// distinct file is kept once and never freed.
pub(super) fn interned(file: &TaskFile) -> &'static dyn Benchmark {
    static KNOWN: Mutex<BTreeMap<ContentHash, &'static TaskFileBenchmark>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    *known.entry(ContentHash::of_json(file)).or_insert_with(|| {
        let description = Box::leak(Box::new(describe(file)));
        Box::leak(Box::new(TaskFileBenchmark(description)))
    })
}

impl TaskFamily {
    pub(super) fn formulations(self) -> &'static [Formulation] {
        match self {
            Self::Maths | Self::Qa => &Formulation::OF_LUMOS,
        }
    }

    pub(super) fn tools(self) -> &'static [&'static str] {
        match self {
            Self::Maths => &["maths"],
            Self::Qa => &QA_TOOLS,
        }
    }

    fn modules(self) -> &'static [Role] {
        match self {
            Self::Maths => &MODULES,
            Self::Qa => &QA_MODULES,
        }
    }

    fn max_rounds(self) -> u32 {
        match self {
            Self::Maths => 8,
            Self::Qa => 5,
        }
    }

    fn prompts_hash(self) -> ContentHash {
        match self {
            Self::Maths => maths::prompts_hash(),
            Self::Qa => qa::prompts_hash(),
        }
    }
}

impl AnswerKind {
    /// Metrics that can be computed, with the most important first. Those of a judge are not reported by default.
    pub(super) fn metrics(self) -> &'static [MetricDefinition] {
        match self {
            Self::Number => &[EXACT_MATCH],
            Self::Value => &[EXACT_MATCH, LLM_ACCURACY],
            Self::Text => &[EXACT_MATCH, F1, LLM_ACCURACY],
            Self::YesNo => &[ACCURACY],
        }
    }
}

/// Returns the metrics that a definition reports.
pub(super) fn metrics(definition: &TaskDefinition) -> Vec<MetricDefinition> {
    let known = definition.answer_kind().metrics();
    if definition.metrics.is_empty() {
        return known.iter().filter(|metric| !metric.judged).copied().collect();
    }
    let named = |name: &String| known.iter().find(|metric| metric.name == name).copied();
    definition.metrics.iter().filter_map(named).collect()
}

fn leak<T>(values: Vec<T>) -> &'static [T] {
    Vec::leak(values)
}

fn text(text: &str) -> &'static str {
    String::leak(text.to_owned())
}

fn describe(file: &TaskFile) -> BenchmarkDescription {
    let file: &'static TaskFile = Box::leak(Box::new(file.clone()));
    let definition = &file.definition;
    let family = definition.family;
    let metrics = leak(metrics(definition));
    let figure = |figure: &'static TaskFigure| PublishedFigure {
        metric: figure.metric.as_deref().or(metrics.first().map(|metric| metric.name)).unwrap_or_default(),
        formulation: figure.formulation,
        system: &figure.system,
        percent: figure.percent,
        source: &figure.source,
    };
    let kind = definition.answer_kind();
    let tolerance = definition.answer.tolerance;
    BenchmarkDescription {
        task_file: Some(file),
        name: &definition.name,
        title: definition.title.as_deref().unwrap_or(&definition.name),
        data_file: text(&file.data_file().to_string_lossy()),
        formulations: match definition.formulations.as_slice() {
            [] => family.formulations(),
            some => some,
        },
        max_rounds: Box::leak(Box::new(move |_| definition.max_rounds.unwrap_or(family.max_rounds()))),
        modules: family.modules(),
        tools: family.tools(),
        prompts_hash: Box::leak(Box::new(move || {
            ContentHash::of_json(&(family.prompts_hash(), definition.items_hash()))
        })),
        metrics,
        published: leak(definition.published.iter().map(figure).collect()),
        published_items: definition.data.items.map(PublishedItems::All),
        downloads: &[],
        group_label: definition.fields.group.as_deref(),
        samples: &[],
        open,
        read: Box::leak(Box::new(record::reader(definition))),
        // Both scorings compare by value: the original has no scripts for this data.
        score: Box::leak(Box::new(move |target: &Target, outcome: &Outcome, _| match kind {
            AnswerKind::Number | AnswerKind::Value => score_value(target, outcome, tolerance),
            AnswerKind::Text => score_words(target, outcome),
            AnswerKind::YesNo => score_yes_or_no(target, outcome, Scoring::Corrected),
        })),
    }
}

/// Opens the data of a task file. An item's own name must be unique.
#[allow(clippy::needless_pass_by_value)] // signature of `BenchmarkDescription::open`
fn open(about: &'static BenchmarkDescription, source: DataSource) -> Result<Items, DataError> {
    let layout = match about.task_file.and_then(|file| file.definition.format()) {
        Some(DataFormat::Csv) => Layout::Csv,
        Some(DataFormat::Json) => Layout::Array,
        Some(DataFormat::Jsonl) | None => Layout::Lines,
    };
    let (file, records) = open_records(about, &source, layout)?;
    let mut builder = Builder::new(about, file.clone());
    let mut lines: HashMap<String, u64> = HashMap::new();
    let id = about.task_file.and_then(|file| file.definition.fields.id.as_deref()).unwrap_or_default();
    let build = move |located: Located| {
        let line = located.line;
        let item = builder.build(located)?;
        if let Some(name) = &item.name
            && let Some(first) = lines.insert(name.clone(), line)
        {
            return Err(DataError::Record {
                file: file.clone(),
                line,
                field: Some(id),
                expected: "a different value for each record".to_owned(),
                found: format!("`{name}`, as in line {first}"),
            });
        }
        Ok(item)
    };
    Ok(Box::new(records.map(build)))
}
