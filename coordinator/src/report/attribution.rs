//! Whose doing it was.

use lumos_tasks::{Ending, Outcome, Stage};
use serde::{Serialize, Serializer};

use crate::words::rounds_exhausted;

/// What a unit came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The full score.
    Correct,
    /// An answer that is not the gold one.
    WrongAnswer,
    /// No answer, or a wrong one after the rounds were used up; whose doing it was.
    Stage(Stage),
    /// The infrastructure failed.
    Faulted,
    /// Nothing yet.
    Outstanding,
}

impl Cause {
    /// All causes, in the order of reports.
    pub fn all() -> impl Iterator<Item = Self> {
        [Self::Correct, Self::WrongAnswer]
            .into_iter()
            .chain(Stage::ALL.into_iter().map(Self::Stage))
            .chain([Self::Faulted, Self::Outstanding])
    }

    /// The cause of an outcome that is correct or not.
    pub fn of(outcome: &Outcome, correct: bool) -> Self {
        match &outcome.ending {
            Ending::Faulted(_) => Self::Faulted,
            _ if correct => Self::Correct,
            Ending::GaveUp(reason) => Self::Stage(reason.stage),
            Ending::Answered if rounds_exhausted(outcome) => Self::Stage(Stage::Limit),
            Ending::Answered => Self::WrongAnswer,
        }
    }

    /// The words in reports.
    pub fn name(self) -> &'static str {
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

/// How many units came to what. Sums up to the planned units.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Attribution {
    counts: Vec<(Cause, u64)>,
}

impl Attribution {
    /// Counts one unit.
    pub fn count(&mut self, cause: Cause) {
        self.count_many(cause, 1);
    }

    /// Counts so many units.
    pub fn count_many(&mut self, cause: Cause, units: u64) {
        if self.counts.is_empty() {
            self.counts = Cause::all().map(|cause| (cause, 0)).collect();
        }
        for (known, count) in &mut self.counts {
            if *known == cause {
                *count += units;
            }
        }
    }

    /// The counts that are not zero, in the order of reports.
    pub fn counts(&self) -> impl Iterator<Item = (Cause, u64)> {
        self.counts.iter().copied().filter(|(_, count)| *count > 0)
    }

    /// The count of one cause.
    pub fn of(&self, cause: Cause) -> u64 {
        self.counts.iter().find(|(known, _)| *known == cause).map_or(0, |(_, count)| *count)
    }

    /// All units counted.
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }
}
