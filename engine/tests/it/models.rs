//! Several models: each is loaded once, all share one memory budget, and random models need no files.

use std::path::Path;
use std::sync::Barrier;

use crate::requests::greedy;
use crate::support::{Shape, byte_tokenizer};
use lumos_engine::{
    DType, Engine, EngineRegistry, GenerateError, Generation, LoadError, LoadOptions, MemoryBudget,
    ModelSource, Prompt, RandomShape,
};
use tempfile::TempDir;

fn folder(seed: u64) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    Shape::tiny().files(seed).write(folder.path());
    folder
}

fn source(folder: &Path) -> ModelSource {
    ModelSource::Folder(folder.to_owned())
}

fn random(shape: RandomShape, seed: u64) -> ModelSource {
    ModelSource::Random { shape, seed }
}

async fn generation(engine: &Engine) -> Generation {
    engine.generate(greedy(Prompt::Tokens((3..80).collect()), 20, 50)).await.unwrap()
}

#[test]
fn equal_weights_are_loaded_once_wherever_they_lie() {
    let (first, copy, other) = (folder(1), folder(1), folder(2));
    let models = EngineRegistry::new();
    let load = |folder: &Path| models.engine(source(folder), LoadOptions::default()).unwrap();
    let mut engines = vec![load(first.path()), load(copy.path())];
    #[cfg(unix)]
    {
        let links = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(first.path(), links.path().join("folder")).unwrap();
        engines.push(load(&links.path().join("folder")));
        for entry in std::fs::read_dir(first.path()).unwrap().flatten() {
            std::os::unix::fs::symlink(entry.path(), links.path().join(entry.file_name())).unwrap();
        }
        engines.push(load(links.path()));
    }
    assert_eq!(models.loads(), 1);
    engines.push(load(other.path()));
    assert_eq!(models.loads(), 2);
    // The same weights with another data type are another model.
    for dtype in [DType::Bf16, DType::F16] {
        let options = LoadOptions { dtype, ..LoadOptions::default() };
        engines.push(models.engine(source(copy.path()), options).unwrap());
    }
    assert_eq!(models.loads(), 4);
    // Changed weights in a known folder are detected.
    Shape::tiny().files(9).write(copy.path());
    let changed = std::fs::File::options().write(true).open(copy.path().join("model.safetensors")).unwrap();
    changed.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(9)).unwrap();
    engines.push(load(copy.path()));
    assert_eq!(models.loads(), 5);
    // A changed shape is detected, too.
    let shape = Shape { extra: serde_json::json!({"sliding_window": 8}), ..Shape::tiny() };
    std::fs::write(copy.path().join("config.json"), shape.config().to_string()).unwrap();
    engines.push(load(copy.path()));
    assert_eq!(models.loads(), 6);
}

#[test]
fn however_many_ask_at_once_each_model_is_loaded_once() {
    const EACH: usize = 6;
    let folders = [folder(1), folder(2), folder(1)];
    let models = EngineRegistry::new();
    let barrier = Barrier::new(EACH * (folders.len() + 1));
    let engines: Vec<Engine> = std::thread::scope(|scope| {
        let ask = |source: ModelSource| {
            let (models, barrier) = (&models, &barrier);
            scope.spawn(move || {
                barrier.wait();
                models.engine(source, LoadOptions::default()).unwrap()
            })
        };
        let sources =
            || folders.iter().map(|folder| source(folder.path())).chain([random(RandomShape::With1M, 3)]);
        let threads: Vec<_> = (0..EACH).flat_map(|_| sources()).map(ask).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!((engines.len(), models.loads()), (EACH * 4, 3));
}

#[tokio::test]
async fn models_share_a_budget() {
    let shape = RandomShape::With1M;
    let options = || LoadOptions { kv_cache_bytes: Some(1 << 20), ..LoadOptions::default() };
    let budget = MemoryBudget::new(12 << 20);
    let models = EngineRegistry::with_budget(budget.clone());
    let first = models.engine(random(shape, 1), options()).unwrap();
    assert!((4 << 20..6 << 20).contains(&budget.used()), "{}", budget.used());
    assert!(budget.used() > first.weight_bytes());
    let second = models.engine(random(shape, 2), options()).unwrap();
    let error = models.engine(random(shape, 3), options()).unwrap_err();
    assert!(
        matches!(&error, LoadError::TooLargeForMemory { what: "weights", total, .. } if *total == 12 << 20)
    );
    let used = budget.used();
    assert_eq!(models.engine(random(shape, 2), options()).unwrap().weight_bytes(), second.weight_bytes());
    assert_eq!((budget.used(), models.loads()), (used, 2));
    drop(first);
    let third = models.engine(random(shape, 3), options()).unwrap();
    generation(&third).await;
    drop((second, third));
    assert_eq!(budget.used(), 0);
    // Without a configured size, the cache uses half of the memory that the weights leave.
    let engine = models.engine(random(shape, 1), LoadOptions::default()).unwrap();
    let statistics = engine.statistics();
    let left = (12 << 20) - engine.weight_bytes() as usize;
    assert!(left / 2 - statistics.page_limit * statistics.page_bytes < statistics.page_bytes);
    let large = LoadOptions { kv_cache_bytes: Some(16 << 20), dtype: DType::F16, ..LoadOptions::default() };
    let error = models.engine(random(shape, 1), large).unwrap_err();
    assert!(error.to_string().contains("keys and values"), "{error}");
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
