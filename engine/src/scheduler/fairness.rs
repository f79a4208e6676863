//! Property tests of the admission order: no sequence overtakes another, and the oldest always makes
//! progress.

use std::time::Duration;

use proptest::prelude::*;
use tokio::sync::oneshot;

use super::tests::{Answer, CONTEXT, Counting, LAYOUT, order, tokenizer};
use super::*;
use crate::request::{FinishReason, GenerateRequest};
use crate::speculation::Speculation;

/// Pages that the longest sequence needs.
const LONGEST: usize = CONTEXT.div_ceil(4);

pub(super) fn scheduler(max_batch: usize, pages: usize, reuse: bool, speculation: Speculation) -> Scheduler {
    let model = Box::new(Counting { steps: Arc::default(), logits: Vec::new(), pause: Duration::ZERO });
    let limits = Limits {
        max_batch,
        prefill_chunk: 5,
        max_step_tokens: 8,
        max_waiting: 99,
        context_length: CONTEXT,
        speculation,
    };
    let (_, submissions) = mpsc::channel(1);
    let pool = Pool::new(LAYOUT, pages, reuse);
    Scheduler::new(model, tokenizer(), limits, pool, submissions, Arc::default(), Arc::default())
}

/// One request: its first token, the number of tokens that follow, the number of generated tokens, its
/// arrival (in steps after the previous one), and after how many steps it is cancelled, if at all.
type Request = (u32, usize, usize, usize, Option<usize>);

fn requests() -> impl Strategy<Value = Vec<Request>> {
    prop::collection::vec((1u32..4, 0usize..30, 0usize..12, 0usize..3, prop::option::of(0usize..20)), 1..40)
}

fn arrivals<'a>(sequences: impl Iterator<Item = &'a Sequence>) -> Vec<u64> {
    sequences.map(|sequence| sequence.arrival).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nobody_is_overtaken_and_the_oldest_moves_on(
        requests in requests(), max_batch in 1usize..6, spare in 0usize..6, reuse in any::<bool>(),
        speculation in prop::sample::select(&Speculation::ALL),
    ) {
        let mut scheduler = scheduler(max_batch, LONGEST + spare, reuse, speculation);
        let mut coming: VecDeque<Request> = requests.iter().copied().collect();
        let mut answers: Vec<(Option<Answer>, Option<usize>)> = Vec::new();
        let mut gap = 0;
        let mut work = 0;
        let mut steps = 0;
        while !coming.is_empty() || !scheduler.running.is_empty() || !scheduler.waiting.is_empty() {
            while coming.front().is_some_and(|request| request.3 <= gap) {
                let (first, more, new, _, cancelled) = coming.pop_front().unwrap();
                let prompt: Vec<u32> = (0..=more as u32).map(|index| first + index % 20).collect();
                let (completion, answer) = oneshot::channel();
                work += prompt.len() + new;
                scheduler.enqueue(Submission { order: order(&prompt, new), completion, tokens: None });
                answers.push((Some(answer), cancelled));
                gap = 0;
            }
            gap += 1;
            for (answer, patience) in &mut answers {
                match patience {
                    Some(0) => *answer = None,
                    Some(patience) => *patience -= 1,
                    None => {}
                }
            }
            let next = scheduler.waiting.front().map(|sequence| sequence.arrival);
            let alone = scheduler.running.is_empty();
            let oldest = scheduler.running.first().map(|sequence| (sequence.arrival, sequence.cache.length()));
            scheduler.turn();
            steps += 1;
            scheduler.pool.check(scheduler.running.iter().chain(&scheduler.waiting).map(|sequence| &sequence.cache));
            prop_assert!(scheduler.pool.allocated() <= LONGEST + spare);
            // In order of arrival; no sequence runs that arrived after a waiting one.
            let order = [arrivals(scheduler.running.iter()), arrivals(scheduler.waiting.iter())].concat();
            prop_assert!(order.is_sorted(), "{:?}", order);
            // A new sequence waits only for earlier ones, and one step.
            if alone {
                prop_assert!(next.is_none_or(|next| arrivals(scheduler.waiting.iter()).first() != Some(&next)));
            }
            if let (Some((arrival, length)), Some(now)) = (oldest, scheduler.running.first())
                && now.arrival == arrival
            {
                prop_assert!(now.cache.length() > length, "the oldest sequence made no progress");
            }
            prop_assert!(oldest.is_none_or(|(arrival, _)| !arrivals(scheduler.waiting.iter()).contains(&arrival)));
        }
        // Each step advances the oldest sequence by at least one token.
        prop_assert!(steps <= work + 3 * requests.len() + 1, "{} steps for {} tokens", steps, work);
        prop_assert_eq!(scheduler.pool.held(), 0);
        for ((answer, _), (first, more, new, _, _)) in answers.into_iter().zip(&requests) {
            let Some(mut answer) = answer else { continue };
            let completion = answer.try_recv().unwrap().unwrap();
            let last = first + *more as u32 % 20;
            let count = (*new).min(CONTEXT - more - 1);
            let expected: Vec<u32> = (1..=count as u32).map(|index| last + index).collect();
            prop_assert_eq!(completion.tokens, expected);
        }
    }
}

#[test]
fn memory_that_runs_out_is_taken_from_the_youngest() {
    let mut scheduler = scheduler(4, LONGEST, false, Speculation::Off);
    let answers: Vec<Answer> = [1, 2, 3]
        .map(|first| {
            let (completion, answer) = oneshot::channel();
            scheduler.enqueue(Submission { order: order(&[first; 8], 24), completion, tokens: None });
            answer
        })
        .into();
    let mut preempted = Vec::new();
    while !scheduler.running.is_empty() || !scheduler.waiting.is_empty() {
        let before = arrivals(scheduler.running.iter());
        scheduler.turn();
        let waiting = arrivals(scheduler.waiting.iter());
        preempted.extend(before.into_iter().filter(|arrival| waiting.contains(arrival)));
    }
    assert_eq!(preempted[0], 2);
    assert!(!preempted.contains(&0), "{preempted:?}");
    assert_eq!(scheduler.counters.lock().preemptions as usize, preempted.len());
    for (first, mut answer) in (1..).zip(answers) {
        let expected: Vec<u32> = (1..=24).map(|index| first + index).collect();
        assert_eq!(answer.try_recv().unwrap().unwrap().tokens, expected);
    }
}

/// Each of them may grow to the whole cache.
#[test]
fn sequences_without_a_limit_end_when_the_cache_is_full() {
    const PAGES: usize = 5;
    for speculation in Speculation::ALL {
        let mut scheduler = scheduler(4, PAGES, true, speculation);
        let answers = [1, 2, 3].map(|first| {
            let (completion, answer) = oneshot::channel();
            let mut order = order(&[first; 6], GenerateRequest::UNLIMITED);
            order.limit_to_cache(PAGES * LAYOUT.positions);
            scheduler.enqueue(Submission { order, completion, tokens: None });
            answer
        });
        while !scheduler.running.is_empty() || !scheduler.waiting.is_empty() {
            let oldest = scheduler.running.first().map(|sequence| sequence.arrival);
            scheduler.turn();
            let waiting = arrivals(scheduler.waiting.iter());
            assert!(oldest.is_none_or(|oldest| !waiting.contains(&oldest)));
        }
        assert!(scheduler.counters.lock().preemptions > 0);
        assert_eq!(scheduler.pool.held(), 0);
        for (first, mut answer) in (1..).zip(answers) {
            let completion = answer.try_recv().unwrap().unwrap();
            // 20 positions, and the last token.
            let expected: Vec<u32> = (1..=15).map(|index| first + index).collect();
            assert_eq!((completion.tokens, completion.finish), (expected, FinishReason::Length));
        }
    }
}
