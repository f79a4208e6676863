//! Predictions of a forward pass: logits, or the token that a device chose.

/// The prediction for one sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Prediction<'a> {
    /// One logit per token of the vocabulary.
    Logits(&'a [f32]),
    /// The token that the device chose.
    Token(u32),
    /// The logits are not finite.
    NotFinite,
}

/// The result of one sequence on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The logits are this row of the downloaded ones.
    Row(usize),
    /// The token that the device chose.
    Token(u32),
    /// The logits are not finite.
    NotFinite,
}

/// The predictions of all sequences that requested them, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Predictions<'a> {
    vocabulary: usize,
    /// Rows of `vocabulary` logits.
    logits: &'a [f32],
    /// One per sequence; `None` if the rows of logits are in order.
    choices: Option<&'a [Choice]>,
}

impl<'a> Predictions<'a> {
    /// Predictions with one row of logits per sequence.
    pub(crate) fn from_logits(logits: &'a [f32], vocabulary: usize) -> Self {
        Self { vocabulary: vocabulary.max(1), logits, choices: None }
    }

    /// Predictions with one choice per sequence; `logits` has the rows that they refer to.
    pub(crate) fn from_choices(choices: &'a [Choice], logits: &'a [f32], vocabulary: usize) -> Self {
        Self { vocabulary: vocabulary.max(1), logits, choices: Some(choices) }
    }

    /// Iterates over the predictions in order.
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
