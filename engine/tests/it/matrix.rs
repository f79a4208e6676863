//! Runs the reference models in all variations: alone and in a batch, with small and large prefill chunks,
//! with small and large pages, with little and enough memory, with and without prefix reuse and drafts. All must give
//! the recorded tokens, and the same logits to the bit. Eight of the 32 combinations run, in which any two settings occur
//! in all four combinations; `LUMOS_VARIATIONS=all` runs all.
//!
//! The reference cases are in `$LUMOS_SHARED/golden`. Without that variable only a random model is
//! tested, whose variations are compared with each other.

use crate::cases;
use std::path::Path;

use crate::cases::Case;
use crate::requests::{alone, greedy, together};
use crate::support::{Shape, Uniform};
use lumos_engine::{
    DType, DraftUsage, Engine, GenerateRequest, Generation, LoadOptions, ModelSource, Prompt, Speculation,
};

const NEW_TOKENS: usize = 48;

#[derive(Clone, Copy, Debug)]
struct Variation {
    together: bool,
    small_chunks: bool,
    page_size: usize,
    /// Whether memory is limited to little more than the longest sequence needs.
    short_of_memory: bool,
    reuse: bool,
    speculation: Speculation,
}

fn variations() -> impl Iterator<Item = Variation> {
    let all = lumos_capabilities::all_variations();
    (0..if all { 32u32 } else { 8 }).map(move |number| {
        let bit = |place: u32| number >> place & 1 == 1;
        let (a, b, c) = (bit(0), bit(1), bit(2));
        // The last settings follow from the others, so that the values of two settings (of any five, if all
        // combinations of the other five run) occur in all combinations.
        let [short_of_memory, reuse, speculates] =
            if all { [bit(3), bit(4), number.count_ones() % 2 == 1] } else { [a ^ b, a ^ c, b ^ c] };
        Variation {
            together: a,
            small_chunks: b,
            page_size: if c { 4 } else { 16 },
            short_of_memory,
            reuse,
            speculation: if speculates { Speculation::Lookup } else { Speculation::Off },
        }
    })
}

fn engine(folder: &Path, dtype: DType, variation: Variation, longest: usize) -> Engine {
    let base = LoadOptions {
        dtype,
        hash_weights: false,
        // The tests already run in parallel; `reference.rs` varies the threads.
        threads: Some(1),
        max_batch: 24,
        page_size: variation.page_size,
        reuse_prefixes: variation.reuse,
        speculation: variation.speculation,
        ..LoadOptions::default()
    };
    let prefill_chunk = if variation.small_chunks { Some(16) } else { base.prefill_chunk };
    let load = |kv_cache_bytes| {
        let options = LoadOptions { prefill_chunk, kv_cache_bytes, ..base.clone() };
        Engine::load(ModelSource::Folder(folder.to_owned()), options).unwrap()
    };
    if !variation.short_of_memory {
        return load(Some(64 << 20));
    }
    let page_bytes = load(Some(64 << 20)).statistics().page_bytes;
    load(Some((longest.div_ceil(variation.page_size) + 3) * page_bytes))
}

/// Runs all variations and returns their common result.
async fn matrix(name: &str, folder: &Path, dtype: DType, requests: &[GenerateRequest]) -> Vec<Generation> {
    let prompt = |request: &GenerateRequest| match &request.input {
        Prompt::Tokens(tokens) => tokens.len(),
        Prompt::Text(_) => panic!("the matrix requires token ids"),
    };
    let longest = requests.iter().map(prompt).max().unwrap() + NEW_TOKENS;
    let mut expected: Option<Vec<Generation>> = None;
    let mut drafts = DraftUsage::default();
    for variation in variations() {
        let engine = engine(folder, dtype, variation, longest);
        let found = if variation.together {
            together(&engine, requests).await
        } else {
            alone(&engine, requests).await
        };
        let statistics = engine.statistics();
        assert!(statistics.allocated_pages <= statistics.page_limit, "{name} {variation:?}: {statistics:?}");
        // Without reuse, waiting requests may fit one after the other without evictions.
        if variation.short_of_memory && variation.reuse {
            assert!(statistics.evictions > 0, "{name} {variation:?}: {statistics:?}");
        }
        let is_off = variation.speculation == Speculation::Off;
        assert_eq!(statistics.drafts.drafted == 0, is_off, "{name} {variation:?}: {statistics:?}");
        drafts += statistics.drafts;
        let expected = expected.get_or_insert_with(|| found.clone());
        // Compares tokens and logits exactly.
        assert!(found == *expected, "{name} {variation:?} differs");
    }
    assert!(drafts.accepted > 0 && drafts.accepted < drafts.drafted, "{name}: {drafts:?}");
    expected.unwrap()
}

fn check(case: &Case, generation: &Generation) {
    assert_eq!(generation.tokens[..case.safe_tokens], case.greedy[..case.safe_tokens]);
    for (id, logit) in &case.first_top8 {
        let found = generation.first_logits.iter().find(|(found, _)| found == id).unwrap().1;
        assert!((found - logit).abs() < 1e-3, "logit of {id}: {found} against {logit}");
    }
}

/// Compares all variations of a reference model with the recorded results.
async fn check_reference(name: &str) {
    let Some(folder) = cases::folder(name) else { return };
    check_folder(name, &folder, 24).await;
}

/// The same for a model of another family.
async fn check_family(name: &str) {
    let Some(folder) = cases::family(name) else { return };
    check_folder(name, &folder, 16).await;
}

async fn check_folder(name: &str, folder: &Path, count: usize) {
    let cases = cases::cases(folder);
    assert_eq!(cases.len(), count);
    let requests: Vec<GenerateRequest> =
        cases.iter().map(|case| greedy(Prompt::Tokens(case.ids.clone()), NEW_TOKENS, 768)).collect();
    for (case, generation) in cases.iter().zip(matrix(name, folder, DType::F32, &requests).await) {
        check(case, &generation);
    }
}

#[tokio::test]
async fn llama_mha_gives_the_same_in_every_way() {
    check_reference("llama-mha").await;
}

#[tokio::test]
async fn llama_gqa_tied_gives_the_same_in_every_way() {
    check_reference("llama-gqa-tied").await;
}

#[tokio::test]
async fn llama3_rope_gives_the_same_in_every_way() {
    check_reference("llama3-rope").await;
}

#[tokio::test]
async fn qwen3_gives_the_same_in_every_way() {
    check_family("qwen3").await;
}

#[tokio::test]
async fn gemma3_gives_the_same_in_every_way() {
    check_family("gemma3").await;
}

#[tokio::test]
async fn qwen3_moe_gives_the_same_in_every_way() {
    check_family("qwen3-moe").await;
}

#[tokio::test]
async fn a_random_model_gives_the_same_in_every_way() {
    a_random_model(DType::F32).await;
}

/// Keys and values have 16 bits.
#[tokio::test]
async fn a_random_model_in_bfloat16_gives_the_same_in_every_way() {
    a_random_model(DType::Bf16).await;
}

#[tokio::test]
async fn a_random_model_in_half_precision_gives_the_same_in_every_way() {
    a_random_model(DType::F16).await;
}

async fn a_random_model(dtype: DType) {
    let shape = Shape { extra: serde_json::json!({"sliding_window": 70}), ..Shape::tiny() };
    let folder = tempfile::tempdir().unwrap();
    shape.files(11).write(folder.path());
    let mut random = Uniform::new(5);
    // Half of the prompts share a prefix.
    let mut ids = |count| -> Vec<u32> { (0..count).map(|_| random.below(300) as u32).collect() };
    let common = ids(75);
    let prompts = (0..24).map(|index| [&common[..index % 2 * 75], &ids(1 + 4 * index)].concat());
    let requests: Vec<GenerateRequest> =
        prompts.map(|prompt| greedy(Prompt::Tokens(prompt), NEW_TOKENS, 300)).collect();
    matrix(&format!("random {dtype}"), folder.path(), dtype, &requests).await;
}
