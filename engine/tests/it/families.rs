//! Every family compared with transformers, and with itself in all ways of executing it.
//!
//! The reference cases are in `$LUMOS_SHARED/golden/families`; without that variable those tests are skipped.

use crate::cases::{self, Case};
use crate::reference::{check, check_half, check_invariance, engine};
use crate::requests::{alone, greedy, together_in};
use crate::support::plain::Plain;
use crate::support::{Shape, Uniform, families};
use lumos_engine::{DType, GenerateRequest, Generation, LoadOptions, Prompt};
use serde_json::json;

/// The folders of the reference cases.
const FOLDERS: [&str; 11] = [
    "mistral",
    "mixtral",
    "qwen2",
    "qwen2-yarn",
    "qwen3",
    "qwen3-moe",
    "gemma2",
    "gemma3",
    "phi3",
    "olmo2",
    "granite",
];

#[tokio::test(flavor = "multi_thread")]
async fn every_family_equals_transformers_alone_and_together() {
    for name in FOLDERS {
        let Some(folder) = cases::family(name) else { return };
        let cases = cases::cases(&folder);
        assert_eq!(cases.len(), 16, "{name}");
        let engine = engine(&folder, LoadOptions::default());
        let requests: Vec<GenerateRequest> =
            cases.iter().map(|case| greedy(Prompt::Text(case.prompt.clone()), 48, 768)).collect();
        let order: Vec<usize> = (0..cases.len()).rev().collect();
        let (alone, together) =
            (alone(&engine, &requests).await, together_in(&engine, &requests, &order).await);
        assert_eq!(alone, together, "{name}");
        for (case, generation) in cases.iter().zip(&alone) {
            check(case, &engine, generation);
        }
    }
}

/// Each family in half of the variations, neighbours in different ones. Random models run in all of them.
#[tokio::test(flavor = "multi_thread")]
async fn families_are_invariant_to_the_bit() {
    for (index, name) in FOLDERS.into_iter().enumerate() {
        let Some(folder) = cases::family(name) else { return };
        let requests: Vec<GenerateRequest> = cases::cases(&folder)
            .iter()
            .map(|case| greedy(Prompt::Tokens(case.ids.clone()), 16, 768))
            .collect();
        check_half(|options| engine(&folder, options), &requests, index % 2 == 1).await;
    }
}

/// The same weights in 16 bits. Half precision stores them exactly. With bfloat16, some processors also round
/// activations, which may change the experts of a token, so only the median of the differences is limited.
#[tokio::test(flavor = "multi_thread")]
async fn families_compute_in_every_type() {
    for name in FOLDERS {
        let Some(folder) = cases::family(name) else { return };
        let cases = cases::cases(&folder);
        let requests: Vec<GenerateRequest> =
            cases.iter().map(|case| greedy(Prompt::Tokens(case.ids.clone()), 4, 768)).collect();
        for (dtype, tolerance) in [(DType::Bf16, 1.0), (DType::F16, 1e-3)] {
            let engine = engine(&folder, LoadOptions { dtype, ..LoadOptions::default() });
            let difference = |(case, generation): (&Case, Generation)| {
                let logits = case.first_top8.iter().map(|(id, logit)| {
                    let found = generation.first_logits.iter().find(|(found, _)| found == id).unwrap().1;
                    (found - logit).abs()
                });
                logits.fold(0.0, f32::max)
            };
            let mut differences: Vec<f32> =
                cases.iter().zip(alone(&engine, &requests).await).map(difference).collect();
            differences.sort_by(f32::total_cmp);
            let (median, largest) = (differences[differences.len() / 2], differences[differences.len() - 1]);
            assert!(median < tolerance && largest.is_finite(), "{name} {dtype}: {differences:?}");
        }
    }
}

/// The logits of random models after prompts of several lengths, compared with the formulas in double precision.
#[tokio::test(flavor = "multi_thread")]
async fn random_models_of_every_family_follow_their_formulas() {
    let normalised = json!({"norm_topk_prob": true, "mlp_only_layers": []});
    let mixture = Shape { layers: 1, extra: normalised, ..Shape::of("qwen3_moe") };
    let untied =
        Shape { tied: false, extra: json!({"attn_logit_softcapping": 2.0}), ..Shape::of("gemma3_text") };
    let biased = Shape { extra: json!({"attention_bias": true, "mlp_bias": true}), ..Shape::tiny() };
    for shape in families::ALL.map(Shape::of).into_iter().chain([mixture, untied, biased]) {
        let folder = tempfile::tempdir().unwrap();
        shape.files(21).write(folder.path());
        let (engine, plain) = (engine(folder.path(), LoadOptions::default()), Plain::new(&shape, 21));
        let mut random = Uniform::new(9);
        // The first two sequences stay within the 64 positions of the Phi's original context.
        for (length, new) in [(1, 3), (37, 3), (61, 9), (97, 3)] {
            let prompt: Vec<u32> = (0..length).map(|_| random.below(shape.vocabulary) as u32).collect();
            let request = greedy(Prompt::Tokens(prompt.clone()), new, shape.vocabulary);
            let generation = engine.generate(request).await.unwrap();
            let expected = plain.logits(&prompt, length + new > 64);
            for (id, logit) in &generation.first_logits {
                let expected = expected[*id as usize];
                let error = (f64::from(*logit) - expected).abs();
                assert!(error < 1e-3, "{}, {length} tokens: {logit} instead of {expected}", shape.family);
            }
        }
    }
}

/// Random models in all ways of executing them. Prompts share prefixes, also across the Phi's original context.
#[tokio::test(flavor = "multi_thread")]
async fn random_models_of_every_family_are_invariant_to_the_bit() {
    for family in ["mixtral", "qwen3_moe", "gemma2", "gemma3_text", "phi3", "olmo2", "granite"] {
        let shape = Shape::of(family);
        let folder = tempfile::tempdir().unwrap();
        shape.files(23).write(folder.path());
        let mut random = Uniform::new(6);
        let mut ids = |count: usize| -> Vec<u32> {
            (0..count).map(|_| random.below(shape.vocabulary) as u32).collect()
        };
        let common = ids(45);
        let requests: Vec<GenerateRequest> = (0..16)
            .map(|index| {
                let prompt = [&common[..index % 2 * 45], &ids(1 + 5 * (index / 2))].concat();
                greedy(Prompt::Tokens(prompt), 1 + index * 7 % 20, shape.vocabulary)
            })
            .collect();
        check_invariance(|options| engine(folder.path(), options), &requests).await;
    }
}
