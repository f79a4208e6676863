//! GSM8K: grade-school word problems (Cobbe et al. 2021; upstream `eval/gsm/run_eval.py`).

mod record;

use lumos_tasks::Formulation;
use lumos_tasks::families::maths;
use serde_json::Value;

pub(crate) use record::{gold_answer, is_zero};

use crate::benchmark::{
    Benchmark, BenchmarkDescription, Download, MODULES, Origin, PublishedItems, Training, published_maths,
};
use crate::loading::{Layout, open};
use crate::metrics::{EXACT_MATCH, score_number};
use crate::task_file::TaskFamily;

/// The GSM8K test set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gsm8k;

static GSM8K: BenchmarkDescription = BenchmarkDescription {
    origin: Origin::BuiltIn,
    name: "gsm8k",
    title: "GSM8K",
    family: TaskFamily::Maths,
    data_file: "gsm8k/test.jsonl",
    formulations: &Formulation::OF_LUMOS,
    max_rounds: &|_| 8,
    modules: &MODULES,
    tools: &["maths"],
    prompts_hash: &maths::prompts_hash,
    metrics: &[EXACT_MATCH],
    published: &published_maths([50.5, 47.1, 55.4, 45.5, 40.4]),
    published_items: Some(PublishedItems::All(1319)),
    downloads: &[Download {
        file: "gsm8k/test.jsonl",
        url: "https://raw.githubusercontent.com/openai/grade-school-math/3101c7d5072418e28b9008a6636bde82a006892c/grade_school_math/data/test.jsonl",
        sha256: "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
        licence: "MIT",
    }],
    group_label: None,
    annotation_domain: Some("maths"),
    training: Training::Unlisted(include_bytes!("../test_items/gsm8k.bin")),
    samples: include_bytes!("../../samples/gsm8k.jsonl"),
    open: |about, source| open(about, &source, Layout::Lines),
    read: &record::read,
    score: &score_number,
};

impl Benchmark for Gsm8k {
    fn description(&self) -> &'static BenchmarkDescription {
        &GSM8K
    }

    /// The original asserts `float(answer)`, which also rejects a gold answer of 0. Here such an item is
    /// valid in every behaviour; only the replay of recorded cases reports the rejection.
    fn refused_by_original(&self, record: &Value) -> Option<&'static str> {
        match self.read(record) {
            Ok(content) if is_zero(content.target.text()) => Some("AssertionError"),
            Ok(_) => None,
            Err(error) => Some(error.exception),
        }
    }
}
