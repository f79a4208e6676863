//! Attribution: which stage caused each result.

use lumos_tasks::{Ending, Outcome, Stage};
use serde::{Serialize, Serializer};

use crate::display::rounds_exhausted;

/// Result category of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Full score.
    Correct,
    /// An answer that differs from the gold answer.
    WrongAnswer,
    /// The stage that caused a missing answer, or a wrong answer after the rounds were used up.
    Stage(Stage),
    /// Every attempt so far ended with a fault.
    Faulted,
    /// Nothing is recorded yet.
    Outstanding,
}

impl Cause {
    /// Returns all causes, in the order of reports.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        [Self::Correct, Self::WrongAnswer]
            .into_iter()
            .chain(Stage::ALL.into_iter().map(Self::Stage))
            .chain([Self::Faulted, Self::Outstanding])
    }

    /// Returns the cause for an outcome.
    pub(crate) fn of(outcome: &Outcome, correct: bool) -> Self {
        match &outcome.ending {
            Ending::Faulted(_) => Self::Faulted,
            _ if correct => Self::Correct,
            Ending::GaveUp(reason) => Self::Stage(reason.stage),
            Ending::Answered if rounds_exhausted(outcome) => Self::Stage(Stage::Limit),
            Ending::Answered => Self::WrongAnswer,
        }
    }

    /// Returns the name used in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Correct => "correct",
            Self::WrongAnswer => "wrong answer",
            Self::Stage(stage) => stage.name(),
            Self::Faulted => "faulted",
            Self::Outstanding => "outstanding",
        }
    }
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Numbers of units by cause. Their sum is the number of planned units.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Attribution {
    counts: Vec<(Cause, u64)>,
}

impl Attribution {
    /// Counts one unit.
    pub(crate) fn count(&mut self, cause: Cause) {
        self.count_many(cause, 1);
    }

    /// Counts several units.
    pub(crate) fn count_many(&mut self, cause: Cause, units: u64) {
        if self.counts.is_empty() {
            self.counts = Cause::all().map(|cause| (cause, 0)).collect();
        }
        for (known, count) in &mut self.counts {
            if *known == cause {
                *count += units;
            }
        }
    }

    /// Returns the counts that are not zero, in the order of reports.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (Cause, u64)> {
        self.counts.iter().copied().filter(|(_, count)| *count > 0)
    }

    /// Returns the count of one cause.
    pub(crate) fn of(&self, cause: Cause) -> u64 {
        self.counts.iter().find(|(known, _)| *known == cause).map_or(0, |(_, count)| *count)
    }

    /// Returns the number of counted units.
    pub(crate) fn total(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }
}
