//! SVAMP: word problems with one or two operations (Patel et al. 2021; upstream `eval/svamp/run_eval.py`).

mod record;

use lumos_tasks::families::maths;
use lumos_tasks::{Behaviour, Formulation};

use crate::benchmark::{
    Benchmark, BenchmarkDescription, Download, MODULES, Origin, PublishedItems, Training, published_maths,
};
use crate::loading::{Layout, open};
use crate::metrics::{EXACT_MATCH, score_number};
use crate::task_file::TaskFamily;

/// The SVAMP challenge set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Svamp;

static SVAMP: BenchmarkDescription = BenchmarkDescription {
    origin: Origin::BuiltIn,
    name: "svamp",
    title: "SVAMP",
    family: TaskFamily::Maths,
    data_file: "svamp/test.json",
    formulations: &Formulation::OF_LUMOS,
    // The published script stops after two planner turns, even if the planner is not done.
    max_rounds: &|behaviour| match behaviour {
        Behaviour::Paper => 2,
        Behaviour::Corrected => 8,
    },
    modules: &MODULES,
    tools: &["maths"],
    prompts_hash: &maths::prompts_hash,
    metrics: &[EXACT_MATCH],
    published: &published_maths([65.5, 63.6, 69.3, 61.7, 52.2]),
    published_items: Some(PublishedItems::All(1000)),
    downloads: &[Download {
        file: "svamp/test.json",
        url: "https://raw.githubusercontent.com/arkilpatel/SVAMP/689d7cc/SVAMP.json",
        sha256: "5be77703a6d891ae476d7c082787ad361392aa02453b132516cdd5f4e7934e3e",
        licence: "MIT",
    }],
    group_label: Some("Type"),
    annotation_domain: Some("maths"),
    training: Training::Unlisted(include_bytes!("../test_items/svamp.bin")),
    samples: include_bytes!("../../samples/svamp.json"),
    open: |about, source| open(about, &source, Layout::Array),
    read: &record::read,
    score: &score_number,
};

impl Benchmark for Svamp {
    fn description(&self) -> &'static BenchmarkDescription {
        &SVAMP
    }
}
