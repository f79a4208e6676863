//! Exemplars: the two worked tasks at the start of every prompt.
//!
//! Those that ship with the project are specific to lumos and use its own small catalogue. The published ones
//! (upstream `eval/webshop/examplars.py`) have the same form and are passed as a file.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::python::strip;

/// Worked tasks for the planner and the grounder, in the form of the published ones.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exemplars {
    /// For the planner.
    #[serde(rename = "PLAN_EXAMPLARS")]
    pub plan: Vec<PlanExemplar>,
    /// For the grounder; each has the same subgoals as the planner's exemplar at the same index.
    #[serde(rename = "GROUND_EXAMPLARS")]
    pub ground: Vec<GroundExemplar>,
}

/// A worked task for the planner.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanExemplar {
    /// The task.
    pub instruction: String,
    /// `Subgoal 1: … || Results: …; Subgoal 2: …`.
    pub subgoals: String,
}

/// A worked task for the grounder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroundExemplar {
    /// The task.
    pub instruction: String,
    /// `Action 1-1: …; Action 2-1: … || Action 2-2: …`: subgoals are separated by `; Action `, their actions by
    /// ` || `.
    pub actions: String,
}

/// Errors of parsing exemplars.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadExemplars {
    /// It is not JSON of the expected form.
    #[error("expected an object with PLAN_EXAMPLARS and GROUND_EXAMPLARS: {0}")]
    Form(String),
    /// Planner's and grounder's exemplars do not match.
    #[error("exemplar {0}: the grounder's actions are for {1} subgoals, the planner's are {2}")]
    Apart(usize, usize, usize),
    /// A subgoal has no result.
    #[error("exemplar {0}: `{1}` has no ` || Results: `")]
    NoResult(usize, String),
}

/// Separator between a subgoal and its result.
const RESULTS: &str = " || Results: ";

impl Exemplars {
    /// Parses exemplars from JSON.
    ///
    /// # Errors
    /// See [`BadExemplars`].
    pub fn read(text: &str) -> Result<Self, BadExemplars> {
        let read: Self = serde_json::from_str(text).map_err(|error| BadExemplars::Form(error.to_string()))?;
        if read.plan.len() != read.ground.len() {
            return Err(BadExemplars::Apart(0, read.ground.len(), read.plan.len()));
        }
        for (index, (plan, ground)) in read.plan.iter().zip(&read.ground).enumerate() {
            let subgoals = plan.subgoals.split("; Subgoal ");
            if let Some(lacking) = subgoals.clone().find(|subgoal| !subgoal.contains(RESULTS)) {
                return Err(BadExemplars::NoResult(index + 1, lacking.to_owned()));
            }
            let (grounded, planned) = (ground.grounded().len(), subgoals.count());
            if grounded != planned {
                return Err(BadExemplars::Apart(index + 1, grounded, planned));
            }
        }
        Ok(read)
    }

    /// The exemplars that ship with the project.
    pub fn shipped() -> Self {
        Self::read(include_str!("exemplars.json"))
            .unwrap_or_else(|_| Self { plan: Vec::new(), ground: Vec::new() })
    }
}

impl PlanExemplar {
    /// Subgoals with their results. Dots around a result are removed.
    pub(super) fn subgoals(&self) -> Vec<(String, &str)> {
        let texts = self.subgoals.split("; Subgoal ").enumerate();
        texts
            .map(|(index, text)| {
                let mut parts = text.split(RESULTS);
                let start = if index == 0 { "" } else { "Subgoal " };
                let subgoal = format!("{start}{}", parts.next().unwrap_or_default());
                (subgoal, parts.next().unwrap_or_default().trim_matches('.'))
            })
            .collect()
    }
}

impl GroundExemplar {
    /// The actions of each subgoal.
    pub(super) fn grounded(&self) -> Vec<Vec<&str>> {
        self.actions
            .split("; Action ")
            .map(|actions| actions.split(" || ").map(unlabelled).collect())
            .collect()
    }
}

/// An action without its label, which ends with the first colon.
fn unlabelled(action: &str) -> &str {
    strip(action.split_once(':').map_or(action, |(_, action)| action))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_ones_are_two_well_formed_tasks() {
        let shipped = Exemplars::read(include_str!("exemplars.json")).unwrap();
        assert_eq!((shipped.plan.len(), shipped.ground.len()), (2, 2));
        assert_eq!(shipped, Exemplars::shipped());
        for (plan, ground) in shipped.plan.iter().zip(&shipped.ground) {
            assert_eq!(plan.instruction, ground.instruction);
            assert_eq!(plan.subgoals().len(), 5);
            assert!(ground.grounded().iter().flatten().all(|action| action.starts_with('R')));
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(matches!(Exemplars::read("[]"), Err(BadExemplars::Form(_))));
        let text = r#"{"PLAN_EXAMPLARS": [{"instruction": "i", "subgoals": "Subgoal 1: a"}],
            "GROUND_EXAMPLARS": [{"instruction": "i", "actions": "Action 1-1: R1 = Search(a)"}]}"#;
        assert_eq!(Exemplars::read(text), Err(BadExemplars::NoResult(1, "Subgoal 1: a".to_owned())));
        let text = text.replace("1: a\"", "1: a || Results: b; Subgoal 2: c || Results: d\"");
        assert_eq!(Exemplars::read(&text), Err(BadExemplars::Apart(1, 1, 2)));
    }
}
