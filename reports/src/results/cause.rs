//! The stage that caused a unit's result.

use lumos_tasks::{Ending, Outcome, Stage, Step};

use crate::display::rounds_exhausted;

/// Result category of a unit, in the order of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

    /// All causes, in the order of reports.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let stages = Stage::ALL.into_iter().map(Self::Stage);
        [Self::Correct, Self::WrongAnswer].into_iter().chain(stages).chain([Self::Faulted, Self::Outstanding])
    }

    /// Returns the turn in which a stage failed, counted from 1; 0 for other causes.
    pub(crate) fn turn(self, outcome: &Outcome) -> u32 {
        if matches!(self, Self::Stage(_)) { turn_of(outcome) } else { 0 }
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

/// Returns the planner turn in which an episode gave up, otherwise that of its last step; 0 without steps.
pub(crate) fn turn_of(outcome: &Outcome) -> u32 {
    match &outcome.ending {
        Ending::GaveUp(reason) => reason.turn,
        Ending::Answered | Ending::Faulted(_) => outcome.steps.last().map_or(0, Step::turn),
    }
}
