//! Runs thousands of requests of random lengths and cancels many of them, with so little memory that pages
//! are evicted and sequences preempted all the time. In debug builds the engine checks its invariants after
//! every step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{Shape, Uniform};
use lumos_engine::{
    DraftUsage, Engine, FinishReason, GenerateRequest, Generation, LoadOptions, ModelSource, Prompt,
    SamplingParams, Speculation, Statistics, StopCondition,
};
use tokio::sync::Semaphore;

const REQUESTS: usize = 2000;
const LONGEST: usize = 100;
/// Size of the pool: a fifth of the pages that the sequences of a batch may need.
const PAGES: usize = 80;

fn load(folder: &std::path::Path, kv_cache_bytes: Option<usize>, speculation: Speculation) -> Engine {
    let options = LoadOptions {
        max_batch: 16,
        page_size: 4,
        prefill_chunk: Some(24),
        max_step_tokens: Some(48),
        max_waiting: 64,
        kv_cache_bytes,
        speculation,
        ..LoadOptions::default()
    };
    Engine::load(ModelSource::Folder(folder.to_owned()), options).unwrap()
}

/// Returns a request whose prompt starts with one of a few shared prefixes, or with none.
fn request(random: &mut Uniform) -> GenerateRequest {
    let beginning = random.below(6);
    let mut shared = Uniform::new(beginning as u64);
    let length = if beginning == 0 { 0 } else { random.below(40) };
    let mut prompt: Vec<u32> = (0..length).map(|_| shared.below(300) as u32).collect();
    prompt.extend((0..1 + random.below(LONGEST / 3)).map(|_| random.below(300) as u32));
    let max_new_tokens = random.below(LONGEST - prompt.len());
    let temperature = if random.below(2) == 0 { 0.0 } else { 0.8 };
    GenerateRequest {
        input: Prompt::Tokens(prompt),
        stop: StopCondition::Never,
        max_new_tokens,
        sampling: SamplingParams { temperature, seed: random.integer(), ..SamplingParams::GREEDY },
        ignore_eos: true,
        first_logits: 5,
        forced: Vec::new(),
        deadline: None,
    }
}

/// Checks the counters until `over` is set. Returns the number of checks.
async fn watch(engine: Engine, over: Arc<AtomicBool>) -> usize {
    let mut looks = 0;
    while !over.load(Ordering::Acquire) {
        let Statistics { allocated_pages, held_pages, cached_pages, running, .. } = engine.statistics();
        assert!(allocated_pages <= PAGES && held_pages <= PAGES && cached_pages <= PAGES && running <= 16);
        looks += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    looks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everyone_is_served_while_memory_is_short() {
    assert_eq!(soak(Speculation::Off).await.drafts, DraftUsage::default());
}

/// Drafts take pages, too, and results are those of an engine without drafts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everyone_is_served_while_memory_is_short_with_drafts() {
    let drafts = soak(Speculation::Lookup).await.drafts;
    assert!(drafts.accepted > 100 && drafts.accepted < drafts.drafted, "{drafts:?}");
}

async fn soak(speculation: Speculation) -> Statistics {
    let folder = tempfile::tempdir().unwrap();
    Shape::tiny().files(3).write(folder.path());
    let plenty = load(folder.path(), None, Speculation::Off);
    let engine = load(folder.path(), Some(PAGES * plenty.statistics().page_bytes), speculation);
    assert_eq!(engine.statistics().page_limit, PAGES);
    let over = Arc::new(AtomicBool::new(false));
    let watcher = tokio::spawn(watch(engine.clone(), over.clone()));
    let in_flight = Arc::new(Semaphore::new(120));
    let mut random = Uniform::new(lumos_capabilities::seed(1));
    let mut tasks = Vec::new();
    for _ in 0..REQUESTS {
        let request = request(&mut random);
        let cancelled = random.below(4) == 0;
        let patience = Duration::from_micros(random.below(60_000) as u64);
        let place = in_flight.clone().acquire_owned().await.unwrap();
        let engine = engine.clone();
        tasks.push(tokio::spawn(async move {
            let _place = place;
            let generation = engine.generate(request.clone());
            if cancelled {
                let generation = tokio::time::timeout(patience, generation).await.ok()?;
                return Some((request, generation.unwrap()));
            }
            Some((request, generation.await.unwrap()))
        }));
    }
    let mut completed: Vec<(GenerateRequest, Generation)> = Vec::new();
    for task in tasks {
        completed.extend(task.await.unwrap());
    }
    over.store(true, Ordering::Release);
    assert!(watcher.await.unwrap() > 10);
    assert!(completed.len() >= REQUESTS / 2, "only {} completed", completed.len());
    for (request, generation) in &completed {
        assert_eq!(
            (generation.tokens.len(), generation.finish),
            (request.max_new_tokens, FinishReason::Length)
        );
    }
    // The remaining requests were cancelled and end with the next step.
    while engine.statistics().running + engine.statistics().waiting > 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let statistics = engine.statistics();
    assert_eq!(statistics.held_pages, 0, "{statistics:?}");
    assert!(statistics.evictions > 1000 && statistics.preemptions > 100, "{statistics:?}");
    assert!(statistics.reused_tokens > 1000, "{statistics:?}");
    for (request, mut generation) in completed.into_iter().step_by(11) {
        let mut alone = plenty.generate(request).await.unwrap();
        (alone.usage.cached_tokens, generation.usage.cached_tokens) = (0, 0);
        generation.usage.drafts = DraftUsage::default();
        assert_eq!(alone, generation);
    }
    statistics
}
