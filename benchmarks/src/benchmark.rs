//! The [`Benchmark`] trait and the published figures.
//!
//! A benchmark reads its items from a data file, lists the formulations, roles and tools of its episodes,
//! scores outcomes and provides [`PublishedFigure`]s. The registry lists the implementations.

use std::path::Path;
use std::sync::Arc;

use lumos_tasks::families::agent::AgentDefinition;
use lumos_tasks::{Behaviour, Configuration, ContentHash, Formulation, Item, Outcome, Role, Target};

use crate::error::DataError;
use crate::loading::{Content, DataSource, Items, RecordError};
use crate::metrics::MetricDefinition;
use crate::score::{ItemScore, Scoring};
use crate::task_file::{TaskDefinition, TaskFamily, TaskFile};

/// A data set: how to read and score its items, and its published figures.
///
/// ```
/// use lumos_benchmarks::{DataSource, get};
///
/// let gsm8k = get("gsm8k")?;
/// for item in gsm8k.open(DataSource::Samples)? {
///     let item = item?;
///     println!("{}: {} (gold answer {})", item.index, item.record["question"], item.target.text());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Benchmark: Send + Sync {
    /// Its properties.
    fn description(&self) -> &'static BenchmarkDescription;

    /// Name on the command line and in files: `gsm8k`.
    fn name(&self) -> &'static str {
        self.description().name
    }

    /// Name in reports: `GSM8K`.
    fn title(&self) -> &'static str {
        self.description().title
    }

    /// The task file, if one describes the benchmark.
    fn task_file(&self) -> Option<&'static TaskFile> {
        match self.description().origin {
            Origin::TaskFile(file) => Some(file),
            Origin::BuiltIn | Origin::Program { .. } => None,
        }
    }

    /// The definition, if the benchmark is not built in.
    fn definition(&self) -> Option<&'static TaskDefinition> {
        self.description().definition()
    }

    /// The version, if a program adds the benchmark ([`BenchmarkBuilder`](crate::BenchmarkBuilder)).
    fn version(&self) -> Option<u32> {
        match self.description().origin {
            Origin::Program { version, .. } => Some(version),
            Origin::BuiltIn | Origin::TaskFile(_) => None,
        }
    }

    /// The agent, if it is not built in.
    fn agent(&self) -> Option<Arc<AgentDefinition>> {
        None
    }

    /// Where a run reads its items: the file of its task file, otherwise its file in the data folder, otherwise the
    /// built-in samples.
    fn source(&self, data: Option<&Path>) -> DataSource {
        match (self.task_file(), data) {
            (Some(own), _) => DataSource::File(own.data_file()),
            (None, Some(folder)) => DataSource::File(folder.join(self.data_file())),
            (None, None) => DataSource::Samples,
        }
    }

    /// Path of the data file, relative to the data folder.
    fn data_file(&self) -> &'static str {
        self.description().data_file
    }

    /// Supported formulations.
    fn formulations(&self) -> &'static [Formulation] {
        self.description().formulations
    }

    /// Maximum number of planner turns of an iterative episode.
    fn max_rounds(&self, behaviour: Behaviour) -> u32 {
        (self.description().max_rounds)(behaviour)
    }

    /// Roles of the models that an episode uses, in the order of reports.
    fn roles(&self, formulation: Formulation) -> &'static [Role] {
        if formulation.has_modules() { self.description().modules } else { &[Role::Answerer] }
    }

    /// Whether episodes depend on the seed even with greedy decoding, because they draw at random.
    fn draws(&self) -> bool {
        false
    }

    /// Tools that an episode with modules may call, sorted. Models with [`Role::Qa`] are not included.
    fn tools(&self) -> &'static [&'static str] {
        self.description().tools
    }

    /// Hash of the prompt texts of its episodes.
    fn prompts_hash(&self) -> ContentHash {
        (self.description().prompts_hash)()
    }

    /// Metrics of its scores, with the most important first.
    fn metrics(&self) -> &'static [MetricDefinition] {
        self.description().metrics
    }

    /// Whether a metric is measured under a configuration; some metrics need a backend that not every run
    /// has.
    fn is_measured(&self, _metric: &MetricDefinition, _configuration: &Configuration) -> bool {
        true
    }

    /// Metrics that are measured under a configuration, with the most important first.
    fn measured_metrics(&self, configuration: &Configuration) -> Vec<MetricDefinition> {
        let is_measured = |metric: &&MetricDefinition| self.is_measured(metric, configuration);
        self.metrics().iter().filter(is_measured).copied().collect()
    }

    /// Published figures for comparison.
    fn published(&self) -> &'static [PublishedFigure] {
        self.description().published
    }

    /// Items on which the published figures were measured; `None` if they cannot be identified.
    fn published_items(&self) -> Option<PublishedItems> {
        self.description().published_items
    }

    /// Files that can be downloaded.
    fn downloads(&self) -> &'static [Download] {
        self.description().downloads
    }

    /// Label of its groups, if figures are also reported by group (SVAMP: `Type`).
    fn group_label(&self) -> Option<&'static str> {
        self.description().group_label
    }

    /// Family of its agent.
    fn family(&self) -> TaskFamily {
        self.description().family
    }

    /// Name of its domain in the published annotations, if they have it: `complex_qa`.
    fn annotation_domain(&self) -> Option<&'static str> {
        self.description().annotation_domain
    }

    /// Name of the cluster of an item whose score is not independent of others: questions about the same database,
    /// tasks on the same website. `None` if items are independent.
    fn cluster(&self, _item: &Item) -> Option<String> {
        None
    }

    /// The built-in samples, in the official format.
    fn samples(&self) -> &'static [u8] {
        self.description().samples
    }

    /// Passages that answer the built-in samples, as JSON lines with `title` and `text`, if the benchmark's
    /// episodes retrieve passages.
    fn sample_corpus(&self) -> Option<&'static [u8]> {
        None
    }

    /// Opens a data file or the built-in samples as a stream of items.
    ///
    /// A malformed record is an error in the stream. The stream continues after it if possible
    /// ([`DataError::is_skippable`]).
    ///
    /// # Errors
    /// If the file cannot be read or contains no records.
    fn open(&self, source: DataSource) -> Result<Items, DataError> {
        (self.description().open)(self.description(), source)
    }

    /// Parses a raw record.
    ///
    /// # Errors
    /// If the record is not a valid item of this benchmark: the field, the expected and the found value.
    fn read(&self, record: &serde_json::Value) -> Result<Content, RecordError> {
        (self.description().read)(record)
    }

    /// Parses a raw record as the original does, which accepts some invalid records. Used for replaying
    /// recorded cases.
    ///
    /// # Errors
    /// If the original also rejects the record.
    fn read_as_original(&self, record: &serde_json::Value) -> Result<Content, RecordError> {
        self.read(record)
    }

    /// Name of the exception with which the original evaluation rejects a record and ends the whole run.
    /// Includes valid records that the original rejects by mistake.
    fn refused_by_original(&self, record: &serde_json::Value) -> Option<&'static str> {
        self.read_as_original(record).err().map(|error| error.exception)
    }

    /// Scores an outcome; `None` for a fault, which is never scored.
    fn score(&self, target: &Target, outcome: &Outcome, scoring: Scoring) -> Option<ItemScore> {
        (self.description().score)(target, outcome, scoring)
    }
}

/// Properties of a [`Benchmark`]; each field is described at the method of the same name.
pub struct BenchmarkDescription {
    pub(crate) origin: Origin,
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) family: TaskFamily,
    pub(crate) data_file: &'static str,
    pub(crate) formulations: &'static [Formulation],
    pub(crate) max_rounds: &'static (dyn Fn(Behaviour) -> u32 + Send + Sync),
    /// Roles of the models in formulations with modules.
    pub(crate) modules: &'static [Role],
    pub(crate) tools: &'static [&'static str],
    pub(crate) prompts_hash: &'static (dyn Fn() -> ContentHash + Send + Sync),
    pub(crate) metrics: &'static [MetricDefinition],
    pub(crate) published: &'static [PublishedFigure],
    pub(crate) published_items: Option<PublishedItems>,
    pub(crate) downloads: &'static [Download],
    pub(crate) group_label: Option<&'static str>,
    /// Name of its domain in the published annotations, if they have it.
    pub(crate) annotation_domain: Option<&'static str>,
    /// Which items are known to be in no test set.
    pub(crate) training: Training,
    pub(crate) samples: &'static [u8],
    pub(crate) open: Open,
    pub(crate) read: Read,
    pub(crate) score: Score,
}

/// Which items of a benchmark may become training data.
#[derive(Clone, Copy)]
pub(crate) enum Training {
    /// Those of other files than the official one, whose fingerprint is not in this list of its test set.
    Unlisted(&'static [u8]),
    /// Those that the function accepts.
    Items(fn(&Item) -> bool),
    /// Those of a definition that declares it.
    Declared,
}

/// What describes a benchmark.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin {
    /// This crate.
    BuiltIn,
    /// A task file.
    TaskFile(&'static TaskFile),
    /// A program that uses this crate.
    Program { definition: &'static TaskDefinition, version: u32 },
}

impl BenchmarkDescription {
    /// The definition, if the benchmark is not built in.
    pub(crate) fn definition(&self) -> Option<&'static TaskDefinition> {
        match self.origin {
            Origin::BuiltIn => None,
            Origin::TaskFile(file) => Some(&file.definition),
            Origin::Program { definition, .. } => Some(definition),
        }
    }
}

pub(crate) type Open = fn(&'static BenchmarkDescription, DataSource) -> Result<Items, DataError>;
pub(crate) type Read = &'static (dyn Fn(&serde_json::Value) -> Result<Content, RecordError> + Send + Sync);
pub(crate) type Score = &'static (dyn Fn(&Target, &Outcome, Scoring) -> Option<ItemScore> + Send + Sync);

/// A published figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PublishedFigure {
    /// The metric.
    pub metric: &'static str,
    /// The formulation.
    pub formulation: Formulation,
    /// The measured system as named in the publication: `Lumos-I 7B`.
    pub system: &'static str,
    /// The figure in percent.
    pub percent: f64,
    /// The publication.
    pub source: &'static str,
}

/// Items of a benchmark's data file on which published figures were measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishedItems {
    /// All items of the file, this many.
    All(u64),
    /// The first items of a larger file, this many.
    First(u64),
}

impl PublishedItems {
    /// Number of items.
    pub fn count(self) -> u64 {
        match self {
            Self::All(count) | Self::First(count) => count,
        }
    }
}

/// A file that can be downloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Download {
    /// Target path, relative to the data folder.
    pub file: &'static str,
    /// URL of the file.
    pub url: &'static str,
    /// SHA-256 of its content.
    pub sha256: &'static str,
    /// Licence of the file.
    pub licence: &'static str,
}

/// Roles of the models in formulations with modules.
pub(crate) const MODULES: [Role; 2] = [Role::Planner, Role::Grounder];

/// The same for the question-answering benchmarks, whose tools also use a chat model.
pub(crate) const QA_MODULES: [Role; 3] = [Role::Planner, Role::Grounder, Role::Qa];

/// Tools of the question-answering benchmarks. Includes maths, which behaviour `corrected` uses for
/// calculations.
pub(crate) const QA_TOOLS: [&str; 3] = ["maths", "rank", "wiki"];

/// The tables of the project page (7B).
pub(crate) const PROJECT_PAGE: &str = "Lumos project page";
/// The list of results of the later version (13B).
pub(crate) const LATER_LISTING: &str = "listing of the later version's results";

/// A published figure.
pub(crate) const fn figure(
    metric: &MetricDefinition,
    formulation: Formulation,
    system: &'static str,
    percent: f64,
    source: &'static str,
) -> PublishedFigure {
    PublishedFigure { metric: metric.name, formulation, system, percent, source }
}

/// The five published figures of every maths benchmark, in the order Lumos-O 7B, Lumos-I 7B, the later 13B,
/// integrated training, chain of thought.
pub(crate) const fn published_maths(percents: [f64; 5]) -> [PublishedFigure; 5] {
    let metric = &crate::metrics::EXACT_MATCH;
    [
        figure(metric, Formulation::OneTime, "Lumos-O 7B", percents[0], PROJECT_PAGE),
        figure(metric, Formulation::Iterative, "Lumos-I 7B", percents[1], PROJECT_PAGE),
        figure(metric, Formulation::Iterative, "Lumos-I 13B", percents[2], LATER_LISTING),
        figure(metric, Formulation::Integrated, "integrated training 7B", percents[3], PROJECT_PAGE),
        figure(metric, Formulation::Cot, "chain of thought 7B", percents[4], PROJECT_PAGE),
    ]
}
