//! The engine's measurements complete and return plausible figures.

use lumos_engine::bench::{BenchError, BenchReport, BenchSettings, measure};
use lumos_engine::{LoadOptions, ModelSource, RandomShape};

fn settings() -> BenchSettings {
    BenchSettings {
        source: ModelSource::Random { shape: RandomShape::With1M, seed: 1 },
        options: LoadOptions::default(),
        batch_sizes: vec![1, 4],
        reuse: vec![false, true],
        prompt_tokens: 40,
        new_tokens: 20,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_model_is_measured() {
    let report = measure(&settings()).await.unwrap();
    assert!(report.limits.read_bytes_per_second > 1e8 && report.limits.operations_per_second > 1e8);
    let places: Vec<(usize, bool)> = report.cells.iter().map(|cell| (cell.batch_size, cell.reuse)).collect();
    assert_eq!(places, [(1, false), (4, false), (1, true), (4, true)]);
    for cell in &report.cells {
        assert!(cell.prefill_tokens_per_second > 0.0 && cell.decode_tokens_per_second > 0.0, "{cell:?}");
        assert!(cell.first_token_seconds > 0.0 && cell.second_turn_first_token_seconds > 0.0, "{cell:?}");
        // 59 of the second turn's 76 tokens were computed before; whole pages of 16 are reused.
        assert_eq!(cell.second_turn_cached_tokens, if cell.reuse { 48 * cell.batch_size } else { 0 });
        assert!(cell.cache_bytes > 0 && cell.prefill_share_of_compute > 0.0);
    }
    let json = serde_json::to_string(&report).unwrap();
    let again: BenchReport = serde_json::from_str(&json).unwrap();
    assert_eq!((again.model, again.cells.len()), (report.model, 4));
}

#[tokio::test]
async fn settings_are_checked() {
    for settings in [
        BenchSettings { prompt_tokens: 0, ..settings() },
        BenchSettings { new_tokens: 1, ..settings() },
        BenchSettings { batch_sizes: vec![1, 0], ..settings() },
        BenchSettings { reuse: Vec::new(), ..settings() },
    ] {
        assert!(matches!(measure(&settings).await, Err(BenchError::Settings(_))));
    }
    let options = LoadOptions { page_size: 5, ..LoadOptions::default() };
    let unloadable = BenchSettings { options, ..settings() };
    assert!(matches!(measure(&unloadable).await, Err(BenchError::Load(_))));
}
