//! Compares the engine with transformers, and all execution options with each other, to the bit.
//!
//! The reference cases are in `$LUMOS_SHARED/golden/engine`; without that variable those tests are skipped.

use crate::cases;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::cases::Case;
use crate::requests::{alone, greedy, together_in};
use crate::support::{Shape, Uniform};
use lumos_engine::{
    DType, Engine, FinishReason, GenerateRequest, Generation, LoadOptions, ModelSource, Prompt, Speculation,
};

const FOLDERS: [&str; 3] = ["llama-mha", "llama-gqa-tied", "llama3-rope"];

pub(crate) fn engine(folder: &Path, options: LoadOptions) -> Engine {
    Engine::load(ModelSource::Folder(folder.to_owned()), options).unwrap()
}

pub(crate) fn check(case: &Case, engine: &Engine, generation: &Generation) {
    assert_eq!(generation.prompt_tokens, case.ids);
    assert_eq!(generation.tokens[..case.safe_tokens], case.greedy[..case.safe_tokens]);
    assert_eq!((generation.tokens.len(), generation.finish), (48, FinishReason::Length));
    for (id, logit) in &case.first_top8 {
        let found = generation.first_logits.iter().find(|(found, _)| found == id).unwrap().1;
        assert!((found - logit).abs() < 1e-3, "logit of {id}: {found} against {logit}");
    }
    if case.safe_tokens == 48 {
        // The reference decodes the generated ids alone, where SentencePiece drops a leading space.
        assert_eq!(engine.tokenizer().decode(&generation.tokens).unwrap(), case.text);
        let dropped = generation.text.strip_prefix(' ').is_some_and(|text| text == case.text);
        assert!(dropped || generation.text == case.text, "{:?} against {:?}", generation.text, case.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn equals_transformers_alone_and_together() {
    for name in FOLDERS {
        let Some(folder) = cases::folder(name) else { return };
        let cases = cases::cases(&folder);
        let engine = engine(&folder, LoadOptions::default());
        let requests: Vec<GenerateRequest> =
            cases.iter().map(|case| greedy(Prompt::Text(case.prompt.clone()), 48, 768)).collect();
        let order: Vec<usize> = (0..cases.len()).collect();
        let (alone, together) =
            (alone(&engine, &requests).await, together_in(&engine, &requests, &order).await);
        assert_eq!(alone, together, "{name}");
        for (case, generation) in cases.iter().zip(&alone) {
            check(case, &engine, generation);
        }
    }
}

fn shuffled(length: usize, seed: u64) -> Vec<usize> {
    let mut random = Uniform::new(seed);
    let mut order: Vec<usize> = (0..length).collect();
    for index in (1..length).rev() {
        order.swap(index, random.below(index + 1));
    }
    order
}

/// Checks that every variation gives the same generations and logits.
pub(crate) async fn check_invariance(load: impl Fn(LoadOptions) -> Engine, requests: &[GenerateRequest]) {
    check_variations(load, requests, |_| true).await;
}

/// As [`check_invariance`], with every second variation: the even or the odd ones. All with `LUMOS_VARIATIONS=all`.
pub(crate) async fn check_half(
    load: impl Fn(LoadOptions) -> Engine,
    requests: &[GenerateRequest],
    is_odd: bool,
) {
    let all = lumos_capabilities::all_variations();
    check_variations(load, requests, |seed| all || (seed % 2 == 1) == is_odd).await;
}

/// Checks the variations whose number is selected.
async fn check_variations(
    load: impl Fn(LoadOptions) -> Engine,
    requests: &[GenerateRequest],
    selects: impl Fn(u64) -> bool,
) {
    let expected = alone(&load(LoadOptions { threads: Some(1), ..LoadOptions::default() }), requests).await;
    let variations = [
        (LoadOptions { max_batch: 24, ..LoadOptions::default() }, 1),
        (LoadOptions { prefill_chunk: Some(1), threads: Some(2), ..LoadOptions::default() }, 2),
        (LoadOptions { prefill_chunk: Some(7), max_step_tokens: Some(40), ..LoadOptions::default() }, 3),
        (
            LoadOptions { prefill_chunk: Some(64), max_batch: 5, threads: Some(3), ..LoadOptions::default() },
            4,
        ),
        (LoadOptions { prefill_chunk: Some(4096), max_step_tokens: Some(8192), ..LoadOptions::default() }, 5),
        (LoadOptions { speculation: Speculation::Lookup, max_batch: 24, ..LoadOptions::default() }, 6),
        (
            LoadOptions {
                speculation: Speculation::Auto,
                threads: Some(2),
                page_size: 4,
                ..LoadOptions::default()
            },
            7,
        ),
    ];
    for (options, seed) in variations.into_iter().filter(|(_, seed)| selects(*seed)) {
        let description = format!("{options:?}");
        let engine = load(options);
        let order = shuffled(requests.len(), seed);
        assert_eq!(together_in(&engine, requests, &order).await, expected, "{description}");
    }
}

/// Each model in half of the variations, neighbours in different ones. Random models run in all of them.
#[tokio::test(flavor = "multi_thread")]
async fn reference_models_are_invariant_to_the_bit() {
    for (index, name) in FOLDERS.into_iter().enumerate() {
        let Some(folder) = cases::folder(name) else { return };
        let requests: Vec<GenerateRequest> = cases::cases(&folder)
            .iter()
            .map(|case| greedy(Prompt::Text(case.prompt.clone()), 24, 768))
            .collect();
        check_half(|options| engine(&folder, options), &requests, index % 2 == 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_models_are_invariant_to_the_bit() {
    let square =
        Shape { hidden: 64, intermediate: 64, layers: 1, heads: 1, key_value_heads: 1, ..Shape::tiny() };
    let windowed = Shape { extra: serde_json::json!({"sliding_window": 20}), tied: true, ..Shape::tiny() };
    for shape in [Shape::tiny(), square, windowed] {
        let folder = tempfile::tempdir().unwrap();
        shape.files(11).write(folder.path());
        let mut random = Uniform::new(5);
        let requests: Vec<GenerateRequest> = (0..24)
            .map(|_| {
                let length = 1 + random.below(150);
                let ids = (0..length).map(|_| random.below(shape.vocabulary) as u32).collect();
                greedy(Prompt::Tokens(ids), 1 + random.below(20), shape.vocabulary)
            })
            .collect();
        check_invariance(|options| engine(folder.path(), options), &requests).await;
    }
}

/// The bits of Llama and Mistral models, which recorded runs depend on.
#[tokio::test(flavor = "multi_thread")]
async fn results_of_earlier_versions_are_reproduced() {
    let windowed = Shape { extra: serde_json::json!({"sliding_window": 20}), tied: true, ..Shape::tiny() };
    let mut digest = Sha256::new();
    for shape in [Shape::tiny(), windowed] {
        let folder = tempfile::tempdir().unwrap();
        shape.files(7).write(folder.path());
        for dtype in [DType::F32, DType::F16] {
            let engine = engine(folder.path(), LoadOptions { dtype, ..LoadOptions::default() });
            let request = greedy(Prompt::Tokens((5..95).collect()), 20, shape.vocabulary);
            let mut generation = engine.generate(request).await.unwrap();
            generation.first_logits.sort_unstable_by_key(|(id, _)| *id);
            for (_, logit) in &generation.first_logits {
                digest.update(logit.to_le_bytes());
            }
            for token in &generation.tokens {
                digest.update(token.to_le_bytes());
            }
        }
    }
    let expected = "781c3d464a14177c0aaf35de6ea6e2576fec1f886bb13f0c1d5f712739fc5636";
    assert_eq!(hex::encode(digest.finalize()), expected);
}
