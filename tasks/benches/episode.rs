//! Whole episodes without models, which measure the overhead of the loop.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lumos_tasks::{
    Behaviour, Completion, Configuration, ContentHash, Episode, Formulation, GenerationSettings, ItemId,
    MathsReply, Next, Reply, Role, Setup, Task, ToolReply, WorkUnit,
};

fn unit() -> WorkUnit {
    let configuration = Configuration {
        benchmark: "gsm8k".to_owned(),
        formulation: Formulation::Iterative,
        behaviour: Behaviour::Paper,
        max_rounds: 8,
        models: BTreeMap::new(),
        tools: Vec::new(),
        generation: GenerationSettings::default(),
        seed: 0,
        prompts: ContentHash::of_bytes(b""),
        format: lumos_tasks::PromptFormat::default(),
        agent: None,
    };
    let item = ItemId { content: ContentHash::of_bytes(b"item"), occurrence: 0 };
    let task = Task::Maths { question: "A shelf holds 12 books. How many do 4 shelves hold?".to_owned() };
    WorkUnit::new(item, task, Setup::None, Arc::new(configuration))
}

/// Runs an episode with four subgoals of two actions each. Returns its number of steps.
fn drive(unit: &WorkUnit) -> usize {
    let mut episode = Episode::start(unit);
    let mut turn = 0;
    loop {
        let reply = match episode.next() {
            Next::Done => return black_box(episode.finish()).steps.len(),
            Next::Generate(request) => Reply::Completion(Completion::recorded(match request.role {
                Role::Planner if turn == 4 => "Yes, I will stop planning.".to_owned(),
                Role::Planner => {
                    turn += 1;
                    format!("No, I will keep planning. Subgoal {turn}: Calculate the number of books.")
                }
                _ => {
                    format!("R{} = Calculator(12 * {turn}); R{} = Calculator(R1 + 1)", 2 * turn - 1, 2 * turn)
                }
            })),
            Next::Call(_) => Reply::Tool(ToolReply::Maths(MathsReply::One("48".to_owned()))),
        };
        if episode.feed(reply).is_err() {
            return 0;
        }
    }
}

fn episodes(criterion: &mut Criterion) {
    let unit = unit();
    let mut group = criterion.benchmark_group("episode");
    group.throughput(Throughput::Elements(1));
    group.bench_function("iterative, four subgoals", |bencher| bencher.iter(|| drive(&unit)));
    group.finish();
}

criterion_group!(benches, episodes);
criterion_main!(benches);
