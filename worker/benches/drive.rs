//! Episodes per second of the built-in agent: a batch of twenty items through planner, grounder and exact
//! mathematics. The limit is the engine's tokens per second (`engine/benches/generate.rs`).

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use futures::future::join_all;
use lumos_models::EngineSettings;
use lumos_models::ModelRegistry;
use lumos_tasks::{
    Behaviour, Configuration, ContentHash, Formulation, GenerationSettings, ItemId, Role, Setup, Task,
    WorkUnit,
};
use lumos_tools::ToolSets;
use lumos_worker::activity::EpisodeProgress;
use lumos_worker::{Backends, EpisodeLimits, drive};

const ITEMS: u64 = 20;

fn units(models: &ModelRegistry, formulation: Formulation) -> Vec<WorkUnit> {
    let identify = |role| models.identify("builtin:tiny", role, formulation).expect("unknown model").identity;
    let configuration = Arc::new(Configuration {
        benchmark: "svamp".to_owned(),
        formulation,
        behaviour: Behaviour::Paper,
        max_rounds: 2,
        models: [Role::Planner, Role::Grounder].map(|role| (role, identify(role))).into(),
        tools: Vec::new(),
        generation: GenerationSettings::default(),
        seed: 0,
        prompts: ContentHash::of_bytes(b""),
        format: lumos_tasks::PromptFormat::default(),
        agent: None,
    });
    (0..ITEMS)
        .map(|number| {
            let question = format!(
                "A baker made {} loaves. She sold {number} of them. How many are left?",
                number * 3 + 7
            );
            let item = ItemId { content: ContentHash::of_json(&number), occurrence: 0 };
            WorkUnit::new(item, Task::Maths { question }, Setup::None, Arc::clone(&configuration))
        })
        .collect()
}

fn driving(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("failed to start");
    let models = ModelRegistry::new(EngineSettings::default());
    let mut group = criterion.benchmark_group("drive");
    group.sample_size(10).throughput(Throughput::Elements(ITEMS));
    for formulation in [Formulation::Iterative, Formulation::OneTime] {
        let units = units(&models, formulation);
        let tools = ToolSets::default();
        let backends =
            runtime.block_on(Backends::of(&models, &tools, &units[0].configuration)).expect("they load");
        group.bench_function(BenchmarkId::from_parameter(formulation), |bencher| {
            bencher.iter(|| {
                let progress = EpisodeProgress::default();
                let episodes =
                    units.iter().map(|unit| drive(unit, &backends, EpisodeLimits::default(), &progress));
                black_box(runtime.block_on(join_all(episodes)))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, driving);
criterion_main!(benches);
