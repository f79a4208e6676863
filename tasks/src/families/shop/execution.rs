//! Executes actions (upstream `execute` in `run_eval.py` and `ShopActions` in `shop_tool.py`).
//!
//! Each action makes at most one call: to the shop ([`ShopRequest`]), or to the ranker. Its value is a
//! [`ShopValue`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::parse::{self, Parsed};
use crate::call::{Passage, ToolCall, ToolReply};
use crate::families::Failure;
use crate::families::qa::ranking::highest;
use crate::formulation::Behaviour;
use crate::outcome::Stage;
use crate::python::{Characters, Integer, repr_list, strip};

/// Number of features kept.
const FEATURES: usize = 3;

/// Index of the first option among an item's clickables, after its buttons.
const FIRST_OPTION: usize = 6;

/// The value of an action that does nothing.
const NOTHING: &str = "buy now";

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

/// The state of the shop session as far as the episode knows it.
#[derive(Debug, Default)]
pub(super) struct Visit {
    /// Whether the session is reset before the next action.
    pub(super) reset: bool,
    /// Searches and clicks so far.
    pub(super) actions: Vec<String>,
}

/// The progress of an action.
#[derive(Debug)]
pub(super) enum Progress {
    /// The call it needs.
    Ask(ToolCall),
    /// The action is done.
    Done {
        /// The variable that it assigns.
        variable: String,
        /// Its value.
        value: ShopValue,
        /// The purchase it made, if any.
        purchase: Option<Purchase>,
    },
}

/// The call that an action needs, or its value if it needs none.
///
/// # Errors
/// Fails where the original raises.
pub(super) fn begin(
    action: &str,
    results: &BTreeMap<String, ShopValue>,
    visit: &mut Visit,
    behaviour: Behaviour,
) -> Result<Progress, Failure> {
    let Parsed { variable, name, arguments } = parse::action(action);
    match name.as_str() {
        "Search" => Ok(Progress::Ask(shop(visit, format!("search[{arguments}]"), false))),
        "Click" => {
            let clicked = match parse::variable(&arguments) {
                None => arguments,
                Some(_) => value(results, &arguments)?.to_python_text(),
            };
            // The original repeats everything at every click; only what a reset undid has to be repeated.
            let replays = behaviour == Behaviour::Paper || visit.reset;
            Ok(Progress::Ask(shop(visit, format!("click[{clicked}]"), replays)))
        }
        "FeatureRetrieve" => {
            let features = features(results, &arguments)?;
            if features.is_empty() {
                return Ok(done(variable, ShopValue::Text(NOTHING.to_owned())));
            }
            Ok(Progress::Ask(rank(feature_query(&arguments, behaviour), features)))
        }
        "Pick" => {
            let picking = Picking::read(&arguments, results)?;
            if picking.described.is_empty() {
                let first = picking.first.split(" - ").next().unwrap_or_default();
                return Ok(done(variable, text(strip(first))));
            }
            Ok(Progress::Ask(rank(picking.query, picking.described)))
        }
        _ => Err(Failure {
            stage: Stage::GrounderUnknownAction,
            detail: format!("`{name}` is no action of the list"),
        }),
    }
}

/// An action's value, given the reply to its call.
///
/// # Errors
/// Fails where the original raises.
pub(super) fn finish(
    action: &str,
    results: &BTreeMap<String, ShopValue>,
    reply: ToolReply,
    behaviour: Behaviour,
) -> Result<Progress, Failure> {
    let Parsed { variable, name, arguments } = parse::action(action);
    match (name.as_str(), reply) {
        (_, ToolReply::Raised { message }) => Err(Failure::tool(message)),
        ("Search", ToolReply::Shop(reply)) => Ok(done(variable, text(&items(&reply)))),
        (_, ToolReply::Shop(ShopReply { purchase: Some(purchase), .. })) => {
            let value = ShopValue::Reward(purchase.reward);
            Ok(Progress::Done { variable, value, purchase: Some(purchase) })
        }
        (_, ToolReply::Shop(reply)) => Ok(done(variable, ShopValue::Clickables(reply.clickables))),
        ("Pick", ToolReply::Rank(scores)) => {
            let picking = Picking::read(&arguments, results)?;
            let best = highest(&scores, 1, behaviour).first().and_then(|best| picking.described.get(*best));
            let best = best.map_or("", |best| best.split(" - ").next().unwrap_or_default());
            Ok(done(variable, text(best)))
        }
        (_, ToolReply::Rank(scores)) => {
            let features = features(results, &arguments)?;
            let best = highest(&scores, FEATURES, behaviour);
            let best: Vec<&str> =
                best.iter().filter_map(|index| features.get(*index)).map(String::as_str).collect();
            Ok(done(variable, text(&best.join(", "))))
        }
        _ => Err(Failure::tool("the reply is one to another call")),
    }
}

fn done(variable: String, value: ShopValue) -> Progress {
    Progress::Done { variable, value, purchase: None }
}

/// A text value; an empty text becomes something to click.
fn text(text: &str) -> ShopValue {
    ShopValue::Text(if text.is_empty() { NOTHING } else { text }.to_owned())
}

fn shop(visit: &mut Visit, action: String, replays: bool) -> ToolCall {
    let replay = if replays { visit.actions.clone() } else { Vec::new() };
    visit.actions.push(action.clone());
    ToolCall::Shop(ShopRequest { reset: std::mem::take(&mut visit.reset), replay, action })
}

fn rank(question: String, texts: Vec<String>) -> ToolCall {
    let passages = texts.into_iter().map(|text| Passage { title: String::new(), text }).collect();
    ToolCall::Rank { question, passages }
}

/// A variable's value.
fn value<'a>(results: &'a BTreeMap<String, ShopValue>, name: &str) -> Result<&'a ShopValue, Failure> {
    results.get(name).ok_or_else(|| Failure::argument(format!("there is no variable `{name}`")))
}

/// The two items that are clickable after the first two buttons, with the titles that follow their ids.
fn items(page: &ShopReply) -> String {
    const FIELD: &str = " [SEP] ";
    let observation = Characters::new(&page.observation);
    let mut found = String::new();
    for item in page.clickables.iter().skip(2).take(2) {
        let mark = format!("{}{FIELD}", item.to_uppercase());
        // `find` returns -1 if there is no such field; the original continues with that.
        let start = observation.find(&mark) + Characters::new(&mark).len();
        let rest = observation.from(start);
        let end = Characters::new(&rest).find(FIELD) + start;
        found.push_str(&format!("{item} - {} ** ", observation.slice(start, end)));
    }
    // Removes two characters, so that ` *` remains of the last ` ** `.
    found.truncate(found.len().saturating_sub(2));
    found
}

/// The word before a query.
fn query_word(arguments: &str) -> &'static str {
    if arguments.contains("QUERY") { "QUERY: " } else { "Query: " }
}

/// The text that features are compared with, without its last character (a dot elsewhere in the exemplars).
/// Corrected behaviour keeps the whole text.
fn feature_query(arguments: &str, behaviour: Behaviour) -> String {
    let word = query_word(arguments);
    let arguments = Characters::new(arguments);
    let start = arguments.find(word) + Characters::new(word).len();
    match behaviour {
        Behaviour::Paper => arguments.slice(start, -1),
        Behaviour::Corrected => arguments.from(start),
    }
}

/// The options of the item in the first variable. A text is iterated by character, as in Python.
fn features(results: &BTreeMap<String, ShopValue>, arguments: &str) -> Result<Vec<String>, Failure> {
    let name = parse::variable(arguments).ok_or_else(|| Failure::argument("no variable is named"))?;
    match value(results, name)? {
        ShopValue::Clickables(texts) => Ok(texts.iter().skip(FIRST_OPTION).cloned().collect()),
        ShopValue::Text(text) => Ok(text.chars().skip(FIRST_OPTION).map(String::from).collect()),
        ShopValue::Reward(_) => Err(Failure::argument(format!("`{name}` is a reward, it has no features"))),
    }
}

/// The input of a pick.
struct Picking {
    query: String,
    /// The first item.
    first: String,
    /// Items with their features.
    described: Vec<String>,
}

impl Picking {
    fn read(arguments: &str, results: &BTreeMap<String, ShopValue>) -> Result<Self, Failure> {
        let separator = format!(", {}", query_word(arguments));
        let before = arguments.split(", Item_features: ").next().unwrap_or_default();
        let names = strip(before.rsplit("Item_names: ").next().unwrap_or_default());
        let behind = arguments.rsplit(", Item_features: ").next().unwrap_or_default();
        let listed = Characters::new(behind.split(&separator).next().unwrap_or_default()).slice(1, -1);
        let query = strip(arguments.rsplit(&separator).next().unwrap_or_default()).to_owned();
        let items: Vec<&str> = match value(results, names)? {
            ShopValue::Text(text) => text.split(" ** ").collect(),
            _ => return Err(Failure::argument(format!("`{names}` holds no items"))),
        };
        let mut numbers = Vec::new();
        for name in listed.split(", ") {
            let number = Integer::parse(&Characters::new(name).from(1));
            numbers.push(number.ok_or_else(|| Failure::argument(format!("`{name}` is no variable")))?);
        }
        numbers.sort();
        let mut described = Vec::new();
        for (index, number) in numbers.iter().enumerate() {
            let Some(ShopValue::Text(features)) = results.get(&format!("R{number}")) else { continue };
            let item = items.get(index);
            let item = item.ok_or_else(|| Failure::argument("there are more features than items"))?;
            described.push(format!("{item}. Available features: {features}"));
        }
        Ok(Self { query, first: items.first().copied().unwrap_or_default().to_owned(), described })
    }
}
