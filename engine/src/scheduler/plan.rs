//! Plans a step: which sequences are admitted, get pages, or are preempted.
//!
//! Sequences are admitted in order of arrival. Each step gives one token to every decoding sequence, the rest of its
//! budget to prompts, and what is left to drafts. If pages run out, the youngest sequences are preempted.

use super::Scheduler;
use super::sequence::Sequence;
use crate::speculation::LONGEST_DRAFT;

impl Scheduler {
    /// Admits waiting sequences in order of arrival, as long as there is memory for their first tokens. No
    /// sequence overtakes another.
    pub(super) fn admit(&mut self) {
        while self.running.len() < self.limits.max_batch.max(1)
            && self.waiting.front().is_some_and(|next| self.fits(next))
            && let Some(next) = self.waiting.pop_front()
        {
            self.running.push(next);
        }
    }

    /// Whether there is memory to compute `next` up to its next token in addition to the running sequences.
    fn fits(&self, next: &Sequence) -> bool {
        let layout = self.pool.layout();
        let promised: usize = self
            .running
            .iter()
            .map(|sequence| {
                layout.pages(sequence.positions_ahead()).saturating_sub(sequence.cache.page_count())
            })
            .sum();
        let shared = self.pool.shared_with_others(&next.cache, next.known());
        let needed = layout.pages(next.positions_ahead()) - shared;
        promised + needed <= self.pool.available()
    }

    /// Sets the number of tokens to compute for each sequence: one for each decoding sequence, then prompts
    /// in order of arrival, then drafts.
    pub(super) fn plan(&mut self) {
        self.running.iter_mut().for_each(Sequence::begin_step);
        let mut budget = self.limits.max_step_tokens.max(1);
        let mut index = 0;
        while index < self.running.len() {
            if self.running[index].remaining() == 1 && self.make_room(index, 1) {
                self.running[index].in_step = 1;
                budget = budget.saturating_sub(1);
            }
            index += 1;
        }
        let mut index = 0;
        while index < self.running.len() && budget > 0 {
            if self.running[index].in_step == 0 {
                budget -= self.plan_prompt(index, budget);
            }
            index += 1;
        }
        self.plan_drafts(budget);
    }

    /// Adds drafts of at most `budget` tokens in total to sequences in decode. Uses only pages that no sequence holds.
    fn plan_drafts(&mut self, mut budget: usize) {
        let in_decode = |sequence: &&mut Sequence| sequence.in_step == 1 && sequence.remaining() == 1;
        let sequences = self.running.iter_mut().filter(in_decode).count();
        if sequences == 0 || budget == 0 {
            return;
        }
        budget = budget.min(self.policy.most_tokens(sequences));
        for sequence in self.running.iter_mut().filter(in_decode) {
            budget -= sequence.draft(LONGEST_DRAFT.min(budget), &mut self.pool);
        }
    }

    /// Plans a sequence that has prompt tokens left; at most `budget`.
    fn plan_prompt(&mut self, index: usize, budget: usize) -> usize {
        let (before, others) = self.running.split_at_mut(index);
        let Some(sequence) = others.first_mut() else { return 0 };
        let found = sequence.attach(&mut self.pool);
        // Pages that an older sequence fills in this step can be shared in the next one.
        let computes_it =
            |other: &Sequence| other.in_step > 0 && other.remaining() > 1 && sequence.follows(other);
        let waits = self.pool.reuses() && before.iter().any(computes_it);
        let part = if waits { 0 } else { sequence.attach_part(&mut self.pool) };
        self.counters.lock().reused_tokens += (found + part) as u64;
        if waits {
            return 0;
        }
        let count = sequence.remaining().min(self.limits.prefill_chunk.max(1)).min(budget);
        if !self.make_room(index, count) {
            return 0;
        }
        self.running[index].in_step = count;
        count
    }

    /// Makes room for `count` more positions, preempting the youngest sequences if necessary. Returns false
    /// if the sequence itself was preempted.
    fn make_room(&mut self, index: usize, count: usize) -> bool {
        loop {
            let cache = &mut self.running[index].cache;
            if self.pool.reserve(cache, cache.length() + count) {
                return true;
            }
            let youngest = self.running.len() - 1;
            debug_assert!(youngest > 0, "the oldest sequence fits alone; others are rejected on submission");
            self.preempt(youngest);
            if youngest == index {
                return false;
            }
        }
    }

    /// Releases the pages of the youngest sequence and puts it at the front of the queue; all waiting
    /// sequences arrived later.
    fn preempt(&mut self, youngest: usize) {
        let mut sequence = self.running.remove(youngest);
        self.pool.release(sequence.preempt());
        self.waiting.push_front(sequence);
        self.counters.lock().preemptions += 1;
    }
}
