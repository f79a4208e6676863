//! Every family compared with transformers, and with itself in all ways of executing it.
//!
//! The reference cases are in `$LUMOS_SHARED/golden/families`; without that variable those tests are skipped.

use crate::cases;
use crate::reference::{check, check_invariance, engine};
use crate::requests::{alone, greedy, together_in};
use lumos_engine::{DType, GenerateRequest, LoadOptions, Prompt};

/// The folders of the reference cases, and the largest difference of a logit when weights have 16 bits.
const FOLDERS: [(&str, f32); 11] = [
    ("mistral", 1.0),
    ("mixtral", 1.0),
    ("qwen2", 1.0),
    ("qwen2-yarn", 1.0),
    ("qwen3", 1.0),
    ("qwen3-moe", 1.0),
    ("gemma2", 1.0),
    ("gemma3", 1.0),
    ("phi3", 1.0),
    ("olmo2", 1.0),
    ("granite", 1.0),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_family_equals_transformers_alone_and_together() {
    for (name, _) in FOLDERS {
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
            println!("{name}: {:?}", case.prompt);
            check(case, &engine, generation);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn families_are_invariant_to_the_bit() {
    for (name, _) in FOLDERS {
        let Some(folder) = cases::family(name) else { return };
        let requests: Vec<GenerateRequest> = cases::cases(&folder)
            .iter()
            .map(|case| greedy(Prompt::Tokens(case.ids.clone()), 16, 768))
            .collect();
        check_invariance(|options| engine(&folder, options), &requests).await;
    }
}

/// The same weights in 16 bits: results are finite and close to those in 32.
#[tokio::test(flavor = "multi_thread")]
async fn families_compute_in_every_type() {
    for (name, tolerance) in FOLDERS {
        let Some(folder) = cases::family(name) else { return };
        let cases = cases::cases(&folder);
        let requests: Vec<GenerateRequest> =
            cases.iter().map(|case| greedy(Prompt::Tokens(case.ids.clone()), 4, 768)).collect();
        for dtype in [DType::Bf16, DType::F16] {
            let engine = engine(&folder, LoadOptions { dtype, ..LoadOptions::default() });
            let mut farthest = 0.0f32;
            for (case, generation) in cases.iter().zip(alone(&engine, &requests).await) {
                for (id, logit) in &case.first_top8 {
                    let found = generation.first_logits.iter().find(|(found, _)| found == id).unwrap().1;
                    farthest = farthest.max((found - logit).abs());
                }
            }
            println!("{name} {dtype}: {farthest}");
            assert!(farthest < tolerance, "{name} {dtype}: {farthest}");
        }
    }
}
