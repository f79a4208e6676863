//! [`DraftPolicy`]: how many tokens are drafted, by the measured cost of passes and the share of accepted tokens.
//!
//! A pass of `r` rows takes about `fixed + r · row` seconds: the weights are read once, and each row is multiplied. Of a
//! step with `s` sequences, drafts of `d` tokens make `s` tokens in `fixed + s · row` seconds to `s + a · d` tokens in
//! `fixed + (s + d) · row`, where `a` is the share of accepted tokens. That is faster exactly if
//!
//! ```text
//! a > s · row / (fixed + s · row)
//! ```
//!
//! whatever `d` is: if the share of accepted tokens exceeds the share of a pass that its rows take. One sequence of a
//! large model leaves the rows nearly free; a large batch leaves nothing to gain. Where drafts do not pay, a step tries a
//! few tokens now and then.

use super::{DraftUsage, Speculation};

/// Longest draft of a sequence.
pub(crate) const LONGEST_DRAFT: usize = 16;
/// Weight of earlier passes after each further one.
const DECAY: f64 = 0.98;
/// Number of drafted tokens that earlier drafts count as, at most.
const MEMORY: f64 = 512.0;
/// Steps after which drafts are tried again where they do not pay.
const RETRY: u32 = 64;
/// Spread of the measured numbers of rows from which a line through them is used.
const LEAST_VARIANCE: f64 = 0.05;

/// Selects how many tokens are drafted. Its choice changes how long a reply takes, never the reply.
#[derive(Clone, Debug)]
pub(crate) struct DraftPolicy {
    mode: Speculation,
    passes: PassCosts,
    /// Drafted and accepted tokens, earlier ones with less weight.
    drafted: f64,
    accepted: f64,
    /// Steps since drafts were last allowed.
    skipped: u32,
}

impl DraftPolicy {
    pub(crate) fn new(mode: Speculation) -> Self {
        Self { mode, passes: PassCosts::default(), drafted: 0.0, accepted: 0.0, skipped: 0 }
    }

    /// The most tokens to draft in the next step of `sequences` sequences.
    pub(crate) fn most_tokens(&mut self, sequences: usize) -> usize {
        let most = match self.mode {
            Speculation::Off => 0,
            Speculation::Lookup => usize::MAX,
            Speculation::Auto if self.pays(sequences) => usize::MAX,
            Speculation::Auto if self.drafted == 0.0 || self.skipped >= RETRY => LONGEST_DRAFT.max(sequences),
            Speculation::Auto => 0,
        };
        self.skipped = if most > 0 { 0 } else { self.skipped.saturating_add(1) };
        most
    }

    /// Adds a pass that computed `rows` rows of sequences in decode in `seconds`.
    pub(crate) fn record_pass(&mut self, rows: usize, seconds: f64) {
        self.passes.add(rows as f64, seconds);
    }

    /// Adds the drafts of a step.
    pub(crate) fn record_drafts(&mut self, usage: DraftUsage) {
        if usage.drafted > 0 {
            let weight = (MEMORY / self.drafted).min(1.0);
            self.drafted = self.drafted * weight + usage.drafted as f64;
            self.accepted = self.accepted * weight + usage.accepted as f64;
        }
    }

    /// Whether drafts are expected to save time, as far as the costs of rows and the share of accepted tokens are known.
    fn pays(&self, sequences: usize) -> bool {
        let Some((fixed, row)) = self.passes.line() else { return false };
        let rows = sequences as f64 * row;
        self.accepted * (fixed + rows) > self.drafted * rows
    }
}

/// Least squares of the seconds of passes over their rows, with decaying weights.
#[derive(Clone, Debug, Default)]
struct PassCosts {
    weight: f64,
    rows: f64,
    seconds: f64,
    rows_squared: f64,
    rows_seconds: f64,
}

impl PassCosts {
    fn add(&mut self, rows: f64, seconds: f64) {
        let sums = [
            (&mut self.weight, 1.0),
            (&mut self.rows, rows),
            (&mut self.seconds, seconds),
            (&mut self.rows_squared, rows * rows),
            (&mut self.rows_seconds, rows * seconds),
        ];
        for (sum, value) in sums {
            *sum = *sum * DECAY + value;
        }
    }

    /// Seconds of a pass and of each of its rows, both at least 0; `None` unless passes of different sizes were measured.
    fn line(&self) -> Option<(f64, f64)> {
        if self.weight == 0.0 {
            return None;
        }
        let mean = self.rows / self.weight;
        let variance = self.rows_squared / self.weight - mean * mean;
        if variance < LEAST_VARIANCE {
            return None;
        }
        let covariance = self.rows_seconds / self.weight - mean * self.seconds / self.weight;
        let row = (covariance / variance).max(0.0);
        Some(((self.seconds / self.weight - row * mean).max(0.0), row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A policy after `steps` steps of `sequences` sequences. A pass takes `fixed + rows · row` seconds, each sequence has
    /// drafts of four tokens, and `share` of them are accepted. Returns the number of steps with drafts.
    fn after(sequences: usize, fixed: f64, row: f64, share: f64, steps: usize) -> (DraftPolicy, usize) {
        let mut policy = DraftPolicy::new(Speculation::Auto);
        let mut speculated = 0;
        for _ in 0..steps {
            let drafted = policy.most_tokens(sequences).min(4 * sequences);
            speculated += usize::from(drafted > 0);
            let rows = sequences + drafted;
            policy.record_pass(rows, fixed + rows as f64 * row);
            let accepted = (drafted as f64 * share).round() as u64;
            policy.record_drafts(DraftUsage { drafted: drafted as u64, accepted });
        }
        (policy, speculated)
    }

    #[test]
    fn off_and_lookup_do_not_depend_on_measurements() {
        let (mut off, mut lookup) =
            (DraftPolicy::new(Speculation::Off), DraftPolicy::new(Speculation::Lookup));
        for sequences in [1, 8, 256] {
            for policy in [&mut off, &mut lookup] {
                policy.record_pass(sequences, 1.0);
                policy.record_drafts(DraftUsage { drafted: 8, accepted: 0 });
            }
            assert_eq!((off.most_tokens(sequences), lookup.most_tokens(sequences)), (0, usize::MAX));
        }
    }

    #[test]
    fn drafts_end_where_they_cost_more_than_they_save() {
        // Free rows: nearly always. Only rows cost, and few drafts are accepted: tried again now and then.
        assert!(after(1, 1.0, 0.0, 0.5, 500).1 > 450);
        let (_, tried) = after(8, 0.0, 1.0, 0.3, 1000);
        assert!((10..60).contains(&tried), "{tried}");
        // No draft was ever accepted.
        assert!(after(1, 1.0, 0.01, 0.0, 1000).1 < 60);
    }

    #[test]
    fn a_change_is_noticed() {
        let (mut policy, _) = after(16, 0.1, 1.0, 0.2, 500);
        assert!(!policy.pays(16));
        // One sequence remains of the batch.
        assert!(!policy.pays(4) && after(1, 30.0, 1.0, 0.2, 500).0.pays(1));
        // The text begins to repeat itself: the retries notice it.
        for _ in 0..RETRY * 200 {
            let drafted = policy.most_tokens(16).min(256) as u64;
            policy.record_pass(16 + drafted as usize, 0.1 + (16 + drafted) as f64);
            policy.record_drafts(DraftUsage { drafted, accepted: drafted });
        }
        assert!(policy.pays(16));
    }

    proptest! {
        /// The rule agrees with the duration per token that it is derived from, except near equality.
        #[test]
        fn the_rule_minimises_the_time_per_token(
            sequences in 1usize..64, fixed in 0.01f64..10.0, row in 0.0f64..1.0, share in 0.05f64..1.0, drafted in 1usize..500,
        ) {
            let mut policy = DraftPolicy::new(Speculation::Auto);
            for rows in [sequences, sequences + 8] {
                policy.record_pass(rows, fixed + rows as f64 * row);
            }
            policy.record_drafts(DraftUsage { drafted: 1_000_000, accepted: (share * 1e6) as u64 });
            let seconds = |rows: usize| fixed + rows as f64 * row;
            let without = seconds(sequences) / sequences as f64;
            let with = seconds(sequences + drafted) / (sequences as f64 + share * drafted as f64);
            if (with / without - 1.0).abs() > 1e-3 {
                prop_assert_eq!(policy.pays(sequences), with < without);
            }
        }
    }
}
