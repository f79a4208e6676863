//! SVAMP: word problems with one or two operations (Patel et al. 2021; upstream `eval/svamp/run_eval.py`).

mod record;

use lumos_tasks::families::maths;
use lumos_tasks::{Behaviour, ContentHash, Formulation, Outcome, Target};
use serde_json::Value;

use crate::benchmark::{Benchmark, Download, PublishedFigure, PublishedItems, published_maths};
use crate::error::DataError;
use crate::loading::{Content, DataSource, Items, Layout, RecordError, open};
use crate::metrics::{EXACT_MATCH, MetricDefinition, score_number};
use crate::score::{ItemScore, Scoring};

/// The SVAMP challenge set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Svamp;

impl Benchmark for Svamp {
    fn name(&self) -> &'static str {
        "svamp"
    }

    fn title(&self) -> &'static str {
        "SVAMP"
    }

    fn data_file(&self) -> &'static str {
        "svamp/test.json"
    }

    fn formulations(&self) -> &'static [Formulation] {
        &Formulation::OF_LUMOS
    }

    /// The published script stops after two planner turns, even if the planner is not done.
    fn max_rounds(&self, behaviour: Behaviour) -> u32 {
        match behaviour {
            Behaviour::Paper => 2,
            Behaviour::Corrected => 8,
        }
    }

    fn prompts_hash(&self) -> ContentHash {
        maths::prompts_hash()
    }

    fn metrics(&self) -> &'static [MetricDefinition] {
        &[EXACT_MATCH]
    }

    fn published(&self) -> &'static [PublishedFigure] {
        const PUBLISHED: [PublishedFigure; 5] = published_maths([65.5, 63.6, 69.3, 61.7, 52.2]);
        &PUBLISHED
    }

    fn published_items(&self) -> Option<PublishedItems> {
        Some(PublishedItems::All(1000))
    }

    fn downloads(&self) -> &'static [Download] {
        &[Download {
            file: "svamp/test.json",
            url: "https://raw.githubusercontent.com/arkilpatel/SVAMP/689d7cc/SVAMP.json",
            sha256: "5be77703a6d891ae476d7c082787ad361392aa02453b132516cdd5f4e7934e3e",
            licence: "MIT",
        }]
    }

    fn group_label(&self) -> Option<&'static str> {
        Some("Type")
    }

    fn samples(&self) -> &'static [u8] {
        include_bytes!("../../samples/svamp.json")
    }

    fn open(&self, source: DataSource) -> Result<Items, DataError> {
        open(self.name(), &source, self.samples(), Layout::Array, record::read)
    }

    fn read(&self, record: &Value) -> Result<Content, RecordError> {
        record::read(record)
    }

    fn score(&self, target: &Target, outcome: &Outcome, scoring: Scoring) -> Option<ItemScore> {
        score_number(target, outcome, scoring)
    }
}
