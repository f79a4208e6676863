//! Prompt lookup (Saxena 2023): what followed the last tokens of a sequence where they occurred before.
//!
//! [`draft`] is a function of the sequence's tokens alone: the prompt, which contains earlier turns and results of
//! tools, and the reply so far. [`verify`] is the acceptance rule.

use super::DraftUsage;

/// Number of last tokens that an earlier occurrence may share; longer occurrences count as equal.
const LONGEST_MATCH: usize = 8;
/// Longest draft per token that the occurrence shares: what shares little is rarely continued for long. Measured on
/// recorded replies (docs/performance.md).
const DRAFT_PER_SHARED: usize = 2;
/// Number of tokens that are searched, counted from the end.
const SEARCHED: usize = 1 << 14;

/// At most `most` tokens that may follow `tokens`; none if the last token did not occur before.
///
/// They follow the earlier occurrence that shares the most tokens with the end, up to eight, and the latest of
/// several: two tokens for each that it shares. An occurrence that overlaps the end is continued periodically.
pub(crate) fn draft(tokens: &[u32], most: usize) -> Vec<u32> {
    let searched = &tokens[tokens.len().saturating_sub(SEARCHED)..];
    let Some((start, shared)) = continuation(searched) else { return Vec::new() };
    let period = searched.len() - start;
    let count = most.min(DRAFT_PER_SHARED * shared);
    (0..count).map(|index| searched[start + index % period]).collect()
}

/// Where the best earlier occurrence of the last tokens ends, and how many of them it shares.
fn continuation(tokens: &[u32]) -> Option<(usize, usize)> {
    let (last, before) = tokens.split_last()?;
    let mut best = None;
    let mut longest = 0;
    for end in (0..before.len()).rev().filter(|end| before[*end] == *last) {
        let pairs = tokens[..=end].iter().rev().zip(tokens.iter().rev());
        let shared = pairs.take(LONGEST_MATCH).take_while(|(one, other)| one == other).count();
        if shared > longest {
            (best, longest) = (Some((end + 1, shared)), shared);
        }
        if longest == LONGEST_MATCH {
            break;
        }
    }
    best
}

/// Takes tokens with `next`, one per prediction, as long as they equal the draft, and the one that differs or follows it.
/// Returns the number of accepted tokens.
///
/// `next` chooses the token after those that were taken, exactly as without a draft, and returns `None` if the sequence
/// ended with it. It is called at most `draft.len() + 1` times, and never after a token that differs from the draft:
/// later predictions followed tokens that the sequence does not have.
pub(crate) fn verify(draft: &[u32], mut next: impl FnMut() -> Option<u32>) -> usize {
    for (accepted, expected) in draft.iter().enumerate() {
        if next() != Some(*expected) {
            return accepted;
        }
    }
    next();
    draft.len()
}

/// What drafts of at most `most` tokens save when a model gives a recorded reply to `prompt`: as many passes as tokens are
/// accepted, of as many as the reply has tokens.
///
/// ```
/// let usage = lumos_engine::replay(&[5, 6, 7, 8, 9, 5], &[6, 7, 8, 1], 4);
/// // Drafts: 7 8 after 5 6, with one token left for the pass itself.
/// assert_eq!((usage.drafted, usage.accepted), (2, 2));
/// ```
pub fn replay(prompt: &[u32], reply: &[u32], most: usize) -> DraftUsage {
    let mut usage = DraftUsage::default();
    let mut tokens = prompt.to_vec();
    // The pass that computes the prompt gives the first token.
    let mut given = reply.len().min(1);
    tokens.extend_from_slice(&reply[..given]);
    while given < reply.len() {
        let mut left = reply[given..].iter().copied();
        // A pass gives one token more than it accepts.
        let draft = draft(&tokens, most.min(left.len() - 1));
        let accepted = verify(&draft, || left.next());
        tokens.extend_from_slice(&reply[given..=given + accepted]);
        given += accepted + 1;
        usage += DraftUsage { drafted: draft.len() as u64, accepted: accepted as u64 };
    }
    usage
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_longest_and_latest_occurrence_is_continued() {
        assert_eq!(draft(&[1, 2, 3, 4, 1, 2], 2), [3, 4]);
        // The latest of equals.
        assert_eq!(draft(&[1, 2, 3, 1, 2, 4, 1, 2], 1), [4]);
        // Longer matches first.
        assert_eq!(draft(&[9, 1, 2, 3, 8, 1, 2, 4, 9, 1, 2], 1), [3]);
        // Two tokens per shared one.
        assert_eq!(draft(&[1, 5, 6, 7, 1], 3), [5, 6]);
        assert_eq!(draft(&[0, 1, 5, 6, 7, 8, 9, 0, 1], 9), [5, 6, 7, 8]);
        // The end itself does not count as an earlier occurrence.
        assert!(draft(&[], 3).is_empty());
        assert!(draft(&[4], 3).is_empty());
        assert!(draft(&[3, 4], 3).is_empty());
        // An occurrence that overlaps the end.
        assert_eq!(draft(&[6, 6, 6], 4), [6; 4]);
        assert_eq!(draft(&[1, 2, 1, 2, 1], 5), [2, 1, 2, 1, 2]);
        assert!(draft(&[1, 2, 3, 4, 1, 2], 0).is_empty());
    }

    #[test]
    fn the_search_is_limited() {
        let old: Vec<u32> = [1, 2, 3].into_iter().chain(10..10 + SEARCHED as u32).chain([1, 2]).collect();
        assert!(draft(&old, 2).is_empty());
        assert!(draft(&old[4..], 2).is_empty());
        let near: Vec<u32> =
            [1, 2, 3].into_iter().chain(10..10 + SEARCHED as u32 - 5).chain([1, 2]).collect();
        assert_eq!(draft(&near, 1), [3]);
    }

    /// The definition: every earlier end and the number of tokens it shares.
    fn by_definition(tokens: &[u32], most: usize) -> Vec<u32> {
        let shared = |end: usize| {
            (1..=LONGEST_MATCH.min(end))
                .rev()
                .find(|n| tokens[end - n..end] == tokens[tokens.len() - n..])
                .unwrap_or(0)
        };
        let best = (1..tokens.len()).max_by_key(|end| (shared(*end), *end)).filter(|end| shared(*end) > 0);
        let Some(start) = best else { return Vec::new() };
        let mut all = tokens.to_vec();
        for index in 0..most.min(2 * shared(start)) {
            all.push(all[start + index]);
        }
        all.split_off(tokens.len())
    }

    proptest! {
        #[test]
        fn drafts_are_those_of_the_definition(
            tokens in prop::collection::vec(0u32..4, 0..60), most in 0usize..20,
        ) {
            prop_assert_eq!(draft(&tokens, most), by_definition(&tokens, most));
        }

        /// Every draft is verified against the rest of the reply.
        #[test]
        fn a_replay_saves_what_a_loop_over_the_reply_saves(
            prompt in prop::collection::vec(0u32..4, 1..40), reply in prop::collection::vec(0u32..4, 0..40),
            most in 0usize..9,
        ) {
            let all = [&prompt[..], &reply].concat();
            let (mut known, mut passes, mut drafted) = (prompt.len(), 0, 0);
            while known < all.len() {
                let first = known == prompt.len();
                let most = if first { 0 } else { most.min(all.len() - known - 1) };
                let draft = draft(&all[..known], most);
                known += 1 + draft.iter().zip(&all[known..]).take_while(|(one, other)| one == other).count();
                passes += 1;
                drafted += draft.len();
            }
            let usage = replay(&prompt, &reply, most);
            prop_assert_eq!((usage.drafted, usage.accepted), (drafted as u64, (reply.len() - passes) as u64));
        }

        /// The tokens are those of a loop without drafts, whatever is drafted.
        #[test]
        fn tokens_do_not_depend_on_the_draft(
            reply in prop::collection::vec(0u32..3, 0..12), draft in prop::collection::vec(0u32..3, 0..12),
        ) {
            let mut left = reply.iter().copied();
            let accepted = verify(&draft, || left.next());
            let taken = reply.len() - left.len();
            let equal = reply.iter().zip(&draft).take_while(|(one, other)| one == other).count();
            prop_assert_eq!(accepted, equal);
            prop_assert_eq!(taken, (equal + 1).min(reply.len()));
        }
    }
}
