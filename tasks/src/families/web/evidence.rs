//! The record of an episode on web pages.

use serde::{Deserialize, Serialize};

use super::action::ActionName;
use super::page_action::PageExecution;

/// The record of an episode on web pages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebEvidence {
    /// The chosen actions, in order. Paper behaviour may choose several times per step, corrected behaviour
    /// at most once.
    pub chosen: Vec<Chosen>,
    /// Number of gold steps completed by the episode.
    pub steps: u32,
    /// The planner's subgoals, trimmed.
    pub subgoals: Vec<String>,
    /// The random verbs of the gold actions: the upper limit, and the number drawn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drawn: Vec<[u32; 2]>,
    /// The exception with which the original ends its whole run at this point: `KeyError`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raised: Option<String>,
    /// Whether the steps' predictions, if any, were executed in a browser.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_browser: bool,
}

/// One action that was chosen: the action for a browser, and what it was chosen from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// The gold step it belongs to, counted from 0.
    pub step: u32,
    /// The kind of action.
    pub action: ActionName,
    /// The query for the element.
    pub query: String,
    /// The text typed or selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The step whose page was searched; in paper behaviour that of the named variable.
    pub page: u32,
    /// The `backend_node_id` of the best-ranked element; the first of several with the same text.
    pub element: String,
    /// All candidates with that text.
    pub alike: Vec<String>,
    /// The text that the original's tool returns: that of the tenth in the ranking, or of the last. It is not
    /// used.
    pub returned: String,
    /// The browser's result, if this is its step's prediction (the last one chosen) and there was a browser.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<PageExecution>,
}
