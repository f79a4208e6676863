//! Pages and their elements.

use serde::{Deserialize, Serialize};

/// One gold step's page, as the session sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WebStep {
    /// The page: XML in which `backend_node_id` names the elements.
    pub page: String,
    /// The ids of the elements that are right, in the data set's order. In paper behaviour they come first.
    pub positives: Vec<String>,
    /// The ids of the other candidates, in the data set's order.
    pub negatives: Vec<String>,
}

/// Which of a page's candidates are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CandidateScope {
    /// The first fifty of the positives followed by the negatives, as the original does: it ranks them and then hands
    /// on the first fifty all the same.
    Published,
    /// All, in the order in which they stand on the page, so that nothing is given away.
    All,
}

impl CandidateScope {
    /// How many candidates the original looks at.
    pub const PUBLISHED: usize = 50;
}

/// A candidate as the ranker sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Element {
    /// Its `backend_node_id`.
    pub id: String,
    /// What it looks like; empty in a trajectory, where it would repeat what the ranking's call says.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}
