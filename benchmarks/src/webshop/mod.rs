//! WebShop: buying a product that matches an instruction (Yao et al. 2022; upstream
//! `eval/webshop/run_eval.py`).

mod catalogue;
mod metrics;

use lumos_environments::shop::Goal;
use lumos_tasks::families::shop::{self, Exemplars};
use lumos_tasks::{Formulation, Setup, Target, Task};
use serde::Deserialize;
use serde_json::Value;

use crate::benchmark::{
    Benchmark, BenchmarkDescription, LATER_LISTING, MODULES, Origin, PROJECT_PAGE, PublishedFigure,
    PublishedItems, Training, figure,
};
use crate::loading::{Content, RecordError, text};
use crate::task_file::TaskFamily;

pub(crate) use catalogue::stock_in;

/// First goal that is neither in the test set (0 to 499) nor in the development set (500 to 1,499).
const FIRST_TRAINING_GOAL: u64 = 1500;

/// Field of a recorded case, next to the goal, for exemplars that differ from the project's own.
pub(crate) const EXEMPLARS: &str = "exemplars";

/// The goals that Lumos evaluates: generated instructions on 1,000 products.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WebShop;

static WEBSHOP: BenchmarkDescription = BenchmarkDescription {
    origin: Origin::BuiltIn,
    name: "webshop",
    title: "WebShop",
    family: TaskFamily::Shop,
    data_file: "webshop/items_1000_documents.jsonl",
    formulations: &[Formulation::Iterative],
    max_rounds: &|_| 5,
    modules: &MODULES,
    tools: &["rank", "shop"],
    prompts_hash: &|| shop::prompts_hash(&Exemplars::shipped()),
    metrics: &metrics::ALL,
    published: &PUBLISHED,
    published_items: Some(PublishedItems::First(500)),
    downloads: &[],
    group_label: Some("Category"),
    annotation_domain: None,
    training: Training::Items(|item| item.index >= FIRST_TRAINING_GOAL),
    samples: lumos_environments::shop::SAMPLE_ITEMS.as_bytes(),
    open: catalogue::open,
    read: &read_goal,
    score: &|_, outcome, scoring| metrics::score(outcome, scoring),
};

impl Benchmark for WebShop {
    fn description(&self) -> &'static BenchmarkDescription {
        &WEBSHOP
    }
}

/// Parses a goal. A data file contains products, from which goals are generated.
fn read_goal(record: &Value) -> Result<Content, RecordError> {
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

/// Lumos on an unseen kind of task: trained on all kinds that it supports (unified), or on one of them.
const PUBLISHED: [PublishedFigure; 5] = [
    figure(&metrics::REWARD, Formulation::Iterative, "Lumos-I 7B, unified", 39.8, PROJECT_PAGE),
    figure(&metrics::REWARD, Formulation::Iterative, "Lumos-I 13B", 50.3, LATER_LISTING),
    figure(&metrics::REWARD, Formulation::Iterative, "Lumos-I 7B, web", 34.7, PROJECT_PAGE),
    figure(&metrics::REWARD, Formulation::Iterative, "Lumos-I 7B, QA", 33.5, PROJECT_PAGE),
    figure(&metrics::REWARD, Formulation::Iterative, "Lumos-I 7B, maths", 30.1, PROJECT_PAGE),
];
