//! [`Formulation`]: how planner, grounder and executor take turns (paper, section 3). [`Behaviour`]: whether
//! the published scripts are reproduced with their bugs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How planning, grounding and execution take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Formulation {
    /// Lumos-I: one subgoal at a time, planned with the results so far.
    Iterative,
    /// Lumos-O: all subgoals in one reply, all actions in another.
    #[serde(rename = "onetime")]
    OneTime,
    /// Chain of thought: one model reasons and answers without tools.
    Cot,
    /// One model answers directly.
    Direct,
    /// Integrated training: one model has both roles, turn by turn.
    Integrated,
    /// The benchmark's own loop: one chat model tries again until its answer is correct (InterCode).
    #[serde(rename = "try-again")]
    TryAgain,
}

impl Formulation {
    /// All formulations, in the order of reports.
    pub const ALL: [Self; 6] =
        [Self::Iterative, Self::OneTime, Self::Cot, Self::Direct, Self::Integrated, Self::TryAgain];

    /// The formulations of the Lumos paper: all except the loops of other benchmarks.
    pub const OF_LUMOS: [Self; 5] =
        [Self::Iterative, Self::OneTime, Self::Cot, Self::Direct, Self::Integrated];

    /// The name on the command line and in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Iterative => "iterative",
            Self::OneTime => "onetime",
            Self::Cot => "cot",
            Self::Direct => "direct",
            Self::Integrated => "integrated",
            Self::TryAgain => "try-again",
        }
    }

    /// Whether this formulation uses a planner and a grounder instead of a single answerer.
    pub fn has_modules(self) -> bool {
        matches!(self, Self::Iterative | Self::OneTime | Self::Integrated)
    }

    /// Whether its episodes call tools.
    pub fn calls_tools(self) -> bool {
        self.has_modules() || self == Self::TryAgain
    }
}

/// Agent behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Behaviour {
    /// Reproduces the published scripts, including their bugs.
    Paper,
    /// Follows the paper's description: every listed action is executed, and limits are the same for all data
    /// sets.
    Corrected,
}

impl Behaviour {
    /// Both behaviours.
    pub const ALL: [Self; 2] = [Self::Paper, Self::Corrected];

    /// The name on the command line and in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Corrected => "corrected",
        }
    }
}

/// An unknown name of a variant.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown {what} `{word}`: expected one of {known}")]
pub struct UnknownName {
    /// The kind of name: `formulation`, `behaviour`.
    pub what: &'static str,
    /// The unknown name.
    pub word: String,
    /// The valid names.
    pub known: String,
}

fn by_name<T: Copy>(
    what: &'static str,
    word: &str,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<T, UnknownName> {
    all.iter().copied().find(|value| name(*value) == word).ok_or_else(|| UnknownName {
        what,
        word: word.to_owned(),
        known: all.iter().map(|value| name(*value)).collect::<Vec<_>>().join(", "),
    })
}

impl FromStr for Formulation {
    type Err = UnknownName;

    fn from_str(word: &str) -> Result<Self, UnknownName> {
        by_name("formulation", word, &Self::ALL, Self::name)
    }
}

impl FromStr for Behaviour {
    type Err = UnknownName;

    fn from_str(word: &str) -> Result<Self, UnknownName> {
        by_name("behaviour", word, &Self::ALL, Self::name)
    }
}

impl fmt::Display for Formulation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl fmt::Display for Behaviour {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_agree_with_serde() {
        for formulation in Formulation::ALL {
            assert_eq!(formulation.name().parse(), Ok(formulation));
            assert_eq!(serde_json::to_value(formulation).unwrap(), formulation.name());
        }
        for behaviour in Behaviour::ALL {
            assert_eq!(behaviour.name().parse(), Ok(behaviour));
            assert_eq!(serde_json::to_value(behaviour).unwrap(), behaviour.name());
        }
        let error = "iterativ".parse::<Formulation>().unwrap_err();
        assert!(error.to_string().contains("onetime"), "{error}");
    }
}
