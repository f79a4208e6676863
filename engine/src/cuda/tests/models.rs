//! Whole models on the emulated device, driven by the scheduler.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use candle_core::quantized::GgmlDType;
use lumos_kernels::DType;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use crate::cache::{PageLayout, Pool, Storage};
use crate::cuda::accelerator::{Accelerator, Argument, DeviceError, Launch, Product};
use crate::cuda::emulator::{Counts, Emulator};
use crate::cuda::step::Step;
use crate::cuda::{DeviceLlama, DeviceModel, buffer_bytes};
use crate::device::DeviceName;
use crate::error::LoadError;
use crate::fixtures::{Shape, Uniform};
use crate::load::{self, Opened};
use crate::model::{Decoder, LanguageModel, Runner, attention_storage};
use crate::options::ModelSource;
use crate::request::SamplingParams;
use crate::scheduler::{Completion, Counters, Limits, Scheduler, SequenceRequest, Submission};
use crate::speculation::Speculation;
use crate::tokenizer::Tokenizer;

use super::bytes_of;

#[allow(dead_code, reason = "shared with the integration tests, which use more of it")]
#[path = "../../../tests/it/cases.rs"]
mod reference;

const CONTEXT: usize = 512;
const PAGE: usize = 4;
/// Too few pages for all sequences of a test at once.
const PAGES: usize = 40;

/// The results of all requests, and how often kernels were launched and the device was waited for.
struct Outcome {
    completions: Vec<Completion>,
    counters: Arc<Counters>,
}

/// Runs all requests together.
fn run(
    model: Box<dyn LanguageModel>,
    layout: PageLayout,
    pages: usize,
    orders: Vec<SequenceRequest>,
) -> Outcome {
    let limits = Limits {
        max_batch: 4,
        prefill_chunk: 24,
        max_step_tokens: 40,
        max_waiting: 64,
        context_length: CONTEXT,
        speculation: Speculation::Off,
    };
    let (submissions, receiver) = mpsc::channel(orders.len());
    let counters = Arc::<Counters>::default();
    let answers: Vec<oneshot::Receiver<_>> = orders
        .into_iter()
        .map(|order| {
            let (completion, answer) = oneshot::channel();
            assert!(submissions.try_send(Submission { order, completion, tokens: None }).is_ok());
            answer
        })
        .collect();
    drop(submissions);
    let pool = Pool::new(layout, pages, true);
    let shut_down = Arc::new(AtomicBool::new(false));
    let tokenizer = Arc::new(Tokenizer::none());
    Scheduler::new(model, tokenizer, limits, pool, receiver, shut_down, counters.clone()).run();
    let completions = answers.into_iter().map(|answer| answer.blocking_recv().unwrap().unwrap()).collect();
    Outcome { completions, counters }
}

fn on_device(
    opened: &Opened,
    device: Emulator,
    dtype: DType,
    pages: usize,
) -> (Box<dyn LanguageModel>, PageLayout) {
    let failed = |error| LoadError::InvalidOption { reason: format!("{error}") };
    let model = DeviceLlama::load(device, &opened.config, &opened.weights, dtype, failed).unwrap();
    let storage = Storage::Device { width: dtype.width() };
    let layout = PageLayout { shape: opened.config.key_values(), positions: PAGE, storage };
    // Smaller than needed, so that buffers grow.
    let model = DeviceModel::new(model, DeviceName::Cuda(0), &opened.config, (pages, PAGE), (3, 1)).unwrap();
    (Box::new(model), layout)
}

fn on_processor(opened: &Opened, dtype: DType) -> (Box<dyn LanguageModel>, PageLayout) {
    let model = Decoder::load(&opened.config, &opened.weights, dtype).unwrap();
    let shape = opened.config.key_values();
    let storage = attention_storage(dtype);
    let layout = PageLayout { shape, positions: PAGE, storage };
    (Box::new(Runner::new(model, &opened.config, Some(1)).unwrap()), layout)
}

fn order(
    prompt: Vec<u32>,
    max_new_tokens: usize,
    first_logits: usize,
    sampling: SamplingParams,
) -> SequenceRequest {
    SequenceRequest {
        prompt,
        stop_tokens: vec![],
        stop_texts: vec![],
        end_of_sequence: vec![],
        max_new_tokens,
        sampling,
        first_logits,
        long: false,
        forced: Vec::new(),
        deadline: None,
    }
}

/// Prompts with a common prefix of whole pages, greedy and random, some with their first logits.
fn orders(vocabulary: usize) -> Vec<SequenceRequest> {
    let mut random = Uniform::new(17);
    let mut tokens =
        |count: usize| -> Vec<u32> { (0..count).map(|_| random.below(vocabulary) as u32).collect() };
    let common = tokens(10 * PAGE);
    [(9, 6, 5), (1, 12, 0), (30, 3, 0), (70, 5, 300), (2, 20, 0), (17, 0, 3), (5, 9, 1)]
        .into_iter()
        .enumerate()
        .map(|(index, (own, new, first))| {
            let temperature = if index % 3 == 2 { 0.8 } else { 0.0 };
            let sampling = SamplingParams { temperature, top_p: None, top_k: None, seed: index as u64 };
            order([&common[..], &tokens(own)].concat(), new, first, sampling)
        })
        .collect()
}

fn opened(shape: &Shape) -> (tempfile::TempDir, Opened) {
    let folder = tempfile::tempdir().unwrap();
    shape.files(11).write(folder.path());
    let opened = load::open(&ModelSource::Folder(folder.path().to_owned())).unwrap();
    (folder, opened)
}

fn shapes() -> [Shape; 3] {
    let grouped = Shape::tiny();
    let tied = Shape { hidden: 24, heads: 3, key_value_heads: 3, tied: true, layers: 1, ..Shape::tiny() };
    let window = Shape { extra: json!({"sliding_window": 21, "head_dim": 10}), ..Shape::tiny() };
    [grouped, tied, Shape { heads: 5, key_value_heads: 1, hidden: 50, ..window }]
}

#[test]
fn generates_what_the_processor_does() {
    for shape in shapes() {
        let (_folder, opened) = opened(&shape);
        let Some(device) = Emulator::unsanitized(DType::F32) else { return };
        let counts = device.handle();
        let (model, layout) = on_device(&opened, device, DType::F32, PAGES);
        let found = run(model, layout, PAGES, orders(shape.vocabulary));
        let (model, layout) = on_processor(&opened, DType::F32);
        let expected = run(model, layout, PAGES, orders(shape.vocabulary));
        for (found, expected) in found.completions.iter().zip(&expected.completions) {
            assert_eq!(found.tokens, expected.tokens);
            assert_eq!((found.cached, found.finish), (expected.cached, expected.finish));
            assert_eq!(found.first_logits.len(), expected.first_logits.len());
            for (id, logit) in &expected.first_logits {
                let found = found.first_logits.iter().find(|(found, _)| found == id).unwrap().1;
                assert!((found - logit).abs() < 2e-4, "logit of {id}: {found} against {logit}");
            }
        }
        let (steps, reused) = (*found.counters.lock(), *expected.counters.lock());
        assert_eq!((steps.steps, steps.reused_tokens), (reused.steps, reused.reused_tokens));
        // Only the processor publishes parts of pages, which are then evicted.
        assert_eq!((steps.preemptions, steps.evictions <= reused.evictions), (reused.preemptions, true));
        assert!(steps.reused_tokens > 0 && steps.evictions > 0, "{steps:?}");
        // At most one wait per step, independent of the number of layers.
        let Counts { launches, downloads, replays, .. } = counts.counts();
        assert!(replays > 0 && replays < downloads, "{replays} of {downloads} steps were replayed");
        assert!(downloads as u64 <= steps.steps, "{downloads} downloads in {} steps", steps.steps);
        assert!(launches as u64 <= steps.steps * (9 * shape.layers as u64 + 4));
    }
}

/// A device that only notes where the bytes that it gets lie in memory: addresses and sizes.
#[derive(Default)]
struct Uploads {
    noted: RefCell<Vec<(usize, usize)>>,
    /// An allocation of this many bytes fails once.
    refused: Cell<Option<usize>>,
}

impl Accelerator for Uploads {
    /// The size in bytes.
    type Buffer = usize;
    type Recording = ();

    fn allocate(&self, bytes: usize) -> Result<usize, DeviceError> {
        if self.refused.get() == Some(bytes) {
            self.refused.set(None);
            return Err(DeviceError::Failed(format!("{bytes} bytes are refused")));
        }
        Ok(bytes)
    }

    fn upload(&self, buffer: &usize, offset: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        if offset + bytes.len() > *buffer {
            return Err(DeviceError::Failed(format!("a buffer of {buffer} bytes is too small")));
        }
        self.noted.borrow_mut().push((bytes.as_ptr().addr(), bytes.len()));
        Ok(())
    }

    fn download(&self, _: &usize, _: usize, _: &mut [u8]) -> Result<(), DeviceError> {
        unreachable!()
    }

    fn launch(&self, _: &Launch, _: &[Argument<'_, usize>]) -> Result<(), DeviceError> {
        unreachable!()
    }

    fn record(&self, _: &mut dyn FnMut() -> Result<(), DeviceError>) -> Result<Option<()>, DeviceError> {
        unreachable!()
    }

    fn replay(&self, (): &()) -> Result<(), DeviceError> {
        unreachable!()
    }

    fn multiply(&self, _: &Product, _: &usize, _: &usize, _: (&usize, usize)) -> Result<(), DeviceError> {
        unreachable!()
    }
}

/// Weights that are stored in the requested type are uploaded as they are in the file, without a copy.
#[test]
fn weights_of_the_requested_type_come_from_the_file() {
    let shape = Shape::tiny();
    let (_folder, opened) = opened(&shape);
    let (name, sizes) = ("model.embed_tokens.weight", [shape.vocabulary, shape.hidden]);
    let values = opened.weights.get(name, &sizes).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let stored = opened.weights.mapped(name, &sizes).unwrap();
    assert!(stored == Some((GgmlDType::F32, &bytes_of(&values, DType::F32)[..])));
    let uploads = |dtype| {
        let failed = |error| LoadError::InvalidOption { reason: format!("{error}") };
        let loaded = DeviceLlama::load(Uploads::default(), &opened.config, &opened.weights, dtype, failed);
        loaded.unwrap().device().noted.take()
    };
    let at = |bytes: &[u8]| (bytes.as_ptr().addr(), bytes.len());
    let embedding = at(stored.unwrap().1);
    assert!(uploads(DType::F32).contains(&embedding));
    assert!(!uploads(DType::F16).contains(&embedding));
}

/// An allocation may fail for lack of memory that another engine frees later.
#[test]
fn a_buffer_that_could_not_grow_grows_in_the_next_step() {
    let (_folder, opened) = opened(&Shape::tiny());
    let device = Uploads { refused: Cell::new(Some(1 << 17)), ..Uploads::default() };
    let failed = |error| LoadError::InvalidOption { reason: format!("{error}") };
    let model = DeviceLlama::load(device, &opened.config, &opened.weights, DType::F32, failed).unwrap();
    let model = DeviceModel::new(model, DeviceName::Cuda(0), &opened.config, (PAGES, PAGE), (3, 1));
    let mut model = model.unwrap();
    let step = Step { words: vec![0; 20_000], rows: 1, ..Step::default() };
    assert!(model.prepare(&step, 1).unwrap_err().to_string().contains("refused"));
    model.prepare(&step, 1).unwrap();
}

/// Memory plans count the table of rotary embeddings as it grows: to a power of two of positions.
#[test]
fn rotary_tables_are_counted_as_they_grow() {
    let bytes = |positions: usize| {
        let shape = Shape { extra: json!({"max_position_embeddings": positions}), ..Shape::tiny() };
        let (_folder, opened) = opened(&shape);
        buffer_bytes(&opened.config, shape.vocabulary, DType::F32, (8, 1))
    };
    assert_eq!(bytes(600), bytes(1024));
    assert!(bytes(1025) > bytes(1024));
}

/// Models that the kernels do not compute are refused by name, before their weights are read.
#[test]
fn other_families_are_refused_by_name() {
    let biased = Shape { extra: json!({"attention_bias": true}), ..Shape::tiny() };
    let others = crate::fixtures::families::ALL.map(Shape::of).into_iter();
    for shape in others.filter(|shape| !["llama", "mistral"].contains(&shape.family)).chain([biased]) {
        let (_folder, opened) = opened(&shape);
        let failed = |error| LoadError::InvalidOption { reason: format!("{error}") };
        let loaded =
            DeviceLlama::load(Uploads::default(), &opened.config, &opened.weights, DType::F32, failed);
        let message = loaded.err().map(|error| error.to_string()).unwrap_or_default();
        for word in [&*opened.config.architecture, "not supported on GPUs", "`--device cpu`"] {
            assert!(message.contains(word), "{}: {message:?} lacks {word:?}", shape.family);
        }
    }
}

/// Buffers that grow while steps are replayed: recordings of the old ones are forgotten.
#[test]
fn recordings_do_not_outlive_their_buffers() {
    let shape = Shape { layers: 1, ..Shape::tiny() };
    let (_folder, opened) = opened(&shape);
    let Some(device) = Emulator::unsanitized(DType::F32) else { return };
    let counts = device.handle();
    let orders = || vec![order(vec![3, 1, 4], 140, 0, SamplingParams::GREEDY)];
    let (model, layout) = on_device(&opened, device, DType::F32, PAGES);
    let found = run(model, layout, PAGES, orders());
    let (model, layout) = on_processor(&opened, DType::F32);
    assert_eq!(found.completions[0].tokens, run(model, layout, PAGES, orders()).completions[0].tokens);
    // Of one shape; the first step of it is not recorded, and each growth begins anew.
    let replays = counts.counts().replays;
    assert!((100..138).contains(&replays), "{replays}");
}

/// Sequences that sample, in every way, together with a greedy one.
#[test]
fn draws_need_no_logits_and_are_those_of_the_logits() {
    let shape = Shape::tiny();
    let (_folder, opened) = opened(&shape);
    let cuts = [(None, None), (Some(0.8), None), (None, Some(20)), (Some(0.95), Some(50))];
    let orders = |new: usize, first: usize| -> Vec<SequenceRequest> {
        (0..9u32)
            .map(|index| {
                let prompt = (0..3 + index * 2).map(|at| (at * 11 + index * 29) % 300).collect();
                let (top_p, top_k) = cuts[index as usize % 4];
                let temperature = if index == 4 { 0.0 } else { 0.6 + 0.2 * f64::from(index) };
                order(
                    prompt,
                    new,
                    first,
                    SamplingParams { temperature, top_p, top_k, seed: u64::from(index) },
                )
            })
            .collect()
    };
    let on_emulator = |orders: Vec<SequenceRequest>| {
        let device = Emulator::unsanitized(DType::F32)?;
        let counts = device.handle();
        let (model, layout) = on_device(&opened, device, DType::F32, PAGES);
        Some((run(model, layout, PAGES, orders), counts.counts()))
    };
    let Some((found, counts)) = on_emulator(orders(4, 0)) else { return };
    // One id per token, and nothing else.
    let generated: usize = found.completions.iter().map(|completion| completion.generated).sum();
    assert_eq!((generated, counts.downloaded), (9 * 4, 9 * 4 * size_of::<u32>()));

    // If logits are downloaded, the CPU samples from them; the results are bit-identical.
    let (sent, counts) = on_emulator(orders(1, 1)).unwrap();
    assert!(counts.downloaded > 9 * shape.vocabulary * size_of::<f32>());
    for (found, sent) in found.completions.iter().zip(&sent.completions) {
        assert_eq!(found.tokens[..1], sent.tokens);
    }
    let (model, layout) = on_processor(&opened, DType::F32);
    let expected = run(model, layout, PAGES, orders(4, 0));
    for (found, expected) in found.completions.iter().zip(&expected.completions) {
        assert_eq!(found.tokens, expected.tokens);
    }
}

#[test]
fn short_types_are_near_what_the_processor_computes_with_their_weights() {
    let shape = Shape::tiny();
    let (_folder, opened) = opened(&shape);
    for (dtype, near) in [(DType::Bf16, 0.15), (DType::F16, 0.02)] {
        let Some(device) = Emulator::start(dtype) else { return };
        let orders = || vec![order((0..36).map(|at| at * 7 % 300).collect(), 0, 300, SamplingParams::GREEDY)];
        let (model, layout) = on_device(&opened, device, dtype, PAGES);
        let found = run(model, layout, PAGES, orders());
        let (model, layout) = on_processor(&opened, dtype);
        let expected = run(model, layout, PAGES, orders());
        let (found, expected) = (&found.completions[0].first_logits, &expected.completions[0].first_logits);
        let largest = expected.iter().map(|(_, logit)| logit.abs()).fold(0.0, f32::max);
        for (id, logit) in expected {
            let found = found.iter().find(|(found, _)| found == id).unwrap().1;
            assert!(
                (found - logit).abs() < near * largest,
                "{dtype}: logit of {id}: {found} against {logit}"
            );
        }
    }
}

/// The reference models of transformers.
/// Checks six prompts of each model; `LUMOS_EMULATED` sets another number.
#[test]
fn equals_transformers() {
    let most = std::env::var("LUMOS_EMULATED").map_or(6, |most| most.parse().unwrap());
    for name in ["llama-mha", "llama-gqa-tied", "llama3-rope", "mistral"] {
        let folder = if name == "mistral" { reference::family(name) } else { reference::folder(name) };
        let Some(folder) = folder else { return };
        let Some(device) = Emulator::unsanitized(DType::F32) else { return };
        let mut cases = reference::cases(&folder);
        cases.retain(|case| case.ids.len() < 127);
        cases.truncate(most);
        let opened = load::open(&ModelSource::Folder(folder)).unwrap();
        let orders =
            cases.iter().map(|case| order(case.ids.clone(), 4, 768, SamplingParams::GREEDY)).collect();
        let (model, layout) = on_device(&opened, device, DType::F32, 400);
        let found = run(model, layout, 400, orders);
        for (case, found) in cases.iter().zip(&found.completions) {
            let safe = case.safe_tokens.min(4);
            assert_eq!(found.tokens[..safe], case.greedy[..safe], "{name}");
            for (id, logit) in &case.first_top8 {
                let found = found.first_logits.iter().find(|(found, _)| found == id).unwrap().1;
                assert!((found - logit).abs() < 1e-3, "{name}: logit of {id}: {found} against {logit}");
            }
        }
    }
}
