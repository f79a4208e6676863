//! What a forward pass says about the tokens that follow.

/// What follows one sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Prediction<'a> {
    /// A logit for every token.
    Logits(&'a [f32]),
    /// The token that the device chose.
    Token(u32),
    /// The logits are not finite.
    NotFinite,
}

/// What a device kept or sent of one sequence's logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// They are this row of what was sent.
    Row(usize),
    /// The token that the device chose.
    Token(u32),
    /// They are not finite.
    NotFinite,
}

/// What follows all sequences that asked, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Predictions<'a> {
    vocabulary: usize,
    /// Rows of `vocabulary` logits.
    logits: &'a [f32],
    /// One for each sequence, or none when the rows of logits are in order.
    choices: Option<&'a [Choice]>,
}

impl<'a> Predictions<'a> {
    /// A row of logits for every sequence.
    pub(crate) fn from_logits(logits: &'a [f32], vocabulary: usize) -> Self {
        Self { vocabulary: vocabulary.max(1), logits, choices: None }
    }

    /// A choice for every sequence; `logits` has the rows that they name.
    pub(crate) fn from_choices(choices: &'a [Choice], logits: &'a [f32], vocabulary: usize) -> Self {
        Self { vocabulary: vocabulary.max(1), logits, choices: Some(choices) }
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Prediction<'a>> + use<'a> {
        let Self { vocabulary, logits, choices } = *self;
        let count = choices.map_or(logits.len() / vocabulary, <[Choice]>::len);
        (0..count).map(move |index| match choices.map_or(Choice::Row(index), |choices| choices[index]) {
            Choice::Row(row) => Prediction::Logits(&logits[row * vocabulary..][..vocabulary]),
            Choice::Token(token) => Prediction::Token(token),
            Choice::NotFinite => Prediction::NotFinite,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_in_order_or_by_choice() {
        let logits = [1.0, 2.0, 3.0, 4.0];
        let all: Vec<Prediction<'_>> = Predictions::from_logits(&logits, 2).iter().collect();
        assert_eq!(all, [Prediction::Logits(&[1.0, 2.0]), Prediction::Logits(&[3.0, 4.0])]);
        let choices = [Choice::Token(7), Choice::Row(1), Choice::NotFinite, Choice::Row(0)];
        let some: Vec<Prediction<'_>> = Predictions::from_choices(&choices, &logits, 2).iter().collect();
        let [first, second] = [Prediction::Logits(&[1.0, 2.0]), Prediction::Logits(&[3.0, 4.0])];
        assert_eq!(some, [Prediction::Token(7), second, Prediction::NotFinite, first]);
        assert_eq!(Predictions::from_logits(&[], 2).iter().count(), 0);
    }
}
