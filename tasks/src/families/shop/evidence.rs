//! The result of a shopping episode.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::call::Purchase;
use crate::python::repr_list;

/// A value of the original's `results`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ShopValue {
    /// A text.
    Text(String),
    /// The clickable elements.
    Clickables(Vec<String>),
    /// The reward of a purchase.
    Reward(f64),
}

impl ShopValue {
    /// The result of `str(value)` in the original.
    pub fn to_python_text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Clickables(texts) => repr_list(texts.iter().map(|text| Some(text.as_str()))),
            Self::Reward(reward) => format!("{reward:?}"),
        }
    }
}

/// How the original counts an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Ended by a purchase, whose reward counts.
    Credited,
    /// Ended by an exception: counts 0.
    Dropped,
    /// Never ended: not counted.
    Unfinished,
}

/// The record of an episode of shopping.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShopEvidence {
    /// How it ended.
    pub end: End,
    /// The purchase that counts, if there is one.
    pub credited: Option<Purchase>,
    /// The first purchase, whether it counts or not.
    pub first: Option<Purchase>,
    /// Grounded subgoals, stripped.
    pub subgoals: Vec<String>,
    /// Searches and clicks in order; the original repeats them at every click.
    pub actions: Vec<String>,
    /// Variables.
    pub results: BTreeMap<String, ShopValue>,
}
