//! Scripted agents that use the gold solutions, as recorded cases for `script:` models: one per line.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use lumos_benchmarks::{Benchmark, DataSource, get, replay};
use lumos_tasks::recorded::{Case, Expected, Script};
use lumos_tasks::{Completion, Configuration, Episode, Formulation, Item, Next, Reply, Role, WorkUnit};
use lumos_tools::sessions::catalogue::ShopFiles;
use lumos_tools::{ToolSets, Tools};
use tokio::runtime::Runtime;

#[path = "../../../examples/script_sql/author.rs"]
mod databases;
#[path = "../../../examples/script_pages/author.rs"]
mod pages_author;
#[path = "../../../examples/script_questions/author.rs"]
mod questions_author;
#[path = "../../../examples/script_shopping/author.rs"]
mod shopping;

/// What an agent replies: to a role, the number of its reply in the episode, and the item.
pub(crate) type Author<'a> = dyn Fn(Role, usize, &Item) -> String + 'a;

/// Scripts all items of a task file in both formulations with the given tools, which are really called.
pub(crate) fn own_agent(task_file: &Path, tools: &[(&str, &str)], author: &Author<'_>) -> String {
    let file = lumos_coordinator::spec::read_task_file(task_file).unwrap();
    let (benchmark, source) = (file.benchmark(), DataSource::File(file.data_file()));
    let of = |formulation| {
        let case = async |item: &Item, configuration: &Arc<Configuration>, tools: &dyn Tools| {
            own_case(benchmark.name(), item, configuration, tools, author).await
        };
        script(benchmark, source.clone(), usize::MAX, formulation, tools, &case)
    };
    [Formulation::Iterative, Formulation::OneTime].map(of).concat()
}

async fn own_case(
    benchmark: &str,
    item: &Item,
    configuration: &Arc<Configuration>,
    tools: &dyn Tools,
    author: &Author<'_>,
) -> Result<Case, Box<dyn Error>> {
    let unit =
        WorkUnit::new(item.id.clone(), item.task.clone(), item.setup.clone(), Arc::clone(configuration));
    let mut episode = Episode::start(&unit);
    let (mut script, mut prompts) = (Script::default(), Script::default());
    loop {
        let reply = match episode.next() {
            Next::Done => break,
            Next::Generate(request) => {
                let text = author(request.role, script.of(request.role).len(), item);
                prompts.push(request.role, request.prompt());
                script.push(request.role, &text);
                Reply::Completion(Completion::recorded(text))
            }
            Next::Call(call) => Reply::Tool(tools.call(call).await?),
        };
        episode.feed(reply)?;
    }
    Ok(Case {
        id: unit.id.as_str().to_owned(),
        benchmark: benchmark.to_owned(),
        formulation: configuration.formulation,
        tags: Vec::new(),
        item: item.record.clone(),
        script,
        prompts,
        tools: Vec::new(),
        effective_turns: None,
        expected: Expected::default(),
        randint: Vec::new(),
    })
}

fn line(case: &Case) -> String {
    format!("{}\n", serde_json::to_string(case).unwrap())
}

/// Scripts the first items of a source with these tools.
fn script(
    benchmark: &'static dyn Benchmark,
    source: DataSource,
    most: usize,
    formulation: Formulation,
    tools: &[(&str, &str)],
    case: &impl AsyncFn(&Item, &Arc<Configuration>, &dyn Tools) -> Result<Case, Box<dyn Error>>,
) -> String {
    let runtime = Runtime::new().unwrap();
    let sets = ToolSets::default();
    let planned = tools.iter().map(|(tool, backend)| sets.identify(tool, backend).unwrap()).collect();
    let configuration = Arc::new(replay::configuration(benchmark, formulation, planned));
    let tools = runtime.block_on(sets.of(&configuration)).unwrap();
    let items = benchmark.open(source).unwrap().take(most);
    items
        .map(|item| line(&runtime.block_on(case(&item.unwrap(), &configuration, tools.as_ref())).unwrap()))
        .collect()
}

/// Scripts the first goals of a data folder, or of the samples, with a shop driver.
pub(crate) fn goals(data: Option<&Path>, count: usize) -> String {
    let benchmark = get("webshop").unwrap();
    let shop = ShopFiles { folder: data.map(|data| data.join("webshop")), nouns: None }.backend();
    let source = benchmark.source(data);
    let tools = [("rank", "bm25"), ("shop", shop.as_str())];
    script(benchmark, source, count, Formulation::Iterative, &tools, &shopping::case)
}

/// Scripts all tasks of a source with pages, with an agent that requests the gold elements in their own words.
pub(crate) fn pages(source: DataSource) -> String {
    let tools = [("rank", "bm25"), ("web", "native")];
    script(get("mind2web").unwrap(), source, usize::MAX, Formulation::Iterative, &tools, &page_case)
}

async fn page_case(
    item: &Item,
    configuration: &Arc<Configuration>,
    tools: &dyn Tools,
) -> Result<Case, Box<dyn Error>> {
    let case = pages_author::case(item, configuration, tools, pages_author::gold_words).await?;
    assert_eq!(replay::replay(&case).difference, None);
    Ok(case)
}

/// Scripts the questions of a source about databases, with an agent that uses the gold queries.
pub(crate) fn queries(source: &DataSource, formulations: &[Formulation]) -> String {
    let benchmark = get("intercode_sql").unwrap();
    let of = |formulation: &Formulation| {
        let items = benchmark.open(source.clone()).unwrap();
        let case = |item: Item| databases::case(benchmark, &item, *formulation).unwrap();
        items.map(|item| line(&case(item.unwrap()))).collect::<String>()
    };
    formulations.iter().map(of).collect()
}

/// Scripts the first questions of a source in both formulations, with an agent that searches a wiki for names.
pub(crate) fn questions(name: &str, source: &DataSource, most: usize, wiki: &str) -> String {
    let tools = [("rank", "bm25"), ("wiki", wiki)];
    let of = |formulation| {
        script(get(name).unwrap(), source.clone(), most, formulation, &tools, &questions_author::case)
    };
    [Formulation::Iterative, Formulation::OneTime].map(of).concat()
}
