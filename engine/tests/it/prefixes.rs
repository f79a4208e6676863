//! Prefix reuse, rejected requests, and streams.

use crate::requests;
use crate::requests::greedy;
use crate::support::{Shape, Uniform};
use lumos_engine::{
    Delta, Engine, FinishReason, GenerateError, GenerateRequest, Generation, LoadError, LoadOptions,
    ModelSource, Prompt, RandomShape, StopCondition, StreamEvent,
};

fn engine(options: LoadOptions) -> Engine {
    let folder = tempfile::tempdir().unwrap();
    Shape::tiny().files(4).write(folder.path());
    Engine::load(ModelSource::Folder(folder.path().to_owned()), options).unwrap()
}

fn tokens(count: usize, seed: u64) -> Vec<u32> {
    let mut random = Uniform::new(seed);
    (0..count).map(|_| 3 + random.below(280) as u32).collect()
}

#[tokio::test]
async fn a_turn_computes_its_new_tokens_only() {
    for page_size in [4, 16, 32] {
        let engine = engine(LoadOptions { page_size, ..LoadOptions::default() });
        let off = self::engine(LoadOptions { reuse_prefixes: false, ..LoadOptions::default() });
        let mut prompt = tokens(100, 1);
        let mut known = 0;
        for turn in 0..4 {
            let request = greedy(Prompt::Tokens(prompt.clone()), 30, 300);
            let computed = engine.statistics().computed_tokens;
            let mut generation = engine.generate(request.clone()).await.unwrap();
            // All tokens computed before, which are all but the last generated one.
            assert_eq!(generation.usage.cached_tokens, known, "turn {turn}");
            let computed = (engine.statistics().computed_tokens - computed) as usize;
            assert_eq!(computed, prompt.len() - known + 29);
            let plain = off.generate(request).await.unwrap();
            assert_eq!(plain.usage.cached_tokens, 0);
            generation.usage.cached_tokens = 0;
            assert_eq!(generation, plain, "turn {turn}");
            known = prompt.len() + 29;
            prompt = [&prompt[..], &generation.tokens, &tokens(7, turn)].concat();
        }
        // At least one token is computed, even if the whole prompt is cached.
        let request = greedy(Prompt::Tokens(tokens(64, 9)), 1, 0);
        engine.generate(request.clone()).await.unwrap();
        assert_eq!(engine.generate(request).await.unwrap().usage.cached_tokens, 63);
        assert_eq!(off.statistics().reused_tokens, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_common_beginning_is_computed_once_however_many_ask_at_once() {
    let engine = engine(LoadOptions { max_batch: 24, prefill_chunk: Some(50), ..LoadOptions::default() });
    let common = tokens(160, 2);
    let requests: Vec<GenerateRequest> = (0..24)
        .map(|index| greedy(Prompt::Tokens([&common[..], &tokens(10, 100 + index)].concat()), 1, 0))
        .collect();
    requests::together(&engine, &requests).await;
    let statistics = engine.statistics();
    assert_eq!(statistics.computed_tokens, 160 + 24 * 10);
    assert_eq!(statistics.reused_tokens, 23 * 160);
}

#[tokio::test]
async fn what_can_never_fit_is_refused_at_once() {
    let page_bytes = engine(LoadOptions::default()).statistics().page_bytes;
    let engine = engine(LoadOptions { kv_cache_bytes: Some(4 * page_bytes + 1), ..LoadOptions::default() });
    let ask = |prompt, new| engine.generate(greedy(Prompt::Tokens(tokens(prompt, 1)), new, 0));
    // The last generated token is not stored in the cache.
    assert_eq!(ask(60, 5).await.unwrap().tokens.len(), 5);
    let refused = ask(60, 6).await.unwrap_err();
    assert_eq!(refused, GenerateError::TooLargeForMemory { needed: 5 * page_bytes, budget: 4 * page_bytes });
    assert!(refused.to_string().contains("max_new_tokens"), "{refused}");
    assert_eq!(ask(64, 0).await.unwrap().tokens.len(), 0);
    assert!(ask(65, 0).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_limit_a_sequence_fills_the_cache() {
    let page_bytes = engine(LoadOptions::default()).statistics().page_bytes;
    let engine = engine(LoadOptions { kv_cache_bytes: Some(4 * page_bytes), ..LoadOptions::default() });
    let ask = |prompt| greedy(Prompt::Tokens(tokens(prompt, 1)), GenerateRequest::UNLIMITED, 0);
    let prompts: Vec<GenerateRequest> = [10, 40, 64].map(ask).into();
    let expected = requests::alone(&engine, &prompts).await;
    let ends: Vec<_> = expected.iter().map(|one| (one.tokens.len(), one.finish)).collect();
    // 64 positions, and the last token.
    assert_eq!(ends, [55, 25, 1].map(|tokens| (tokens, FinishReason::Length)));
    assert_eq!(requests::together(&engine, &prompts).await, expected);
    let refused = engine.generate(ask(65)).await.unwrap_err();
    assert_eq!(refused, GenerateError::TooLargeForMemory { needed: 5 * page_bytes, budget: 4 * page_bytes });
}

#[tokio::test]
async fn options_are_checked_and_the_batch_follows_the_memory() {
    let source = || ModelSource::Random { shape: RandomShape::With1M, seed: 1 };
    for page_size in [0, 3, 24] {
        let error = Engine::load(source(), LoadOptions { page_size, ..LoadOptions::default() }).unwrap_err();
        assert!(matches!(&error, LoadError::InvalidOption { .. }), "{error}");
    }
    let page_bytes = 4 * 2 * (32 * 16 + 16 * 32) * 4;
    let automatic = |pages: usize| {
        let max_batch = LoadOptions::AUTO_BATCH;
        let kv_cache_bytes = Some(pages * page_bytes);
        Engine::load(source(), LoadOptions { max_batch, kv_cache_bytes, ..LoadOptions::default() }).unwrap()
    };
    assert_eq!(automatic(10).statistics().page_bytes, page_bytes);
    assert_eq!((automatic(10).max_batch(), automatic(640).max_batch()), (1, 10));
}

async fn streamed(engine: &Engine, request: GenerateRequest) -> (Vec<Delta>, Generation) {
    let mut stream = engine.stream(request).await.unwrap();
    let mut deltas = Vec::new();
    while let Some(event) = stream.next().await {
        match event.unwrap() {
            StreamEvent::Delta(delta) => deltas.push(delta),
            StreamEvent::Done(generation) => {
                assert!(stream.next().await.is_none());
                return (deltas, generation);
            }
        }
    }
    panic!("the stream ended without a generation");
}

#[tokio::test]
async fn streams_add_up_to_the_generation() {
    let engine = engine(LoadOptions::default());
    for seed in 0..20 {
        let plain = GenerateRequest {
            sampling: lumos_engine::SamplingParams { temperature: 1.5, seed, ..Default::default() },
            ..greedy(Prompt::Text("the inn".to_owned()), 60, 3)
        };
        let free = engine.generate(plain.clone()).await.unwrap();
        let middle = free.text.chars().skip(free.text.chars().count() / 2).take(2).collect();
        for stop in [
            StopCondition::Never,
            StopCondition::Texts(vec![middle]),
            StopCondition::Tokens(vec![free.tokens[30]]),
        ] {
            let request = GenerateRequest { stop, ..plain.clone() };
            let expected = engine.generate(request.clone()).await.unwrap();
            let (deltas, generation) = streamed(&engine, request).await;
            assert_eq!(generation, expected);
            let tokens: Vec<u32> = deltas.iter().flat_map(|delta| delta.tokens.clone()).collect();
            assert_eq!(tokens, generation.tokens);
            let text: String = deltas.iter().map(|delta| &*delta.text).collect();
            // A random model rarely generates valid UTF-8, and the number of replacement characters depends
            // on the bytes that follow.
            assert!(text == generation.text || generation.text.contains('\u{FFFD}'), "{text:?}");
            assert!(deltas.len() >= tokens.len().min(30), "the tokens arrived at once");
        }
    }
    let refused = engine.stream(greedy(Prompt::Text(String::new()), 3, 0)).await;
    assert_eq!(refused.unwrap_err(), GenerateError::EmptyPrompt);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_holds_nobody_up_and_dropping_cancels() {
    let engine = engine(LoadOptions { max_sequence_length: Some(600), ..LoadOptions::default() });
    // This stream is not read while its request generates far more tokens than the channel holds.
    let mut slow = engine.stream(greedy(Prompt::Tokens(tokens(5, 1)), 500, 0)).await.unwrap();
    engine.generate(greedy(Prompt::Tokens(tokens(5, 2)), 550, 0)).await.unwrap();
    let mut count = 0;
    while let Some(event) = slow.next().await {
        match event.unwrap() {
            StreamEvent::Delta(delta) => count += delta.tokens.len(),
            StreamEvent::Done(generation) => assert_eq!(generation.tokens.len(), count),
        }
    }
    assert_eq!(count, 500);
    let dropped = engine.stream(greedy(Prompt::Tokens(tokens(5, 3)), 590, 0)).await.unwrap();
    drop(dropped);
    engine.generate(greedy(Prompt::Tokens(tokens(5, 4)), 2, 0)).await.unwrap();
    while engine.statistics().running > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(engine.statistics().held_pages, 0);
}
