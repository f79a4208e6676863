//! The engine's measurements complete and return plausible figures.

use lumos_engine::bench::{BenchError, BenchReport, BenchSettings, measure};
use lumos_engine::{DeviceName, Footprint, LoadOptions, ModelSource, RandomShape};

/// Values in the matrices of all layers of the measured model (4 layers of width 128 and 352, 4 heads and 2
/// key heads of size 32), and in its output matrix (1024 tokens).
const LAYERS: f64 = (4 * 128 * (2 * 128 + 2 * 64 + 3 * 352)) as f64;
const HEAD: f64 = (1024 * 128) as f64;
/// Values of the last layer that only tokens with a prediction need: those behind its keys and values.
const PREDICTED: f64 = (128 * 128 + 3 * 128 * 352) as f64;
/// Keys and values of a token in bytes: 4 layers, 2 heads of size 32, 4 bytes each.
const POSITION: u64 = 4 * 2 * (2 * 32) * 4;

/// Whether two figures are equal except for rounding.
fn agree(left: f64, right: f64) -> bool {
    (left / right - 1.0).abs() < 1e-9
}

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
    let limits = report.limits;
    assert!(limits.read_bytes_per_second > 1e8 && limits.operations_per_second > 1e8, "{limits:?}");
    assert_eq!((report.device, report.prompt_tokens, report.new_tokens), (DeviceName::Cpu, 40, 20));
    assert_eq!(report.model.parameters, RandomShape::With1M.parameters());
    assert_eq!(report.cache_bytes_per_token, POSITION);
    let (device, max_batch) = (DeviceName::Cuda(0), LoadOptions::AUTO_BATCH);
    let on_gpu = LoadOptions { device, max_batch, ..LoadOptions::default() };
    let footprint = Footprint::of(&settings().source, &on_gpu).unwrap();
    assert_eq!(report.gpu_buffer_bytes, Some(footprint.buffer_bytes));
    let measured: Vec<(usize, bool)> =
        report.cells.iter().map(|cell| (cell.batch_size, cell.reuse)).collect();
    assert_eq!(measured, [(1, false), (4, false), (1, true), (4, true)]);
    for cell in &report.cells {
        let batch = cell.batch_size as f64;
        assert!(cell.decoded_together, "{cell:?}");
        let (prefill, decode) = (cell.prefill_tokens_per_second, cell.decode_tokens_per_second);
        let first_token = cell.first_token_seconds;
        assert!(decode > 0.0 && first_token > 0.0 && cell.second_turn_first_token_seconds > 0.0, "{cell:?}");
        // The prompts are computed when the last sequence has its first token, which is not before the mean.
        assert!(prefill * first_token <= batch * 40.0 * (1.0 + 1e-9), "{cell:?}");
        assert!(cell.batch_size > 1 || agree(prefill * first_token, 40.0), "{cell:?}");
        // A multiplication and an addition per value; prefill needs some for the last token only.
        let operations = cell.decode_share_of_compute * limits.operations_per_second / decode;
        assert!(agree(operations, 2.0 * (LAYERS + HEAD)), "{operations}");
        let operations = cell.prefill_share_of_compute * limits.operations_per_second / prefill;
        assert!(agree(operations, 2.0 * (LAYERS - PREDICTED + (PREDICTED + HEAD) / 40.0)), "{operations}");
        // A step reads all matrices, and the positions of every sequence: 50 at half of the decoded tokens.
        let bytes = cell.decode_share_of_bandwidth * limits.read_bytes_per_second * batch / decode;
        assert!(agree(bytes, 4.0 * (LAYERS + HEAD) + batch * 50.0 * POSITION as f64), "{bytes}");
        let limit = cell.decode_share_of_bandwidth.max(cell.decode_share_of_compute);
        assert_eq!(cell.decode_share_of_limit(), limit);
        // 59 of the second turn's 76 tokens were computed before.
        assert_eq!(cell.second_turn_cached_tokens, if cell.reuse { 59 * cell.batch_size } else { 0 });
        // Whole pages, and at least the five of one second turn.
        let page = 16 * POSITION;
        assert!(cell.cache_bytes >= 5 * page && cell.cache_bytes.is_multiple_of(page), "{cell:?}");
    }
    let json = serde_json::to_string(&report).unwrap();
    let again: BenchReport = serde_json::from_str(&json).unwrap();
    assert_eq!((again.model, again.device, again.threads), (report.model, report.device, report.threads));
    assert_eq!((again.gpu_buffer_bytes, again.cells.len()), (report.gpu_buffer_bytes, 4));
    for (again, cell) in again.cells.iter().zip(&report.cells) {
        assert_eq!((again.batch_size, again.reuse), (cell.batch_size, cell.reuse));
        assert_eq!(again.cache_bytes, cell.cache_bytes);
        assert!(agree(again.decode_tokens_per_second, cell.decode_tokens_per_second), "{again:?}, {cell:?}");
    }
}

/// Where the first sequences end before the last ones begin to decode, the rate is not one of the batch, and the report says
/// so.
#[tokio::test(flavor = "multi_thread")]
async fn sequences_that_never_decode_together_are_reported() {
    // A step computes an eighth of a prompt, so that the first of eight sequences has its two tokens long before the last one
    // begins.
    let options = LoadOptions { prefill_chunk: Some(8), max_step_tokens: Some(8), ..LoadOptions::default() };
    let slow = BenchSettings {
        options,
        batch_sizes: vec![1, 8],
        reuse: vec![false],
        prompt_tokens: 64,
        new_tokens: 2,
        ..settings()
    };
    let report = measure(&slow).await.unwrap();
    let together: Vec<bool> = report.cells.iter().map(|cell| cell.decoded_together).collect();
    assert_eq!(together, [true, false]);
}

#[tokio::test]
async fn settings_are_checked() {
    let least = "expected at least 1 prompt token and 2 generated tokens";
    for (settings, reason) in [
        (BenchSettings { prompt_tokens: 0, ..settings() }, least),
        (BenchSettings { new_tokens: 1, ..settings() }, least),
        (BenchSettings { batch_sizes: vec![1, 0], ..settings() }, "batch sizes must be positive"),
        (BenchSettings { reuse: Vec::new(), ..settings() }, "nothing to measure"),
    ] {
        let error = measure(&settings).await.unwrap_err();
        assert_eq!(error.to_string(), format!("invalid settings: {reason}"));
    }
    let options = LoadOptions { page_size: 5, ..LoadOptions::default() };
    let unloadable = BenchSettings { options, ..settings() };
    let error = measure(&unloadable).await.unwrap_err();
    assert!(matches!(&error, BenchError::Load(_)), "{error}");
    assert!(error.to_string().contains("page_size is 5: expected 1, 2, 4, 8 or "), "{error}");
}
