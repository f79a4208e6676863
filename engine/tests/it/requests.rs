//! Helpers that run requests alone and together.

use lumos_engine::{DraftUsage, Engine, GenerateRequest, Generation, Prompt, SamplingParams, StopCondition};

/// Returns a greedy request that always generates its full length.
pub(crate) fn greedy(input: Prompt, max_new_tokens: usize, first_logits: usize) -> GenerateRequest {
    GenerateRequest {
        input,
        stop: StopCondition::Never,
        max_new_tokens,
        sampling: SamplingParams::GREEDY,
        ignore_eos: true,
        first_logits,
        forced: Vec::new(),
        deadline: None,
    }
}

/// Returns a generation without the figures that depend on earlier requests and on speculation.
async fn generate(engine: &Engine, request: GenerateRequest) -> Generation {
    let mut generation = engine.generate(request).await.unwrap();
    generation.usage.cached_tokens = 0;
    generation.usage.drafts = DraftUsage::default();
    generation
}

/// Runs one request after the other.
pub(crate) async fn alone(engine: &Engine, requests: &[GenerateRequest]) -> Vec<Generation> {
    let mut results = Vec::new();
    for request in requests {
        results.push(generate(engine, request.clone()).await);
    }
    results
}

/// Runs all requests at once.
pub(crate) async fn together(engine: &Engine, requests: &[GenerateRequest]) -> Vec<Generation> {
    let order: Vec<usize> = (0..requests.len()).collect();
    together_in(engine, requests, &order).await
}

/// Runs all requests at once, submitted in the given order. Returns the results in the order of the requests.
pub(crate) async fn together_in(
    engine: &Engine,
    requests: &[GenerateRequest],
    order: &[usize],
) -> Vec<Generation> {
    let mut tasks = Vec::new();
    for index in order {
        let (engine, request) = (engine.clone(), requests[*index].clone());
        tasks.push((*index, tokio::spawn(async move { generate(&engine, request).await })));
        tokio::task::yield_now().await;
    }
    let mut results: Vec<Option<Generation>> = vec![None; requests.len()];
    for (index, task) in tasks {
        results[index] = Some(task.await.unwrap());
    }
    results.into_iter().map(Option::unwrap).collect()
}
