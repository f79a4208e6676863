//! StrategyQA: yes-or-no questions that require implicit steps (Geva et al. 2021; upstream
//! `eval/strategyqa/run_eval.py`).

mod record;

use lumos_tasks::families::qa;
use lumos_tasks::{Behaviour, ContentHash, Formulation, Outcome, Role, Target};
use serde_json::Value;

use crate::benchmark::{
    Benchmark, Download, LATER_LISTING, PROJECT_PAGE, PublishedFigure, PublishedItems, QA_TOOLS, qa_roles,
};
use crate::error::DataError;
use crate::loading::{Content, DataSource, Items, Layout, RecordError, open};
use crate::metrics::{ACCURACY, MetricDefinition, score_yes_or_no};
use crate::score::{ItemScore, Scoring};

/// StrategyQA's training and development sets combined, which Lumos uses for testing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StrategyQa;

impl Benchmark for StrategyQa {
    fn name(&self) -> &'static str {
        "strategyqa"
    }

    fn title(&self) -> &'static str {
        "StrategyQA"
    }

    fn data_file(&self) -> &'static str {
        "strategyqa/test.json"
    }

    fn formulations(&self) -> &'static [Formulation] {
        &Formulation::OF_LUMOS
    }

    fn max_rounds(&self, _behaviour: Behaviour) -> u32 {
        5
    }

    fn roles(&self, formulation: Formulation) -> &'static [Role] {
        qa_roles(formulation)
    }

    fn tools(&self) -> &'static [&'static str] {
        &QA_TOOLS
    }

    fn prompts_hash(&self) -> ContentHash {
        qa::prompts_hash()
    }

    fn metrics(&self) -> &'static [MetricDefinition] {
        &[ACCURACY]
    }

    fn published(&self) -> &'static [PublishedFigure] {
        &PUBLISHED
    }

    fn published_items(&self) -> Option<PublishedItems> {
        Some(PublishedItems::First(300))
    }

    fn downloads(&self) -> &'static [Download] {
        &[Download {
            file: "strategyqa/test.json",
            url: "https://raw.githubusercontent.com/allenai/lumos/146dd9d61bb295582e9e432980f60b9ff4ecfe5c/data/eval/strategyqa/test.json",
            sha256: "bdce966d45be45b362e005af03ed0bf7ae2ed2c4a5f5a03955ec72b4df933637",
            licence: "MIT",
        }]
    }

    fn samples(&self) -> &'static [u8] {
        include_bytes!("../../samples/strategyqa.json")
    }

    fn sample_corpus(&self) -> Option<&'static [u8]> {
        Some(lumos_environments::retrieval::STRATEGYQA_PAGES.as_bytes())
    }

    /// In addition to the Lumos file and the official files, reads the BIG-bench task file, whose records are
    /// in the field `examples`.
    fn open(&self, source: DataSource) -> Result<Items, DataError> {
        open(self.name(), &source, self.samples(), Layout::EitherOrMember("examples"), record::read)
    }

    fn read(&self, record: &Value) -> Result<Content, RecordError> {
        record::read(record)
    }

    fn read_as_original(&self, record: &Value) -> Result<Content, RecordError> {
        record::read_as_original(record)
    }

    fn score(&self, target: &Target, outcome: &Outcome, scoring: Scoring) -> Option<ItemScore> {
        score_yes_or_no(target, outcome, scoring)
    }
}

const PUBLISHED: [PublishedFigure; 6] = [
    figure(Formulation::OneTime, "Lumos-O 7B", 60.6, PROJECT_PAGE),
    figure(Formulation::Iterative, "Lumos-I 7B", 65.7, PROJECT_PAGE),
    figure(Formulation::Iterative, "Lumos-I 7B, GPT-4 as QA tool", 72.4, PROJECT_PAGE),
    figure(Formulation::Iterative, "Lumos-I 13B", 76.7, LATER_LISTING),
    figure(Formulation::Integrated, "integrated training 7B", 62.3, PROJECT_PAGE),
    figure(Formulation::Cot, "chain of thought 7B", 58.3, PROJECT_PAGE),
];

const fn figure(
    formulation: Formulation,
    system: &'static str,
    percent: f64,
    source: &'static str,
) -> PublishedFigure {
    PublishedFigure { metric: ACCURACY.name, formulation, system, percent, source }
}
