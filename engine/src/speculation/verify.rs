//! The acceptance rule.

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
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
