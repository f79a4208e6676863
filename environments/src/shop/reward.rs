//! The reward of a purchase (upstream `get_reward` in `web_agent_site/engine/goal.py`).
//!
//! `reward` compares the product, its price and the chosen options with the goal. The original finds nouns
//! in titles with spaCy; here a [`Tagger`] does, and [`PurchaseReward`] contains the bounds that other nouns could
//! give.

use std::collections::BTreeSet;

use lumos_tasks::python::{repr, strip};
use serde::{Deserialize, Serialize};

use super::goal::{Goal, GoalOptions};
use super::product::ProductView;
use super::ratio::token_set_ratio;

/// Texts with a higher similarity than this percentage count as equal.
const ALIKE: u32 = 85;

/// Finds the nouns of a product's title, including proper nouns, in lower case and with repetitions. The
/// original uses spaCy.
pub trait Tagger: Send + Sync {
    /// The nouns of a title.
    fn nouns(&self, title: &str) -> Vec<String>;
}

/// The reward of a purchase with its components.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PurchaseReward {
    /// The share of attributes, options and price that matches the goal, from 0 to 1.
    pub met: f64,
    /// The same share, with options compared only within their own group.
    pub met_by_group: f64,
    /// The factor for the product type: 0, 0.1, 0.5 or 1.
    pub r_type: f64,
    /// The lowest possible factor with other nouns, because the tagger differs from the original's.
    pub r_type_lowest: f64,
    /// The highest possible factor.
    pub r_type_highest: f64,
    /// Whether both products have the same query.
    pub query_match: bool,
    /// Whether two or more categories are equal.
    pub category_match: bool,
    /// The share of the nouns in the goal's title that the product's title contains.
    pub title_score: f64,
    /// Number of matching attributes.
    pub attributes_met: u32,
    /// Number of matching options.
    pub options_met: u32,
    /// Number of matching options within their own groups.
    pub options_met_by_group: u32,
    /// Whether the price is within the limit.
    pub price_met: bool,
}

impl PurchaseReward {
    /// The reward as published, from 0 to 1.
    pub fn reward(&self) -> f64 {
        self.met * self.r_type
    }
}

/// The factor for the product type, and its basis.
struct Kind {
    factor: f64,
    query_match: bool,
    category_match: bool,
    title_score: f64,
    /// The lowest and the highest possible factor with other nouns.
    bounds: (f64, f64),
}

/// The reward for buying a product at this price (in dollars) with these options (group and value).
pub(super) fn reward(
    bought: &ProductView<'_>,
    goal: &Goal,
    price: f64,
    options: &[(String, String)],
    tagger: &dyn Tagger,
) -> PurchaseReward {
    let kind = kind(bought, goal, tagger);
    let attributes_met = attributes_met(bought, goal);
    let options_met = options_met(options, &goal.goal_options);
    let options_met_by_group = options_met_by_group(options, &goal.goal_options);
    let price_met = price <= goal.price_upper;
    let wanted = goal.attributes.len() + goal.goal_options.len() + 1;
    let met =
        |options_met: usize| (attributes_met + options_met + usize::from(price_met)) as f64 / wanted as f64;
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    PurchaseReward {
        met: met(options_met),
        met_by_group: met(options_met_by_group),
        r_type: kind.factor,
        r_type_lowest: kind.bounds.0,
        r_type_highest: kind.bounds.1,
        query_match: kind.query_match,
        category_match: kind.category_match,
        title_score: kind.title_score,
        attributes_met: count(attributes_met),
        options_met: count(options_met),
        options_met_by_group: count(options_met_by_group),
        price_met,
    }
}

fn kind(bought: &ProductView<'_>, goal: &Goal, tagger: &dyn Tagger) -> Kind {
    let query_match = bought.query == goal.query;
    let path =
        |path: &str| -> BTreeSet<String> { path.split('›').map(|part| strip(part).to_owned()).collect() };
    let category_match =
        path(bought.product_category).intersection(&path(&goal.product_category)).count() >= 2;
    let wanted = tagger.nouns(&goal.name);
    let title_score = if wanted.is_empty() {
        0.2
    } else {
        let wanted_once: BTreeSet<&String> = wanted.iter().collect();
        let of_bought = tagger.nouns(bought.title);
        let of_bought: BTreeSet<&String> = of_bought.iter().collect();
        of_bought.intersection(&wanted_once).count() as f64 / wanted.len() as f64
    };
    let matches = query_match || category_match;
    let factor = |title_score| type_factor(matches, title_score);
    let bounds = if bought.title == goal.name {
        // Equal titles have the same nouns: all, or none, which counts as 0.2. Repeated nouns count once each
        // on one side only, but titles in which nine of ten nouns are repeated do not occur.
        (factor(0.2), factor(1.0))
    } else if share_a_word(bought.title, &goal.name) {
        (0.0, factor(1.0))
    } else {
        // Without a common word, only a title without nouns, which counts as 0.2, has a non-zero score.
        (0.0, factor(0.2))
    };
    Kind { factor: factor(title_score), query_match, category_match, title_score, bounds }
}

/// The factor for the product type, by whether query or categories match and by the share of common nouns.
pub(super) fn type_factor(matches: bool, title_score: f64) -> f64 {
    if title_score == 0.0 {
        0.0
    } else if title_score < 0.1 {
        0.1
    } else if matches || title_score > 0.2 {
        1.0
    } else {
        0.5
    }
}

/// Whether two titles have a common word in lower case; without one they have no common noun.
fn share_a_word(left: &str, right: &str) -> bool {
    let words = |title: &str| -> BTreeSet<String> {
        crate::retrieval::words(&title.to_lowercase()).map(str::to_owned).collect()
    };
    !words(left).is_disjoint(&words(right))
}

fn attributes_met(bought: &ProductView<'_>, goal: &Goal) -> usize {
    let title = bought.title.to_lowercase();
    let bullet_points = bought.bullet_points.join(" ").to_lowercase();
    let description = bought.description.to_lowercase();
    let met = |wanted: &&String| {
        let wanted = wanted.as_str();
        bought.attributes.iter().any(|attribute| token_set_ratio(attribute, wanted) > ALIKE)
            || [&title, &bullet_points, &description].iter().any(|text| text.contains(wanted))
    };
    goal.attributes.iter().filter(met).count()
}

fn alike(chosen: &str, wanted: &str) -> bool {
    token_set_ratio(chosen, wanted) > ALIKE
}

/// As published: compares a chosen value with the printed pair of name and value, and ignores groups.
fn options_met(chosen: &[(String, String)], wanted: &GoalOptions) -> usize {
    let met = |wanted: &str| chosen.iter().any(|(_, value)| alike(colour_of(value), wanted));
    match wanted {
        GoalOptions::Values(wanted) => wanted.iter().filter(|wanted| met(colour_of(wanted))).count(),
        GoalOptions::Pairs(wanted) => {
            let printed = |(name, value): &(String, String)| match colour_of_pair(name, value) {
                Some(colour) => colour.to_owned(),
                None => format!("({}, {})", repr(name), repr(value)),
            };
            wanted.iter().filter(|pair| met(&printed(pair))).count()
        }
    }
}

/// Compares values within the same group. Human instructions contain no groups.
fn options_met_by_group(chosen: &[(String, String)], wanted: &GoalOptions) -> usize {
    let GoalOptions::Pairs(pairs) = wanted else { return options_met(chosen, wanted) };
    let met = |(name, value): &&(String, String)| {
        let mut chosen = chosen.iter();
        chosen.any(|(group, chosen)| group == name && alike(colour_of(chosen), colour_of(value)))
    };
    pairs.iter().filter(met).count()
}

/// Colours, one per line: option values are compared by the first one that they contain. In the order of
/// upstream's `COLOR_SET` (`web_agent_site/engine/normalize.py`).
const COLOURS: &str = include_str!("colours.txt");

/// The first colour that occurs in a text, otherwise the text itself.
pub(super) fn colour_of(text: &str) -> &str {
    COLOURS.lines().find(|colour| text.contains(colour)).unwrap_or(text)
}

/// The first colour that equals the name or the value of an option, if there is one.
pub(super) fn colour_of_pair(name: &str, value: &str) -> Option<&'static str> {
    COLOURS.lines().find(|colour| *colour == name || *colour == value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_list_counts() {
        for (text, colour) in [("dark navy blue", "blue"), ("grasshopper", "grass"), ("size 8", "size 8")] {
            assert_eq!(colour_of(text), colour);
        }
    }
}
