//! Web pages, their candidate elements, and the ranker's passages and scores for candidates.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// One gold step's page, as given to the session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WebStep {
    /// The page: XML in which `backend_node_id` names the elements.
    pub page: String,
    /// The ids of the correct elements, in the data set's order. In paper behaviour they come first.
    pub positives: Vec<String>,
    /// The ids of the other candidates, in the data set's order.
    pub negatives: Vec<String>,
}

/// Which of a page's candidates are considered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CandidateScope {
    /// The first fifty of the positives followed by the negatives. The original ranks the candidates, but then
    /// uses the first fifty in their unranked order.
    Published,
    /// All, in page order, so that the order does not reveal the correct elements.
    All,
}

impl CandidateScope {
    /// Number of candidates that the original considers.
    pub const PUBLISHED: usize = 50;
}

/// A candidate as shown to the ranker.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CandidateElement {
    /// Its `backend_node_id`.
    pub id: String,
    /// Its text representation; empty in a trajectory, because the ranking call already contains it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// The distinct texts of elements in order of first occurrence, and for each element the index of its text.
pub(super) fn distinct<'a>(elements: &[&'a CandidateElement]) -> (Vec<&'a str>, Vec<usize>) {
    let mut texts = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    let places = elements
        .iter()
        .map(|element| {
            *places.entry(&element.text).or_insert_with(|| {
                texts.push(element.text.as_str());
                texts.len() - 1
            })
        })
        .collect();
    (texts, places)
}

/// Indices from the highest score to the lowest; of equal scores the first comes first.
pub(super) fn descending(scores: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|left, right| scores[*right].total_cmp(&scores[*left]));
    order
}
