//! Requests to the shop and its replies.

use serde::{Deserialize, Serialize};

/// A request to the shop.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ShopRequest {
    /// Whether to reset the session first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reset: bool,
    /// Actions to repeat first; their results are ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replay: Vec<String>,
    /// The action: `search[red lamp]`, `click[buy now]`. An invalid action, or a click on something that is
    /// not clickable, has no effect.
    pub action: String,
}

/// The result of the last action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShopReply {
    /// The page's visible texts, joined by ` [SEP] `.
    pub observation: String,
    /// The clickable elements, in lower case, in order.
    pub clickables: Vec<String>,
    /// The purchase made by this action, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purchase: Option<Purchase>,
}

/// A purchase with its rewards, which are between 0 and 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Purchase {
    /// The product's ASIN.
    pub asin: String,
    /// The reward.
    pub reward: f64,
    /// The lowest possible reward, because the original's noun tagger for titles is not reproduced here.
    pub lowest: f64,
    /// The highest possible reward.
    pub highest: f64,
    /// The same three rewards if an option counts only in its own group.
    pub by_group: [f64; 3],
    /// The factor for the product type.
    pub r_type: f64,
}
