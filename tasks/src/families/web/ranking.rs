//! Conversions between candidates and the ranker's passages and scores.

use std::collections::HashMap;

use super::element::CandidateElement;
use crate::call::Passage;

/// A passage without a title.
pub(super) fn passage(text: &str) -> Passage {
    Passage { title: String::new(), text: text.to_owned() }
}

/// The distinct texts of elements in order of first occurrence, and for each element the index of its text.
pub(super) fn distinct(elements: &[CandidateElement]) -> (Vec<&str>, Vec<usize>) {
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
