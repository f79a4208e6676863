//! Several models share one memory budget, and random models need no files.

use std::path::Path;

use crate::requests::greedy;
use crate::support::byte_tokenizer;
use lumos_engine::{
    DType, Engine, GenerateError, Generation, LoadError, LoadOptions, MemoryBudget, ModelSource, Prompt,
    RandomShape,
};

fn source(folder: &Path) -> ModelSource {
    ModelSource::Folder(folder.to_owned())
}

fn random(shape: RandomShape, seed: u64) -> ModelSource {
    ModelSource::Random { shape, seed }
}

async fn generation(engine: &Engine) -> Generation {
    engine.generate(greedy(Prompt::Tokens((3..80).collect()), 20, 50)).await.unwrap()
}

#[tokio::test]
async fn models_share_a_budget() {
    let shape = RandomShape::With1M;
    let budget = MemoryBudget::new(12 << 20);
    let budgeted = || LoadOptions { memory: Some(budget.clone()), ..LoadOptions::default() };
    let options = || LoadOptions { kv_cache_bytes: Some(1 << 20), ..budgeted() };
    let first = Engine::load(random(shape, 1), options()).unwrap();
    assert!((4 << 20..6 << 20).contains(&budget.used()), "{}", budget.used());
    assert!(budget.used() > first.weight_bytes());
    let second = Engine::load(random(shape, 2), options()).unwrap();
    let error = Engine::load(random(shape, 3), options()).unwrap_err();
    assert!(
        matches!(&error, LoadError::TooLargeForMemory { what: "weights", total, .. } if *total == 12 << 20)
    );
    drop(first);
    let third = Engine::load(random(shape, 3), options()).unwrap();
    generation(&third).await;
    drop((second, third));
    assert_eq!(budget.used(), 0);
    // Without a configured size, the cache uses half of the memory that the weights leave.
    let engine = Engine::load(random(shape, 1), budgeted()).unwrap();
    let statistics = engine.statistics();
    let left = (12 << 20) - engine.weight_bytes() as usize;
    assert!(left / 2 - statistics.page_limit * statistics.page_bytes < statistics.page_bytes);
    let large = LoadOptions { kv_cache_bytes: Some(16 << 20), dtype: DType::F16, ..budgeted() };
    let error = Engine::load(random(shape, 1), large).unwrap_err();
    assert!(error.to_string().contains("keys, values and buffers"), "{error}");
}

#[tokio::test]
async fn random_models_need_no_files_and_can_be_written() {
    let shape = RandomShape::With1M;
    let engine = Engine::load(random(shape, 5), LoadOptions::default()).unwrap();
    let description = engine.description();
    assert_eq!((description.parameters, description.vocabulary), (shape.parameters(), 1024));
    let expected = generation(&engine).await;
    assert_eq!((expected.text.as_str(), expected.tokens.len()), ("", 20));
    let refused = engine.generate(greedy(Prompt::Text("a".to_owned()), 3, 0)).await.unwrap_err();
    assert!(
        matches!(&refused, GenerateError::Tokenizer(reason) if reason.contains("token ids")),
        "{refused}"
    );
    let other = Engine::load(random(shape, 6), LoadOptions::default()).unwrap();
    assert_ne!(generation(&other).await.first_logits, expected.first_logits);
    for dtype in [DType::F32, DType::Bf16] {
        let folder = tempfile::tempdir().unwrap();
        shape.write(5, dtype, folder.path()).unwrap();
        std::fs::write(folder.path().join("tokenizer.json"), byte_tokenizer().to_string()).unwrap();
        let engine = Engine::load(source(folder.path()), LoadOptions::default()).unwrap();
        let found = generation(&engine).await;
        assert_eq!(
            (found.tokens, found.first_logits),
            (expected.tokens.clone(), expected.first_logits.clone())
        );
    }
    let error = shape.write(5, DType::F32, Path::new("/proc/none")).unwrap_err();
    assert!(matches!(error, LoadError::FileNotWritten { .. }), "{error}");
}
