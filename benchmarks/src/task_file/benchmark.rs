//! Turns a definition into a benchmark: that of a task file, or of a program that adds it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use lumos_tasks::families::agent::AgentDefinition;
use lumos_tasks::{Configuration, ContentHash, Item, Outcome, Target};

use super::record::{self, cluster};
use super::{AnswerKind, DataFormat, TaskDefinition, TaskFamily, TaskFigure, TaskFile};
use crate::benchmark::{
    Benchmark, BenchmarkDescription, MODULES, Origin, PublishedFigure, PublishedItems, QA_MODULES, Score,
    Training,
};
use crate::error::DataError;
use crate::gsm8k::Gsm8k;
use crate::hotpotqa::HotpotQa;
use crate::intercode_sql::IntercodeSql;
use crate::judge::LLM_ACCURACY;
use crate::loading::{Builder, Content, DataSource, Items, Layout, Located, RecordError, open_records};
use crate::metrics::{
    ACCURACY, EXACT_MATCH, F1, MetricDefinition, score_value, score_words, score_yes_or_no,
};
use crate::mind2web::Mind2Web;
use crate::score::Scoring;
use crate::webshop::WebShop;

/// A benchmark that is described by a definition.
struct DefinedBenchmark {
    about: &'static BenchmarkDescription,
    definition: &'static TaskDefinition,
}

impl Benchmark for DefinedBenchmark {
    fn description(&self) -> &'static BenchmarkDescription {
        self.about
    }

    fn agent(&self) -> Option<Arc<AgentDefinition>> {
        self.definition.agent.clone()
    }

    fn cluster(&self, item: &Item) -> Option<String> {
        cluster(self.definition, &item.record).or_else(|| self.base().cluster(item))
    }

    fn draws(&self) -> bool {
        self.base().draws()
    }

    fn is_measured(&self, metric: &MetricDefinition, configuration: &Configuration) -> bool {
        self.base().is_measured(metric, configuration)
    }

    fn read_as_original(&self, record: &serde_json::Value) -> Result<Content, RecordError> {
        match self.about.origin {
            Origin::TaskFile(_) => record::read_as_original(self.definition, record),
            Origin::BuiltIn | Origin::Program { .. } => self.read(record),
        }
    }
}

impl DefinedBenchmark {
    /// Returns the benchmark whose agent the family is.
    fn base(&self) -> &'static dyn Benchmark {
        self.definition.family.base()
    }
}

/// Returns a benchmark that lives as long as the process.
pub(crate) fn kept(
    about: BenchmarkDescription,
    definition: &'static TaskDefinition,
) -> &'static dyn Benchmark {
    Box::leak(Box::new(DefinedBenchmark { about: Box::leak(Box::new(about)), definition }))
}

/// Returns the benchmark of a task file. Names and metrics of benchmarks are borrowed for the whole process, so each
/// distinct file is kept once and never freed.
pub(super) fn interned(file: &TaskFile) -> &'static dyn Benchmark {
    static KNOWN: Mutex<BTreeMap<ContentHash, &'static dyn Benchmark>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    *known.entry(ContentHash::of_json(file)).or_insert_with(|| {
        let file: &'static TaskFile = Box::leak(Box::new(file.clone()));
        kept(describe(&file.definition, Origin::TaskFile(file), None), &file.definition)
    })
}

impl TaskFamily {
    /// Returns the benchmark whose agent, tools and limits the family has.
    pub(super) fn base(self) -> &'static dyn Benchmark {
        match self {
            Self::Maths => &Gsm8k,
            Self::Qa | Self::Custom => &HotpotQa,
            Self::Web => &Mind2Web,
            Self::Shop => &WebShop,
            Self::Sql => &IntercodeSql,
        }
    }

    /// Whether answers are compared with gold answers. Otherwise, the base's metrics are reported.
    pub(super) fn has_answers(self) -> bool {
        matches!(self, Self::Maths | Self::Qa | Self::Custom)
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

/// Returns the metrics that can be computed, with the most important first.
pub(super) fn known_metrics(definition: &TaskDefinition) -> &'static [MetricDefinition] {
    let family = definition.family;
    if family.has_answers() { definition.answer_kind().metrics() } else { family.base().metrics() }
}

/// Returns the metrics that a definition reports.
pub(super) fn metrics(definition: &TaskDefinition) -> Vec<MetricDefinition> {
    let known = known_metrics(definition);
    if definition.metrics.is_empty() {
        return known.iter().filter(|metric| !metric.judged).copied().collect();
    }
    let named = |name: &String| known.iter().find(|metric| metric.name == name).copied();
    definition.metrics.iter().filter_map(named).collect()
}

/// Describes the benchmark of a definition, which must be free of problems. `reported` are the metrics of a function
/// that scores outcomes. Default: those of the definition.
pub(crate) fn describe(
    definition: &'static TaskDefinition,
    origin: Origin,
    reported: Option<&'static [MetricDefinition]>,
) -> BenchmarkDescription {
    let base = definition.family.base();
    let metrics: &'static [MetricDefinition] = reported.unwrap_or_else(|| Vec::leak(metrics(definition)));
    let figure = |figure: &'static TaskFigure| PublishedFigure {
        metric: figure.metric.as_deref().or(metrics.first().map(|metric| metric.name)).unwrap_or_default(),
        formulation: figure.formulation,
        system: &figure.system,
        percent: figure.percent,
        source: &figure.source,
    };
    let published: Vec<PublishedFigure> = definition.published.iter().map(figure).collect();
    let of_base = base.description();
    let data_file = match origin {
        Origin::TaskFile(file) => file.data_file(),
        Origin::BuiltIn | Origin::Program { .. } => definition.data.file.clone(),
    };
    BenchmarkDescription {
        origin,
        name: &definition.name,
        family: definition.family,
        title: definition.title.as_deref().unwrap_or(&definition.name),
        data_file: String::leak(data_file.to_string_lossy().into_owned()),
        formulations: match definition.formulations.as_slice() {
            [] => definition.added_family.map_or(of_base.formulations, |family| family.formulations),
            some => some,
        },
        max_rounds: Box::leak(Box::new(move |behaviour| {
            definition.max_rounds.unwrap_or_else(|| base.max_rounds(behaviour))
        })),
        modules: match (&definition.agent, definition.added_family) {
            (Some(agent), _) if agent.asks() => &QA_MODULES,
            (Some(_), _) | (None, Some(_)) => &MODULES,
            (None, None) => of_base.modules,
        },
        tools: Vec::leak(definition.called_tools()),
        prompts_hash: Box::leak(Box::new(move || {
            let hash = (base.prompts_hash(), definition.items_hash());
            match origin {
                // Functions have no hash.
                Origin::Program { version, .. } => match definition.added_family {
                    Some(family) => {
                        ContentHash::of_json(&(hash, "program", version, family.name, family.version))
                    }
                    None => ContentHash::of_json(&(hash, "program", version)),
                },
                Origin::BuiltIn | Origin::TaskFile(_) => ContentHash::of_json(&hash),
            }
        })),
        metrics,
        published: Vec::leak(published),
        published_items: definition.data.items.map(PublishedItems::All),
        downloads: &[],
        group_label: definition.fields.group.as_deref().or(of_base.group_label),
        annotation_domain: None,
        training: Training::Declared,
        samples: &[],
        open,
        read: Box::leak(Box::new(record::reader(definition))),
        score: if definition.family.has_answers() { scored(definition) } else { of_base.score },
    }
}

/// Returns the function that compares answers. Both scorings compare by value, because the original has no scripts for
/// this data; an agent with the quirks of StrategyQA's scripts is scored like StrategyQA.
fn scored(definition: &'static TaskDefinition) -> Score {
    let (kind, tolerance) = (definition.answer_kind(), definition.answer.tolerance);
    let has_quirks = definition.has_paper_quirks();
    Box::leak(Box::new(move |target: &Target, outcome: &Outcome, scoring: Scoring| match kind {
        AnswerKind::Number | AnswerKind::Value => score_value(target, outcome, tolerance),
        AnswerKind::Text => score_words(target, outcome),
        AnswerKind::YesNo if has_quirks => score_yes_or_no(target, outcome, scoring),
        AnswerKind::YesNo => score_yes_or_no(target, outcome, Scoring::Corrected),
    }))
}

/// Opens the data of a definition. An item's own name must be unique.
#[allow(clippy::needless_pass_by_value)] // signature of `BenchmarkDescription::open`
fn open(about: &'static BenchmarkDescription, source: DataSource) -> Result<Items, DataError> {
    let definition = about.definition();
    if definition.map(|definition| definition.family) == Some(TaskFamily::Web) {
        return (TaskFamily::Web.base().description().open)(about, source);
    }
    let layout = match definition.and_then(TaskDefinition::format) {
        Some(DataFormat::Csv) => Layout::Csv,
        Some(DataFormat::Parquet) => Layout::Parquet,
        Some(DataFormat::Json) => Layout::Array,
        Some(DataFormat::Jsonl) | None => Layout::Lines,
    };
    let (file, records) = open_records(about, &source, layout)?;
    let mut builder = Builder::new(about, file.clone());
    let mut lines: HashMap<String, u64> = HashMap::new();
    let id = definition.and_then(|definition| definition.fields.id.as_deref());
    let build = move |located: Located| {
        let line = located.line;
        let item = builder.build(located)?;
        if let Some(name) = &item.name
            && let Some(first) = lines.insert(name.clone(), line)
        {
            return Err(DataError::Record {
                file: file.clone(),
                line,
                field: id,
                expected: "a different value for each record".to_owned(),
                found: format!("`{name}`, as in line {first}"),
            });
        }
        Ok(item)
    };
    Ok(Box::new(records.map(build)))
}
