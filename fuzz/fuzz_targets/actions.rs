//! Runs episodes of every benchmark with arbitrary replies of models and tools, to test the action parsers
//! and everything that uses their results.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use lumos_benchmarks::{Benchmark, DataSource, find, replay};
use lumos_tasks::families::maths;
use lumos_tasks::families::parse::{find_variables, parse_action};
use lumos_tasks::families::qa::page::WikiPage;
use lumos_tasks::families::shop::ShopReply;
use lumos_tasks::families::sql::parse::{sql_parser, sql_parser_react};
use lumos_tasks::families::web::{CandidateElement, ParsedWebAction, sentence};
use lumos_tasks::{
    Behaviour, ChatReply, Completion, Configuration, Episode, ExternalReply, Formulation, Item, MathsReply,
    Next, Reply, SqlGrade, SqlReply, ToolCall, ToolReply, WorkUnit,
};

/// Separates the replies of an input.
const BETWEEN: char = '\u{1}';
const BENCHMARKS: [&str; 7] =
    ["gsm8k", "svamp", "hotpotqa", "strategyqa", "mind2web", "webshop", "intercode_sql"];

fuzz_target!(|input: (u8, u8, bool, &str)| {
    let (benchmark, formulation, corrected, text) = input;
    parse(text);
    let place = usize::from(benchmark) % BENCHMARKS.len();
    let (benchmark, item) = (find(BENCHMARKS[place]).expect("unknown benchmark"), &ITEMS[place]);
    let formulations = benchmark.formulations();
    let formulation = formulations[usize::from(formulation) % formulations.len()];
    let behaviour = if corrected { Behaviour::Corrected } else { Behaviour::Paper };
    run(benchmark, item, formulation, behaviour, text);
});

fn parse(text: &str) {
    let _ = maths::parse::parse_action(text);
    let _ = maths::parse::split_function(text);
    let _ = maths::parse::parse_equations(text);
    let _ = find_variables(text);
    let _ = parse_action(text);
    let _ = ParsedWebAction::as_published(text);
    let _ = ParsedWebAction::strictly(text);
    let _ = sentence(text, |most| most.saturating_sub(1));
    let _ = sql_parser(text);
    let _ = sql_parser_react(text);
}

/// The first sample of each benchmark.
static ITEMS: LazyLock<Vec<Item>> = LazyLock::new(|| {
    let first = |name: &&str| {
        let samples = find(name).expect("unknown benchmark").open(DataSource::Samples).expect("no samples");
        samples.into_iter().next().expect("no sample").expect("invalid sample")
    };
    BENCHMARKS.iter().map(first).collect()
});

/// Runs an episode of a sample with the replies of an input.
fn run(benchmark: &dyn Benchmark, item: &Item, formulation: Formulation, behaviour: Behaviour, text: &str) {
    let configuration = Configuration {
        behaviour,
        max_rounds: benchmark.max_rounds(behaviour),
        ..replay::configuration(benchmark, formulation, Vec::new())
    };
    let unit = WorkUnit::new(item.id.clone(), item.task.clone(), item.setup.clone(), Arc::new(configuration));
    let mut episode = Episode::start(&unit);
    let mut replies = text.split(BETWEEN).cycle();
    for _ in 0..1_000 {
        let said = replies.next().unwrap_or_default();
        let reply = match episode.next() {
            Next::Done => break,
            Next::Generate(_) => Reply::Completion(Completion::recorded(said)),
            Next::Call(call) => Reply::Tool(answer(call, said)),
        };
        episode.feed(reply).expect("the reply has the wrong kind");
    }
    let outcome = episode.finish();
    let _ = benchmark.score(&item.target, &outcome, lumos_benchmarks::Scoring::Paper);
    let _ = benchmark.score(&item.target, &outcome, lumos_benchmarks::Scoring::Corrected);
}

fn answer(call: &ToolCall, said: &str) -> ToolReply {
    let text = said.to_owned();
    match call {
        ToolCall::Maths { .. } if said.is_empty() => ToolReply::Maths(MathsReply::Empty),
        ToolCall::Maths { .. } if said.contains('\n') => {
            ToolReply::Maths(MathsReply::Many(said.lines().map(|line| Some(line.to_owned())).collect()))
        }
        ToolCall::Maths { .. } => ToolReply::Maths(MathsReply::One(text)),
        ToolCall::Wiki { .. } => ToolReply::Wiki(WikiPage::of_text(said)),
        ToolCall::Search { .. } => ToolReply::Search(said.lines().map(str::to_owned).collect()),
        ToolCall::Rank { passages, .. } => {
            ToolReply::Rank((0..passages.len()).map(|index| ((index * 7) % 5) as f64).collect())
        }
        ToolCall::Chat { .. } => ToolReply::Chat(ChatReply::recorded(said)),
        ToolCall::Candidates { .. } => {
            let element =
                |(id, text): (usize, &str)| CandidateElement { id: id.to_string(), text: text.to_owned() };
            ToolReply::Candidates(said.lines().enumerate().map(element).collect())
        }
        ToolCall::Sql { .. } if said.is_empty() => ToolReply::Sql(SqlReply::Nothing),
        ToolCall::Sql { .. } => {
            let rows: Vec<String> = said.lines().map(str::to_owned).collect();
            ToolReply::Sql(SqlReply::Rows { count: rows.len() as u64, rows })
        }
        ToolCall::SqlSubmit => ToolReply::SqlGrade(SqlGrade {
            reward: f64::from(u8::from(said.len() % 4 == 0)),
            is_same: said.len() % 4 == 0,
            corrupt_gold: false,
            empty_gold: false,
        }),
        ToolCall::Shop(_) => ToolReply::Shop(ShopReply {
            observation: text,
            clickables: said.lines().map(str::to_lowercase).collect(),
            purchase: None,
        }),
        ToolCall::Carry(_) => ToolReply::Raised { message: text },
        ToolCall::External { .. } => ToolReply::External(ExternalReply::Text(text)),
    }
}
