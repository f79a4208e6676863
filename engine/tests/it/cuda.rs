//! Compares a GPU with the processor:
//! `LUMOS_DEVICE=cuda:0 cargo test --release --features cuda -p lumos-engine --test it cuda::`.
//!
//! Without that variable the tests are skipped. The reference cases are in `$LUMOS_SHARED/golden/engine`; with the variable, but
//! without them, a test fails.

use crate::cases;
use std::path::Path;

use crate::requests::{alone, greedy, together_in};
use crate::support::{Shape, Uniform};
use lumos_engine::{
    DType, DeviceName, Engine, GenerateRequest, Generation, LoadOptions, ModelSource, Prompt, RandomShape,
    SamplingParams,
};

fn device() -> Option<DeviceName> {
    let Ok(name) = std::env::var("LUMOS_DEVICE") else {
        lumos_capabilities::skip(lumos_capabilities::Capability::Gpu, "LUMOS_DEVICE is not set");
        return None;
    };
    Some(name.parse().unwrap())
}

fn load(folder: &Path, device: DeviceName, dtype: DType) -> Engine {
    let options = LoadOptions { device, dtype, ..LoadOptions::default() };
    Engine::load(ModelSource::Folder(folder.to_owned()), options).unwrap()
}

async fn all(engine: &Engine, requests: &[GenerateRequest]) -> Vec<Generation> {
    let started: Vec<_> = requests
        .iter()
        .map(|request| {
            let (engine, request) = (engine.clone(), request.clone());
            tokio::spawn(async move { engine.generate(request).await.unwrap() })
        })
        .collect();
    let mut generations = Vec::new();
    for generation in started {
        generations.push(generation.await.unwrap());
    }
    generations
}

fn logit(generation: &Generation, id: u32) -> f32 {
    generation.first_logits.iter().find(|(found, _)| *found == id).unwrap().1
}

#[tokio::test(flavor = "multi_thread")]
async fn float32_equals_transformers() {
    let Some(device) = device() else { return };
    for name in ["llama-mha", "llama-gqa-tied", "llama3-rope"] {
        // Whoever names a device wants to know that it is right, not that nothing was compared.
        let folder = cases::folder(name)
            .expect("set LUMOS_SHARED to the folder with the reference cases, golden/engine");
        let engine = load(&folder, device, DType::F32);
        let cases = cases::cases(&folder);
        let requests: Vec<GenerateRequest> =
            cases.iter().map(|case| greedy(Prompt::Tokens(case.ids.clone()), 48, 768)).collect();
        for (case, found) in cases.iter().zip(all(&engine, &requests).await) {
            assert_eq!(found.tokens[..case.safe_tokens], case.greedy[..case.safe_tokens], "{name}");
            for (id, expected) in &case.first_top8 {
                assert!((logit(&found, *id) - expected).abs() < 1e-3, "{name}: logit of {id}");
            }
        }
    }
}

/// Without `first_logits` the device samples. With it the logits are copied from the device and sampled here.
#[tokio::test(flavor = "multi_thread")]
async fn a_device_draws_what_the_processor_draws_of_its_logits() {
    let Some(device) = device() else { return };
    let shape = Shape::small();
    let folder = tempfile::tempdir().unwrap();
    shape.files(5).write(folder.path());
    let engine = load(folder.path(), device, DType::F32);
    let cuts = [(None, None), (Some(0.9), None), (None, Some(40)), (Some(0.9), Some(40))];
    for seed in 0..40 {
        let (top_p, top_k) = cuts[seed as usize % 4];
        let sampling = SamplingParams { temperature: 0.5 + 0.1 * (seed % 11) as f64, top_p, top_k, seed };
        let prompt = Prompt::Tokens((0..12).map(|at| (at * 7 + seed as u32) % 200).collect());
        let mut tokens = Vec::new();
        for first_logits in [0, 1] {
            let request =
                GenerateRequest { sampling: sampling.clone(), first_logits, ..greedy(prompt.clone(), 1, 0) };
            tokens.push(engine.generate(request).await.unwrap().tokens);
        }
        assert_eq!(tokens[0], tokens[1], "{sampling:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_is_near_the_processor() {
    let Some(device) = device() else { return };
    for (dtype, near) in [(DType::F32, 1e-3), (DType::Bf16, 0.15), (DType::F16, 0.02)] {
        for shape in [Shape::tiny(), Shape::small(), Shape::medium()] {
            let folder = tempfile::tempdir().unwrap();
            shape.files(5).write(folder.path());
            let (there, here) =
                (load(folder.path(), device, dtype), load(folder.path(), DeviceName::Cpu, dtype));
            assert_eq!((there.device(), here.device()), (device, DeviceName::Cpu));
            let mut random = Uniform::new(2);
            let requests: Vec<GenerateRequest> = (0..40)
                .map(|index| {
                    let prompt =
                        (0..1 + random.below(300)).map(|_| random.below(shape.vocabulary) as u32).collect();
                    let temperature = if index % 4 == 0 { 0.7 } else { 0.0 };
                    let sampling = SamplingParams { temperature, seed: index, ..SamplingParams::GREEDY };
                    GenerateRequest { sampling, ..greedy(Prompt::Tokens(prompt), 8, shape.vocabulary) }
                })
                .collect();
            let (there, here) = (all(&there, &requests).await, all(&here, &requests).await);
            for (there, here) in there.iter().zip(&here) {
                let largest = here.first_logits[0].1.abs().max(1.0);
                for (id, expected) in &here.first_logits {
                    let found = logit(there, *id);
                    assert!(
                        (found - expected).abs() < near * largest,
                        "{dtype}: logit of {id}: {found}, {expected}"
                    );
                }
            }
        }
    }
}

/// A sequence's tokens and logits are the same to the bit alone and in batches of any size, with prompts in chunks of any size
/// and with prefixes from the cache.
#[tokio::test(flavor = "multi_thread")]
async fn a_sequence_does_not_depend_on_its_batch() {
    let Some(device) = device() else { return };
    let cases = [
        (RandomShape::With110M, DType::F32),
        (RandomShape::TinyLlama, DType::Bf16),
        (RandomShape::TinyLlama, DType::F16),
        (RandomShape::Llama2With7B, DType::F16),
    ];
    for (shape, dtype) in cases {
        let mut random = Uniform::new(3);
        let requests: Vec<GenerateRequest> = (0..64)
            .map(|_| {
                let prompt = (0..1 + random.below(700)).map(|_| random.below(32_000) as u32).collect();
                greedy(Prompt::Tokens(prompt), 24, 100)
            })
            .collect();
        let order: Vec<usize> = (0..requests.len()).rev().collect();
        let load = |options: LoadOptions| {
            let options =
                LoadOptions { device, dtype, kv_cache_bytes: Some(16 << 30), hash_weights: false, ..options };
            Engine::load(ModelSource::Random { shape, seed: 1 }, options).unwrap()
        };
        let engine = load(LoadOptions { reuse_prefixes: false, max_batch: 64, ..LoadOptions::default() });
        let expected = alone(&engine, &requests).await;
        assert_eq!(together_in(&engine, &requests, &order).await, expected, "{shape} {dtype}");
        drop(engine);
        let chunks =
            LoadOptions { prefill_chunk: Some(50), max_step_tokens: Some(333), ..LoadOptions::default() };
        let engine = load(LoadOptions { max_batch: 20, ..chunks });
        for turn in ["first", "second"] {
            assert_eq!(
                together_in(&engine, &requests, &order).await,
                expected,
                "{shape} {dtype}, {turn} turn"
            );
        }
        assert!(engine.statistics().reused_tokens > 0);
    }
}
