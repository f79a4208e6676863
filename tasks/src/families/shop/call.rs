//! What the shop is asked and what it replies.

use serde::{Deserialize, Serialize};

/// What is done in the shop.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ShopRequest {
    /// Whether the visit starts anew before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reset: bool,
    /// Actions that are repeated before; nobody looks at what they come to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replay: Vec<String>,
    /// The action: `search[red lamp]`, `click[buy now]`. What is no action, or cannot be clicked, does nothing.
    pub action: String,
}

/// What the last action came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShopReply {
    /// The page's visible texts, joined by ` [SEP] `.
    pub observation: String,
    /// What can be clicked, in lower case, in order.
    pub clickables: Vec<String>,
    /// What was bought by this very action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purchase: Option<Purchase>,
}

/// A purchase and what it is worth. Rewards are from 0 to 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Purchase {
    /// The product.
    pub asin: String,
    /// The reward.
    pub reward: f64,
    /// The reward if the nouns in titles spoke most against the product: the original's tagger is not here.
    pub lowest: f64,
    /// The reward if they spoke most for it.
    pub highest: f64,
    /// The same three where an option only counts in its own group.
    pub by_group: [f64; 3],
    /// The factor for the kind of product.
    pub r_type: f64,
}
