//! Generated tokens per second at several batch sizes, with random models built in memory.

#[allow(dead_code, reason = "shared with the integration tests, which use more of it")]
#[path = "../tests/it/support/mod.rs"]
mod support;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lumos_engine::{
    Engine, GenerateRequest, LoadOptions, ModelFiles, ModelSource, Prompt, SamplingParams, StopCondition,
};
use support::{Shape, Uniform};

const PROMPT_TOKENS: usize = 16;
const NEW_TOKENS: usize = 64;

fn engine(shape: &Shape) -> Engine {
    let files = shape.files(1);
    let leak = |bytes: Vec<u8>| -> &'static [u8] { Box::leak(bytes.into_boxed_slice()) };
    let files = ModelFiles {
        config: leak(files.config),
        tokenizer: leak(files.tokenizer),
        weights: leak(files.weights),
    };
    // Prefix reuse is off, because every round has the same prompts.
    let options = LoadOptions { max_batch: 64, reuse_prefixes: false, ..LoadOptions::default() };
    Engine::load(ModelSource::Memory(files), options).expect("failed to load the random model")
}

fn request(prompt: Vec<u32>, max_new_tokens: usize) -> GenerateRequest {
    GenerateRequest {
        input: Prompt::Tokens(prompt),
        stop: StopCondition::Never,
        max_new_tokens,
        sampling: SamplingParams::GREEDY,
        ignore_eos: true,
        first_logits: 0,
        forced: Vec::new(),
        deadline: None,
    }
}

async fn run(engine: &Engine, batch: usize, prompt_tokens: usize, new_tokens: usize) {
    let mut random = Uniform::new(batch as u64);
    let tasks: Vec<_> = (0..batch)
        .map(|_| {
            let prompt = (0..prompt_tokens).map(|_| random.below(250) as u32 + 3).collect();
            let engine = engine.clone();
            tokio::spawn(async move { engine.generate(request(prompt, new_tokens)).await })
        })
        .collect();
    for task in tasks {
        task.await.expect("a task panicked").expect("failed to generate");
    }
}

fn generate(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
    for (name, shape, batches) in
        [("2M", Shape::small(), &[1, 8, 32, 64][..]), ("10M", Shape::medium(), &[1, 8, 32])]
    {
        let engine = engine(&shape);
        let mut group = criterion.benchmark_group(format!("decode {name}"));
        group.sample_size(10);
        for batch in batches {
            group.throughput(Throughput::Elements((batch * NEW_TOKENS) as u64));
            group.bench_function(BenchmarkId::from_parameter(batch), |bencher| {
                bencher.iter(|| runtime.block_on(run(&engine, *batch, PROMPT_TOKENS, NEW_TOKENS)));
            });
        }
        group.finish();
        let mut group = criterion.benchmark_group(format!("prefill {name}"));
        group.sample_size(10);
        for batch in [1, 8] {
            group.throughput(Throughput::Elements(batch as u64 * 512));
            group.bench_function(BenchmarkId::from_parameter(batch), |bencher| {
                bencher.iter(|| runtime.block_on(run(&engine, batch, 512, 1)));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, generate);
criterion_main!(benches);
