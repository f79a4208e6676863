//! What an episode on web pages ends with.

use serde::{Deserialize, Serialize};

use super::action::ActionName;
use super::carried::Carried;

/// The record of an episode on web pages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebEvidence {
    /// What was chosen, in order. Paper behaviour may choose several times in a step, corrected behaviour at most once.
    pub chosen: Vec<Chosen>,
    /// How many gold steps the episode went through.
    pub steps: u32,
    /// The planner's subgoals, trimmed.
    pub subgoals: Vec<String>,
    /// The verbs that were drawn for the gold actions: below which number, and which.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drawn: Vec<[u32; 2]>,
    /// The exception with which the original ends its whole run here: `KeyError`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raised: Option<String>,
    /// Whether the steps' predictions were carried out in a browser, as far as there were any.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_browser: bool,
}

/// One action that was carried out: what a browser would do, and what it was chosen by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// The gold step it belongs to, counted from 0.
    pub step: u32,
    /// What is done with the element.
    pub action: ActionName,
    /// The element asked for.
    pub query: String,
    /// The text typed or selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The step whose page was looked at: in paper behaviour that of the variable named.
    pub page: u32,
    /// The `backend_node_id` of the element that won; of several with the same text, the first.
    pub element: String,
    /// All elements looked at with that text.
    pub alike: Vec<String>,
    /// The text that the original's tool hands back: that of the tenth in the ranking, or of the last. Nothing uses it.
    pub returned: String,
    /// What a browser made of it, where it is its step's prediction (the last one chosen) and there was a browser.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<Carried>,
}
