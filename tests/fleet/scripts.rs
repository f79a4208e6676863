//! Scripted agents that use the gold solutions, as recorded cases for `script:` models: one per line.

use std::sync::Arc;

use lumos_benchmarks::{DataSource, get, replay};
use lumos_tasks::Formulation;
use lumos_tasks::recorded::Case;
use lumos_tools::ToolSets;
use lumos_tools::sessions::catalogue::ShopFiles;
use tokio::runtime::Runtime;

#[path = "../../examples/script_sql/author.rs"]
mod databases;
#[path = "../../examples/script_pages/author.rs"]
mod pages_author;
#[path = "../../examples/script_questions/author.rs"]
mod questions_author;
#[path = "../../examples/script_shopping/author.rs"]
mod shopping;

fn line(case: &Case) -> String {
    format!("{}\n", serde_json::to_string(case).unwrap())
}

/// Scripts the first sample goals with a shop driver.
pub(crate) fn goals(count: usize) -> String {
    let runtime = Runtime::new().unwrap();
    let sets = ToolSets::default();
    let benchmark = get("webshop").unwrap();
    let shop = ShopFiles { folder: None, nouns: None }.backend();
    let planned = vec![sets.identify("rank", "bm25").unwrap(), sets.identify("shop", &shop).unwrap()];
    let configuration = Arc::new(replay::configuration(benchmark, Formulation::Iterative, planned));
    let tools = runtime.block_on(sets.of(&configuration)).unwrap();
    let items = benchmark.open(DataSource::Samples).unwrap().take(count);
    items
        .map(|item| {
            let item = item.unwrap();
            let case = shopping::case(&item, &configuration, tools.as_ref());
            line(&runtime.block_on(case).unwrap())
        })
        .collect()
}

/// Scripts all tasks of a source with pages, with an agent that uses the gold elements.
pub(crate) fn pages(source: DataSource) -> String {
    let runtime = Runtime::new().unwrap();
    let sets = ToolSets::default();
    let benchmark = get("mind2web").unwrap();
    let planned = vec![sets.identify("rank", "bm25").unwrap(), sets.identify("web", "native").unwrap()];
    let configuration = Arc::new(replay::configuration(benchmark, Formulation::Iterative, planned));
    let tools = runtime.block_on(sets.of(&configuration)).unwrap();
    let items = benchmark.open(source).unwrap();
    items
        .map(|item| {
            let item = item.unwrap();
            let case = pages_author::case(&item, &configuration, tools.as_ref(), pages_author::gold_words);
            line(&runtime.block_on(case).unwrap())
        })
        .collect()
}

/// Scripts the sample questions about databases, with an agent that uses the gold queries.
pub(crate) fn queries() -> String {
    let benchmark = get("intercode_sql").unwrap();
    let items = benchmark.open(DataSource::Samples).unwrap();
    items
        .map(|item| line(&databases::case(benchmark, &item.unwrap(), Formulation::Iterative).unwrap()))
        .collect()
}

/// Scripts the sample questions of HotpotQA and StrategyQA in both formulations, with an agent that searches
/// for names.
pub(crate) fn questions() -> String {
    let runtime = Runtime::new().unwrap();
    let sets = ToolSets::default();
    let mut written = String::new();
    for name in ["hotpotqa", "strategyqa"] {
        let benchmark = get(name).unwrap();
        for formulation in [Formulation::Iterative, Formulation::OneTime] {
            let planned = [("wiki", "samples"), ("rank", "bm25")];
            let planned = planned.map(|(tool, backend)| sets.identify(tool, backend).unwrap()).to_vec();
            let configuration = Arc::new(replay::configuration(benchmark, formulation, planned));
            let tools = runtime.block_on(sets.of(&configuration)).unwrap();
            for item in benchmark.open(DataSource::Samples).unwrap() {
                let item = item.unwrap();
                let case = questions_author::case(&item, &configuration, tools.as_ref());
                written += &line(&runtime.block_on(case).unwrap());
            }
        }
    }
    written
}
