//! Compares the engine with the Llama of candle-transformers, which computes one sequence at a time, on the
//! same weights.

use candle_core::{D, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{Cache, Config, Llama, LlamaConfig};
use lumos_engine::{
    DType, Engine, GenerateRequest, LoadOptions, ModelSource, Prompt, RandomShape, StopCondition,
};

const SHAPE: RandomShape = RandomShape::With1M;
const VOCABULARY: usize = 1024;
const COMPLETION: usize = 48;

fn candle(seed: u64) -> (Llama, Config) {
    let folder = tempfile::tempdir().unwrap();
    SHAPE.write(seed, DType::F32, folder.path()).unwrap();
    let config = std::fs::read(folder.path().join("config.json")).unwrap();
    let config = serde_json::from_slice::<LlamaConfig>(&config).unwrap().into_config(false);
    let weights =
        candle_core::safetensors::load(folder.path().join("model.safetensors"), &Device::Cpu).unwrap();
    let weights = VarBuilder::from_tensors(weights, candle_core::DType::F32, &Device::Cpu);
    (Llama::load(weights, &config).unwrap(), config)
}

/// Returns the logits after the prompt, and a greedy completion.
fn continued(llama: &Llama, config: &Config, prompt: &[u32]) -> (Vec<f32>, Vec<u32>) {
    let mut cache = Cache::new(true, candle_core::DType::F32, config, &Device::Cpu).unwrap();
    let (mut first, mut tokens) = (None, Vec::new());
    let mut next = prompt.to_vec();
    let mut position = 0;
    while tokens.len() < COMPLETION {
        let input = Tensor::new(&next[..], &Device::Cpu).unwrap().unsqueeze(0).unwrap();
        let logits = llama.forward(&input, position, &mut cache).unwrap().squeeze(0).unwrap();
        position += next.len();
        let token = logits.argmax(D::Minus1).unwrap().to_scalar::<u32>().unwrap();
        first.get_or_insert_with(|| logits.to_vec1::<f32>().unwrap());
        tokens.push(token);
        next = vec![token];
    }
    (first.unwrap(), tokens)
}

#[tokio::test]
async fn a_llama_computes_what_that_of_candle_transformers_does() {
    for seed in 0..4 {
        let (llama, config) = candle(seed);
        let engine =
            Engine::load(ModelSource::Random { shape: SHAPE, seed }, LoadOptions::default()).unwrap();
        // The engine computes all prompts at once, candle one after the other.
        let prompts: Vec<Vec<u32>> = [1, 2, 31, 70]
            .map(|length: u32| (0..length).map(|at| (at * 37 + length + seed as u32 * 11) % 1024).collect())
            .to_vec();
        let running: Vec<_> = prompts
            .iter()
            .map(|prompt| {
                let request = GenerateRequest {
                    input: Prompt::Tokens(prompt.clone()),
                    stop: StopCondition::Never,
                    ignore_eos: true,
                    first_logits: VOCABULARY,
                    ..GenerateRequest::text("", COMPLETION)
                };
                let engine = engine.clone();
                tokio::spawn(async move { engine.generate(request).await })
            })
            .collect();
        for (prompt, running) in prompts.iter().zip(running) {
            let generation = running.await.unwrap().unwrap();
            let (logits, tokens) = continued(&llama, &config, prompt);
            assert_eq!(generation.first_logits.len(), VOCABULARY);
            for (id, logit) in &generation.first_logits {
                let difference = (logit - logits[*id as usize]).abs();
                assert!(difference < 1e-4, "seed {seed}, prompt of {}: {difference}", prompt.len());
            }
            assert_eq!(generation.tokens, tokens, "seed {seed}, prompt of {}", prompt.len());
        }
    }
}
