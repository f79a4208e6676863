//! WebShop: buying a product that matches an instruction (Yao et al. 2022; upstream
//! `eval/webshop/run_eval.py`).

mod catalogue;
mod metrics;

use lumos_environments::shop::Goal;
use lumos_tasks::families::shop::{self, Exemplars};
use lumos_tasks::{Behaviour, ContentHash, Formulation, Outcome, Setup, Target, Task};
use serde::Deserialize;
use serde_json::Value;

use crate::benchmark::{Benchmark, Download, LATER_LISTING, PROJECT_PAGE, PublishedFigure, PublishedItems};
use crate::error::DataError;
use crate::loading::{Content, DataSource, Items, RecordError, text};
use crate::metrics::MetricDefinition;
use crate::score::{ItemScore, Scoring};

pub(crate) use catalogue::stock_in;

/// Field of a recorded case, next to the goal, for exemplars that differ from the project's own.
pub(crate) const EXEMPLARS: &str = "exemplars";

/// The goals that Lumos evaluates: generated instructions on 1,000 products.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WebShop;

impl Benchmark for WebShop {
    fn name(&self) -> &'static str {
        "webshop"
    }

    fn title(&self) -> &'static str {
        "WebShop"
    }

    fn data_file(&self) -> &'static str {
        "webshop/items_1000_documents.jsonl"
    }

    fn formulations(&self) -> &'static [Formulation] {
        &[Formulation::Iterative]
    }

    fn max_rounds(&self, _behaviour: Behaviour) -> u32 {
        5
    }

    fn tools(&self) -> &'static [&'static str] {
        &["rank", "shop"]
    }

    fn prompts_hash(&self) -> ContentHash {
        shop::prompts_hash(&Exemplars::shipped())
    }

    fn metrics(&self) -> &'static [MetricDefinition] {
        &metrics::ALL
    }

    fn published(&self) -> &'static [PublishedFigure] {
        &PUBLISHED
    }

    fn published_items(&self) -> Option<PublishedItems> {
        Some(PublishedItems::First(500))
    }

    fn downloads(&self) -> &'static [Download] {
        &[]
    }

    fn samples(&self) -> &'static [u8] {
        lumos_environments::shop::SAMPLE_ITEMS.as_bytes()
    }

    fn open(&self, source: DataSource) -> Result<Items, DataError> {
        catalogue::open(self.name(), &source, |goal| Self.read(goal))
    }

    /// Parses a goal. A data file contains products, from which goals are generated.
    fn read(&self, record: &Value) -> Result<Content, RecordError> {
        let instruction = text(record, "instruction_text")?.to_owned();
        let goal: Goal = serde_json::from_value(record.clone())
            .map_err(|error| RecordError::new("goal", "a goal", error.to_string(), "KeyError"))?;
        let exemplars = record.get(EXEMPLARS).and_then(|exemplars| Exemplars::deserialize(exemplars).ok());
        Ok(Content {
            name: None,
            group: Some(goal.category),
            task: Task::Shop { instruction, exemplars },
            setup: Setup::Shop { goal: record.clone() },
            target: Target::Text { answer: goal.asin },
        })
    }

    fn group_label(&self) -> Option<&'static str> {
        Some("Category")
    }

    fn score(&self, _target: &Target, outcome: &Outcome, scoring: Scoring) -> Option<ItemScore> {
        metrics::score(outcome, scoring)
    }
}

/// Lumos on an unseen kind of task: trained on all kinds that it supports (unified), or on one of them.
const PUBLISHED: [PublishedFigure; 5] = [
    figure("Lumos-I 7B, unified", 39.8, PROJECT_PAGE),
    figure("Lumos-I 13B", 50.3, LATER_LISTING),
    figure("Lumos-I 7B, web", 34.7, PROJECT_PAGE),
    figure("Lumos-I 7B, QA", 33.5, PROJECT_PAGE),
    figure("Lumos-I 7B, maths", 30.1, PROJECT_PAGE),
];

const fn figure(system: &'static str, percent: f64, source: &'static str) -> PublishedFigure {
    PublishedFigure {
        metric: metrics::REWARD.name,
        formulation: Formulation::Iterative,
        system,
        percent,
        source,
    }
}
