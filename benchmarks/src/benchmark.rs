//! What every benchmark offers.

use lumos_tasks::{Behaviour, Configuration, ContentHash, Formulation, Outcome, Role, Target};

use crate::error::LoadError;
use crate::loading::{Content, DataSource, Items, RecordError};
use crate::metrics::MetricDefinition;
use crate::score::{ItemScore, Scoring};

/// A data set, how its items are read and scored, and what was published about it.
pub trait Benchmark: Send + Sync {
    /// The name on the command line and in files: `gsm8k`.
    fn name(&self) -> &'static str;

    /// The name in reports: `GSM8K`.
    fn title(&self) -> &'static str;

    /// The data file, relative to the data folder.
    fn data_file(&self) -> &'static str;

    /// The formulations it can be run in.
    fn formulations(&self) -> &'static [Formulation];

    /// The most planner turns of an iterative episode.
    fn max_rounds(&self, behaviour: Behaviour) -> u32;

    /// The models an episode asks, in the order of reports.
    fn roles(&self, formulation: Formulation) -> &'static [Role] {
        if formulation.has_modules() { &[Role::Planner, Role::Grounder] } else { &[Role::Answerer] }
    }

    /// Whether its episodes draw something at random even if decoding is greedy, so that seeds matter.
    fn draws(&self) -> bool {
        false
    }

    /// The tools an episode with modules may call, sorted; the models behind [`Role::Qa`] are none of them.
    fn tools(&self) -> &'static [&'static str] {
        &["maths"]
    }

    /// Hash of the prompt texts its episodes use.
    fn prompts_hash(&self) -> ContentHash;

    /// The metrics its scores hold, the most important first.
    fn metrics(&self) -> &'static [MetricDefinition];

    /// Whether a metric has figures under a configuration; some take a backend that not every run has.
    fn is_measured(&self, _metric: &MetricDefinition, _configuration: &Configuration) -> bool {
        true
    }

    /// Published figures to compare with.
    fn published(&self) -> &'static [PublishedFigure];

    /// The items that published figures are over; `None` if they cannot be identified.
    fn published_items(&self) -> Option<PublishedItems>;

    /// Where its files can be had.
    fn downloads(&self) -> &'static [Download];

    /// What its groups are called, where figures are broken down (SVAMP: `Type`).
    fn group_label(&self) -> Option<&'static str> {
        None
    }

    /// The samples built into the program, in the official format.
    fn samples(&self) -> &'static [u8];

    /// The passages the built-in samples can be answered from, JSON lines of `title` and `text`, where the benchmark's
    /// episodes look things up.
    fn sample_corpus(&self) -> Option<&'static [u8]> {
        None
    }

    /// Opens a data file, or the built-in samples, as a stream of items.
    ///
    /// A malformed record is an error in the stream; the stream goes on behind it where it can
    /// ([`LoadError::is_skippable`]).
    ///
    /// # Errors
    /// If the file cannot be read or holds no record at all.
    fn open(&self, source: DataSource) -> Result<Items, LoadError>;

    /// Reads one raw record.
    ///
    /// # Errors
    /// If the record is no item of this benchmark: the field, what was expected there and what stood there.
    fn read(&self, record: &serde_json::Value) -> Result<Content, RecordError>;

    /// Reads one raw record as the original does, which lets some pass that are no items: for the replay of recorded
    /// cases.
    ///
    /// # Errors
    /// If the original refuses the record too.
    fn read_as_original(&self, record: &serde_json::Value) -> Result<Content, RecordError> {
        self.read(record)
    }

    /// The name of the exception with which the original evaluation refuses a record, and with it the whole
    /// run. Beside malformed records those that the original refuses by mistake.
    fn refused_by_original(&self, record: &serde_json::Value) -> Option<&'static str> {
        self.read_as_original(record).err().map(|error| error.exception)
    }

    /// Scores an outcome; `None` where the infrastructure failed, which says nothing about the agent.
    fn score(&self, target: &Target, outcome: &Outcome, scoring: Scoring) -> Option<ItemScore>;
}

/// A published figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PublishedFigure {
    /// The metric.
    pub metric: &'static str,
    /// How the modules took turns.
    pub formulation: Formulation,
    /// What was measured, in the words of the publication: `Lumos-I 7B`.
    pub system: &'static str,
    /// The figure in percent.
    pub percent: f64,
    /// Where it was published.
    pub source: &'static str,
}

/// The items of a benchmark's data file that published figures are over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishedItems {
    /// All of the file, so many.
    All(u64),
    /// The first so many of a larger file.
    First(u64),
}

impl PublishedItems {
    /// How many they are.
    pub fn count(self) -> u64 {
        match self {
            Self::All(count) | Self::First(count) => count,
        }
    }
}

/// A file that can be downloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Download {
    /// Where it belongs, relative to the data folder.
    pub file: &'static str,
    /// Where it can be had.
    pub url: &'static str,
    /// SHA-256 of its content.
    pub sha256: &'static str,
    /// The licence it comes under.
    pub licence: &'static str,
}

/// The tools of the question-answering benchmarks. Corrected behaviour calculates what can be calculated.
pub(crate) const QA_TOOLS: [&str; 3] = ["maths", "rank", "wiki"];

/// The models of the question-answering benchmarks: where there are tools one of them is a chat model.
pub(crate) fn qa_roles(formulation: Formulation) -> &'static [Role] {
    if formulation.has_modules() { &[Role::Planner, Role::Grounder, Role::Qa] } else { &[Role::Answerer] }
}

/// The project page's tables (7B).
pub(crate) const PROJECT_PAGE: &str = "Lumos project page";
/// The listing of the later version's results (13B).
pub(crate) const LATER_LISTING: &str = "listing of the later version's results";

/// The five published figures every mathematics benchmark has, in the order Lumos-O 7B, Lumos-I 7B, the later
/// 13B, integrated training, chain of thought.
pub(crate) const fn published_maths(percents: [f64; 5]) -> [PublishedFigure; 5] {
    const fn figure(
        formulation: Formulation,
        system: &'static str,
        percent: f64,
        source: &'static str,
    ) -> PublishedFigure {
        PublishedFigure { metric: crate::metrics::EXACT_MATCH.name, formulation, system, percent, source }
    }
    [
        figure(Formulation::OneTime, "Lumos-O 7B", percents[0], PROJECT_PAGE),
        figure(Formulation::Iterative, "Lumos-I 7B", percents[1], PROJECT_PAGE),
        figure(Formulation::Iterative, "Lumos-I 13B", percents[2], LATER_LISTING),
        figure(Formulation::Integrated, "integrated training 7B", percents[3], PROJECT_PAGE),
        figure(Formulation::Cot, "chain of thought 7B", percents[4], PROJECT_PAGE),
    ]
}
