//! A step in the format of the official evaluators.

use serde::Deserialize;

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Sample {
    /// Id of the step's task.
    pub(crate) annotation_id: String,
    /// Id of the step.
    pub(crate) action_uid: String,
    /// The website.
    pub(crate) website: String,
    /// Text of the task.
    pub(crate) confirmed_task: String,
    /// The gold actions before this one.
    pub(crate) previous_actions: Vec<String>,
    /// The gold operation.
    pub(crate) operation: Operation,
    /// Correct elements.
    pub(crate) pos_candidates: Vec<Candidate>,
    /// Incorrect elements.
    pub(crate) neg_candidates: Vec<Candidate>,
    /// The page.
    pub(crate) cleaned_html: String,
}

/// A gold operation.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Operation {
    /// `CLICK`, `TYPE` or `SELECT`.
    pub(crate) op: String,
    /// The text typed or selected.
    #[serde(default)]
    pub(crate) value: String,
}

/// A ranked element.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Candidate {
    /// Its id.
    pub(crate) backend_node_id: String,
    /// Rank among the candidates, from 0.
    pub(crate) rank: u64,
}

impl Sample {
    /// Returns the ids of the correct elements below a rank.
    pub(crate) fn positives(&self, top_k: u64) -> Vec<&str> {
        below(&self.pos_candidates, top_k)
    }

    /// Formats the gold action as the evaluators compare it: the operation, a blank and, unless it is a
    /// click, the first line of its value.
    pub(crate) fn gold_action(&self) -> String {
        let Operation { op, value } = &self.operation;
        let mut target = format!("Action: {op}\n");
        if op != "CLICK" {
            target.push_str(&format!("Value: {value}"));
        }
        super::answer::action(&target)
    }

    /// Returns the question after the page.
    pub(crate) fn question(&self, choices: &[(String, String)]) -> String {
        let mut text = format!(
            "Based on the HTML webpage above, try to complete the following task:\nTask: {}\nPrevious actions:\n",
            self.confirmed_task
        );
        let told = self.previous_actions.len().saturating_sub(5);
        for action in &self.previous_actions[told..] {
            text.push_str(&format!("{action}\n"));
        }
        if self.previous_actions.is_empty() {
            text.push_str("None\n");
        }
        text.push_str(
            "What should be the next action? Please select from the following choices (If the correct action is not \
             in the page above, please select A. 'None of the above'):\n\nA. None of the above\n",
        );
        for (letter, (_, choice)) in ('B'..).zip(choices) {
            text.push_str(&format!("{letter}. {choice}\n"));
        }
        text
    }
}

fn below(candidates: &[Candidate], top_k: u64) -> Vec<&str> {
    let ranked = candidates.iter().filter(|candidate| candidate.rank < top_k);
    ranked.map(|candidate| candidate.backend_node_id.as_str()).collect()
}
