//! Episodes per second of the built-in agent: a batch of twenty items through planner, grounder and exact
//! mathematics. Every batch has other questions, so that the prefix cache contains only the start of their prompts. The
//! limit is the engine's tokens per second (`engine/benches/generate.rs`).

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
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

fn configuration(models: &ModelRegistry, formulation: Formulation) -> Configuration {
    let identify = |role| models.identify("builtin:tiny", role, formulation).expect("unknown model").identity;
    Configuration {
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
    }
}

/// Returns the units of a batch.
fn units(configuration: &Arc<Configuration>, batch: u64) -> Vec<WorkUnit> {
    (0..ITEMS)
        .map(|number| {
            let loaves = batch * 100 + number * 3 + 7;
            let question =
                format!("A baker made {loaves} loaves. She sold {number} of them. How many are left?");
            let item = ItemId { content: ContentHash::of_json(&loaves), occurrence: 0 };
            WorkUnit::new(item, Task::Maths { question }, Setup::None, Arc::clone(configuration))
        })
        .collect()
}

fn driving(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("failed to start");
    let models = ModelRegistry::new(EngineSettings::default());
    let mut group = criterion.benchmark_group("drive");
    group.sample_size(10).throughput(Throughput::Elements(ITEMS));
    for formulation in [Formulation::Iterative, Formulation::OneTime] {
        let configuration = Arc::new(configuration(&models, formulation));
        let tools = ToolSets::default();
        let backends = runtime.block_on(Backends::of(&models, &tools, &configuration)).expect("they load");
        let mut batches = 0_u64..;
        group.bench_function(BenchmarkId::from_parameter(formulation), |bencher| {
            let next = || units(&configuration, batches.next().unwrap_or_default());
            let run = |units: Vec<WorkUnit>| {
                let progress = EpisodeProgress::default();
                let episodes =
                    units.iter().map(|unit| drive(unit, &backends, EpisodeLimits::default(), &progress));
                black_box(runtime.block_on(join_all(episodes)))
            };
            bencher.iter_batched(next, run, BatchSize::PerIteration);
        });
    }
    group.finish();
}

criterion_group!(benches, driving);
criterion_main!(benches);
