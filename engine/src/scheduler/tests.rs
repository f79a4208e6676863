//! The scheduler with a scripted model.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::fixtures::byte_tokenizer;
use tokio::sync::oneshot;

use crate::cache::{KeyValueShape, PageLayout, Storage};
use crate::model::ForwardError;
use crate::request::{FinishReason, SamplingParams};
use crate::speculation::Speculation;

const VOCABULARY: usize = 100;
pub(super) const CONTEXT: usize = 40;
pub(super) const LAYOUT: PageLayout = PageLayout {
    shape: KeyValueShape { layers: 1, heads: 1, head_size: 2 },
    positions: 4,
    storage: Storage::F32,
};

/// Predicts the number after the last token. Token 99 fails, 98 panics, 97 gives logits that are not finite, 96 loses
/// the device.
pub(super) struct Counting {
    /// Token counts of each sequence in each step.
    pub(super) steps: Arc<std::sync::Mutex<Vec<Vec<usize>>>>,
    pub(super) logits: Vec<f32>,
    /// Duration of a step.
    pub(super) pause: Duration,
}

impl LanguageModel for Counting {
    fn forward(&mut self, chunks: &mut [Chunk<'_>]) -> Result<Vec<Prediction<'_>>, ForwardError> {
        std::thread::sleep(self.pause);
        self.steps.lock().unwrap().push(chunks.iter().map(|chunk| chunk.tokens.len()).collect());
        self.logits.clear();
        for chunk in chunks {
            chunk.cache.advance(chunk.tokens.len());
            for (place, last) in chunk.tokens.iter().map(|token| *token as usize).enumerate() {
                let is_last = place + 1 == chunk.tokens.len();
                match last {
                    55 if is_last => return Err(ForwardError::Lost("scripted loss".to_owned())),
                    99 if is_last => return Err(ForwardError::Failed("scripted failure".to_owned())),
                    98 if is_last => panic!("scripted panic"),
                    _ => {}
                }
                if place + chunk.predictions >= chunk.tokens.len() {
                    let start = self.logits.len();
                    self.logits.resize(start + VOCABULARY, 0.0);
                    self.logits[start + (last + 1) % VOCABULARY] = if last == 97 { f32::NAN } else { 1.0 };
                }
            }
        }
        Ok(self.logits.chunks_exact(VOCABULARY).map(Prediction::Logits).collect())
    }
}

struct Harness {
    submissions: mpsc::Sender<Submission>,
    steps: Arc<std::sync::Mutex<Vec<Vec<usize>>>>,
    shut_down: Arc<AtomicBool>,
    counters: Arc<Counters>,
    thread: std::thread::JoinHandle<()>,
}

pub(super) fn tokenizer() -> Arc<Tokenizer> {
    let json = byte_tokenizer().to_string();
    Arc::new(Tokenizer::from_json(json.as_bytes(), Path::new("tokenizer.json")).unwrap())
}

fn start(max_batch: usize, pause: Duration) -> Harness {
    speculating(max_batch, pause, Speculation::Off)
}

fn speculating(max_batch: usize, pause: Duration, speculation: Speculation) -> Harness {
    let steps = Arc::new(std::sync::Mutex::new(Vec::new()));
    let model = Box::new(Counting { steps: steps.clone(), logits: Vec::new(), pause });
    let tokenizer = tokenizer();
    let limits = Limits {
        max_batch,
        prefill_chunk: 4,
        max_step_tokens: 6,
        max_waiting: 8,
        context_length: CONTEXT,
        speculation,
    };
    let (submissions, receiver) = mpsc::channel(4);
    let shut_down = Arc::new(AtomicBool::new(false));
    let pool = Pool::new(LAYOUT, 1000, true);
    let counters = Arc::<Counters>::default();
    let scheduler =
        Scheduler::new(model, tokenizer, limits, pool, receiver, shut_down.clone(), counters.clone());
    let thread = std::thread::spawn(move || scheduler.run());
    Harness { submissions, steps, shut_down, counters, thread }
}

pub(super) fn order(prompt: &[u32], max_new_tokens: usize) -> SequenceRequest {
    SequenceRequest {
        prompt: prompt.to_vec(),
        stop_tokens: vec![],
        stop_texts: vec![],
        end_of_sequence: vec![],
        max_new_tokens,
        sampling: SamplingParams::GREEDY,
        first_logits: 0,
        long: false,
        forced: Vec::new(),
        deadline: None,
    }
}

pub(super) type Answer = oneshot::Receiver<Result<Completion, GenerateError>>;

impl Harness {
    fn submit(&self, order: SequenceRequest) -> Answer {
        let (completion, answer) = oneshot::channel();
        self.submissions.blocking_send(Submission { order, completion, tokens: None }).unwrap();
        answer
    }

    fn finish(self) -> Vec<Vec<usize>> {
        drop(self.submissions);
        self.thread.join().unwrap();
        self.steps.lock().unwrap().clone()
    }
}

#[test]
fn ends_by_length_stop_and_end_of_sequence() {
    let harness = start(4, Duration::ZERO);
    let length = harness.submit(order(&[1], 3)).blocking_recv().unwrap().unwrap();
    assert_eq!((length.tokens, length.finish, length.generated), (vec![2, 3, 4], FinishReason::Length, 3));
    let stop = harness
        .submit(SequenceRequest { stop_tokens: vec![4], ..order(&[1], 9) })
        .blocking_recv()
        .unwrap()
        .unwrap();
    assert_eq!((stop.tokens, stop.finish, stop.generated), (vec![2, 3], FinishReason::Stop, 3));
    let end = harness
        .submit(SequenceRequest { end_of_sequence: vec![3], ..order(&[1], 9) })
        .blocking_recv()
        .unwrap()
        .unwrap();
    assert_eq!((end.tokens, end.finish, end.generated), (vec![2], FinishReason::EndOfSequence, 2));
    let nothing = harness
        .submit(SequenceRequest { first_logits: 1, ..order(&[1], 0) })
        .blocking_recv()
        .unwrap()
        .unwrap();
    assert_eq!((nothing.tokens, nothing.first_logits), (vec![], vec![(2, 1.0)]));
    let context = harness.submit(order(&[1; 38], 9)).blocking_recv().unwrap().unwrap();
    assert_eq!((context.tokens, context.finish), (vec![2, 3], FinishReason::Length));
    // Ids 3 to 258 are bytes: after 67 ("@") come "A", "B", "C".
    let text = SequenceRequest { stop_texts: vec!["DE".to_owned(), "BC".to_owned()], ..order(&[67], 9) };
    let text = harness.submit(text).blocking_recv().unwrap().unwrap();
    assert_eq!((text.tokens, text.finish), (vec![68, 69, 70], FinishReason::Stop));
    harness.finish();
}

#[test]
fn prompts_are_cut_and_batches_mixed() {
    let harness = start(3, Duration::from_millis(2));
    let answers: Vec<Answer> = (1..6).map(|first| harness.submit(order(&[first; 9], 4))).collect();
    for (first, answer) in (1..).zip(answers) {
        let expected: Vec<u32> = (1..=4).map(|index| first + index).collect();
        assert_eq!(answer.blocking_recv().unwrap().unwrap().tokens, expected);
    }
    let steps = harness.finish();
    assert!(steps.iter().all(|step| step.len() <= 3 && step.iter().sum::<usize>() <= 6), "{steps:?}");
    assert!(steps.iter().any(|step| step.contains(&1) && step.iter().any(|tokens| *tokens > 1)), "{steps:?}");
}

#[test]
fn a_failed_pass_fails_its_sequences_only() {
    let harness = start(4, Duration::ZERO);
    for (token, text) in [(99, "scripted failure"), (98, "scripted panic")] {
        let error = harness.submit(order(&[token], 3)).blocking_recv().unwrap().unwrap_err();
        assert!(matches!(&error, GenerateError::Forward(reason) if reason.contains(text)), "{error}");
        let next = harness.submit(order(&[1], 2)).blocking_recv().unwrap().unwrap();
        assert_eq!(next.tokens, [2, 3]);
    }
    let error = harness.submit(order(&[96], 3)).blocking_recv().unwrap().unwrap_err();
    assert_eq!(error, GenerateError::NotFinite { position: 2 });
    harness.finish();
}

#[test]
fn cancelled_and_late_sequences_leave() {
    let mut scheduler = fairness::scheduler(1, 1000, true, Speculation::Off);
    let mut submit = |deadline| {
        let (completion, answer) = oneshot::channel();
        let order = SequenceRequest { deadline, ..order(&[1], 30) };
        scheduler.enqueue(Submission { order, completion, tokens: None });
        answer
    };
    let (cancelled, mut late) = (submit(None), submit(None));
    let mut expired = submit(Some(Instant::now()));
    scheduler.turn();
    let exceeded = |completion_tokens| Err(GenerateError::DeadlineExceeded { completion_tokens });
    let tokens = |answer: &mut Answer| answer.try_recv().unwrap().map(|completion| completion.tokens);
    assert_eq!(tokens(&mut expired), exceeded(0));
    drop(cancelled);
    scheduler.turn();
    scheduler.running[0].order.deadline = Some(Instant::now());
    scheduler.turn();
    assert_eq!(tokens(&mut late), exceeded(1));
    assert_eq!((scheduler.running.len(), scheduler.waiting.len(), scheduler.pool.held()), (0, 0, 0));
}

#[test]
fn shutting_down_answers_everyone() {
    let harness = start(1, Duration::from_millis(5));
    let answers: Vec<Answer> = (0..3).map(|_| harness.submit(order(&[1], 30))).collect();
    harness.shut_down.store(true, Ordering::Release);
    for answer in answers {
        assert_eq!(answer.blocking_recv().unwrap().unwrap_err(), GenerateError::ShutDown);
    }
    harness.thread.join().unwrap();
}

/// The model counts on, so that a prompt with a gap has drafts that are accepted up to the gap, or rejected.
#[test]
fn drafts_save_passes_and_change_nothing() {
    // The bytes "A" to "Z" are the ids 68 to 93.
    let counted: Vec<u32> = (60..76).chain([50, 61, 62]).collect();
    let gap: Vec<u32> = [70, 71, 72, 74, 75, 76, 77, 20, 70, 71].into();
    let broken: Vec<u32> = (92..98).chain([50, 92, 93]).collect();
    let orders = || {
        let more = |prompt: &[u32]| {
            vec![
                SequenceRequest { stop_tokens: vec![66], ..order(prompt, 30) },
                SequenceRequest { end_of_sequence: vec![74], ..order(prompt, 30) },
                SequenceRequest { stop_texts: vec!["DE".to_owned(), "IJK".to_owned()], ..order(prompt, 30) },
                SequenceRequest { forced: vec![63, 64, 70, 71, 72, 73, 74], ..order(prompt, 12) },
            ]
        };
        let lengths = (0..24).flat_map(|length| [order(&counted, length), order(&gap, length)]);
        let ends: Vec<SequenceRequest> =
            [&counted, &gap].into_iter().flat_map(|prompt| more(prompt)).collect();
        lengths.chain(ends).chain([order(&broken, 20), order(&[5], 9)]).collect::<Vec<_>>()
    };
    let run = |speculation, max_batch| {
        let harness = speculating(max_batch, Duration::ZERO, speculation);
        let outcomes: Vec<_> = if max_batch == 1 {
            orders().into_iter().map(|order| harness.submit(order).blocking_recv().unwrap()).collect()
        } else {
            let answers: Vec<Answer> = orders().into_iter().map(|order| harness.submit(order)).collect();
            answers.into_iter().map(|answer| answer.blocking_recv().unwrap()).collect()
        };
        let outcomes: Vec<_> = outcomes
            .into_iter()
            .map(|outcome| outcome.map(|one| (one.prompt, one.tokens, one.finish, one.generated)))
            .collect();
        let counters = harness.counters.clone();
        let steps = harness.finish();
        (outcomes, counters.lock().drafts, steps)
    };
    let (expected, none, passes) = run(Speculation::Off, 1);
    assert_eq!(none, DraftUsage::default());
    // Two sequences reach the token whose logits are not finite.
    assert_eq!(expected.iter().filter(|outcome| outcome.is_err()).count(), 2);
    for (speculation, max_batch) in
        [(Speculation::Lookup, 1), (Speculation::Lookup, 5), (Speculation::Auto, 1), (Speculation::Auto, 5)]
    {
        let (found, drafts, steps) = run(speculation, max_batch);
        assert_eq!(found, expected, "{speculation} {max_batch}");
        assert!(steps.iter().all(|step| step.iter().sum::<usize>() <= 6), "{steps:?}");
        if speculation == Speculation::Lookup {
            // In a batch, the number depends on which requests meet.
            assert!(drafts.accepted > 0 && drafts.accepted < drafts.drafted, "{drafts:?}");
        }
        if max_batch == 1 {
            // Alone, every accepted token saves a pass.
            assert_eq!(steps.len() as u64 + drafts.accepted, passes.len() as u64);
        }
    }
}

/// A device that is lost ends the scheduler with its reason: later requests do not fail one by one.
#[test]
fn a_lost_device_ends_its_sequences_and_the_scheduler() {
    let harness = start(1, Duration::ZERO);
    let answer = harness.submit(order(&[55], 3)).blocking_recv().unwrap();
    let lost = GenerateError::DeviceLost("scripted loss".to_owned());
    assert_eq!(answer.map(|completion| completion.tokens), Err(lost));
    // It ends although more requests could arrive.
    let Harness { submissions, thread, .. } = harness;
    thread.join().unwrap();
    assert!(submissions.is_closed());
}
