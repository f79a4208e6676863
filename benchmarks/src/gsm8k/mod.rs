//! GSM8K: grade-school word problems (Cobbe et al. 2021; upstream `eval/gsm/run_eval.py`).

mod record;

use lumos_tasks::families::maths;
use lumos_tasks::{Behaviour, ContentHash, Formulation, Outcome, Target};
use serde_json::Value;

pub(crate) use record::{gold_answer, is_zero};

use crate::benchmark::{Benchmark, Download, PublishedFigure, PublishedItems, published_maths};
use crate::error::DataError;
use crate::loading::{Content, DataSource, Items, Layout, RecordError, open};
use crate::metrics::{EXACT_MATCH, MetricDefinition, score_number};
use crate::score::{ItemScore, Scoring};

/// The GSM8K test set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gsm8k;

impl Benchmark for Gsm8k {
    fn name(&self) -> &'static str {
        "gsm8k"
    }

    fn title(&self) -> &'static str {
        "GSM8K"
    }

    fn data_file(&self) -> &'static str {
        "gsm8k/test.jsonl"
    }

    fn formulations(&self) -> &'static [Formulation] {
        &Formulation::OF_LUMOS
    }

    fn max_rounds(&self, _behaviour: Behaviour) -> u32 {
        8
    }

    fn prompts_hash(&self) -> ContentHash {
        maths::prompts_hash()
    }

    fn metrics(&self) -> &'static [MetricDefinition] {
        &[EXACT_MATCH]
    }

    fn published(&self) -> &'static [PublishedFigure] {
        const PUBLISHED: [PublishedFigure; 5] = published_maths([50.5, 47.1, 55.4, 45.5, 40.4]);
        &PUBLISHED
    }

    fn published_items(&self) -> Option<PublishedItems> {
        Some(PublishedItems::All(1319))
    }

    fn downloads(&self) -> &'static [Download] {
        &[Download {
            file: "gsm8k/test.jsonl",
            url: "https://raw.githubusercontent.com/openai/grade-school-math/3101c7d5072418e28b9008a6636bde82a006892c/grade_school_math/data/test.jsonl",
            sha256: "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
            licence: "MIT",
        }]
    }

    fn samples(&self) -> &'static [u8] {
        include_bytes!("../../samples/gsm8k.jsonl")
    }

    fn open(&self, source: DataSource) -> Result<Items, DataError> {
        open(self.name(), &source, self.samples(), Layout::Lines, record::read)
    }

    fn read(&self, record: &Value) -> Result<Content, RecordError> {
        record::read(record)
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

    fn score(&self, target: &Target, outcome: &Outcome, scoring: Scoring) -> Option<ItemScore> {
        score_number(target, outcome, scoring)
    }
}
