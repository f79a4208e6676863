//! StrategyQA: yes-or-no questions that require implicit steps (Geva et al. 2021; upstream
//! `eval/strategyqa/run_eval.py`).

mod record;

pub(crate) use record::as_python_text;

use lumos_tasks::Formulation;
use lumos_tasks::families::qa;
use serde_json::Value;

use crate::benchmark::{
    Benchmark, BenchmarkDescription, Download, LATER_LISTING, Origin, PROJECT_PAGE, PublishedFigure,
    PublishedItems, QA_MODULES, QA_TOOLS, Training, figure,
};
use crate::loading::{Content, Layout, RecordError, open};
use crate::metrics::{ACCURACY, score_yes_or_no};
use crate::task_file::TaskFamily;

/// StrategyQA's training and development sets combined, which Lumos uses for testing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StrategyQa;

static STRATEGYQA: BenchmarkDescription = BenchmarkDescription {
    origin: Origin::BuiltIn,
    name: "strategyqa",
    title: "StrategyQA",
    family: TaskFamily::Qa,
    data_file: "strategyqa/test.json",
    formulations: &Formulation::OF_LUMOS,
    max_rounds: &|_| 5,
    modules: &QA_MODULES,
    tools: &QA_TOOLS,
    prompts_hash: &qa::prompts_hash,
    metrics: &[ACCURACY],
    published: &PUBLISHED,
    published_items: Some(PublishedItems::First(300)),
    downloads: &[Download {
        file: "strategyqa/test.json",
        url: "https://raw.githubusercontent.com/allenai/lumos/146dd9d61bb295582e9e432980f60b9ff4ecfe5c/data/eval/strategyqa/test.json",
        sha256: "bdce966d45be45b362e005af03ed0bf7ae2ed2c4a5f5a03955ec72b4df933637",
        licence: "MIT",
    }],
    group_label: None,
    annotation_domain: Some("complex_qa"),
    training: Training::Unlisted(include_bytes!("../test_items/strategyqa.bin")),
    samples: include_bytes!("../../samples/strategyqa.json"),
    // In addition to the Lumos file and the official files, reads the BIG-bench task file, whose records are
    // in the field `examples`.
    open: |about, source| open(about, &source, Layout::EitherOrMember("examples")),
    read: &record::read,
    score: &score_yes_or_no,
};

impl Benchmark for StrategyQa {
    fn description(&self) -> &'static BenchmarkDescription {
        &STRATEGYQA
    }

    fn sample_corpus(&self) -> Option<&'static [u8]> {
        Some(lumos_environments::retrieval::STRATEGYQA_PAGES.as_bytes())
    }

    fn read_as_original(&self, record: &Value) -> Result<Content, RecordError> {
        record::read_as_original(record)
    }
}

const PUBLISHED: [PublishedFigure; 6] = [
    figure(&ACCURACY, Formulation::OneTime, "Lumos-O 7B", 60.6, PROJECT_PAGE),
    figure(&ACCURACY, Formulation::Iterative, "Lumos-I 7B", 65.7, PROJECT_PAGE),
    figure(&ACCURACY, Formulation::Iterative, "Lumos-I 7B, GPT-4 as QA tool", 72.4, PROJECT_PAGE),
    figure(&ACCURACY, Formulation::Iterative, "Lumos-I 13B", 76.7, LATER_LISTING),
    figure(&ACCURACY, Formulation::Integrated, "integrated training 7B", 62.3, PROJECT_PAGE),
    figure(&ACCURACY, Formulation::Cot, "chain of thought 7B", 58.3, PROJECT_PAGE),
];
