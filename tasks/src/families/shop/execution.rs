//! Executes actions (upstream `execute` in `run_eval.py` and `ShopActions` in `shop_tool.py`).
//!
//! Each action makes at most one call: to the shop ([`ShopRequest`]), or to the ranker. Its value is a
//! [`ShopValue`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::call::{Passage, ToolCall, ToolReply};
use crate::families::Failure;
use crate::families::execution::{Interrupt, Replies, unfit};
use crate::families::parse::{find_variables, parse_action};
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
pub(super) struct SessionState {
    /// Whether the session is reset before the next action.
    pub(super) reset: bool,
    /// Searches and clicks so far.
    pub(super) actions: Vec<String>,
}

impl SessionState {
    /// Searches or clicks. `replays` is whether the actions so far are repeated first.
    fn act<'a>(
        &mut self,
        action: String,
        replays: bool,
        replies: &mut Replies<'a>,
    ) -> Result<&'a ShopReply, Interrupt> {
        let call = || {
            let replay = if replays { self.actions.clone() } else { Vec::new() };
            self.actions.push(action.clone());
            ToolCall::Shop(ShopRequest { reset: std::mem::take(&mut self.reset), replay, action })
        };
        match replies.take(call)? {
            ToolReply::Shop(reply) => Ok(reply),
            _ => Err(unfit()),
        }
    }
}

/// The result of an action.
#[derive(Debug)]
pub(super) struct Executed {
    /// The variable that it assigns.
    pub(super) variable: String,
    /// Its value.
    pub(super) value: ShopValue,
    /// The purchase it made, if any.
    pub(super) purchase: Option<Purchase>,
}

/// Executes an action. Fails where the original raises.
pub(super) fn execute(
    action: &str,
    results: &BTreeMap<String, ShopValue>,
    session: &mut SessionState,
    behaviour: Behaviour,
    replies: &[ToolReply],
) -> Result<Executed, Interrupt> {
    let parsed = parse_action(action);
    let arguments = parsed.arguments.as_str();
    let mut replies = Replies::new(replies);
    let mut purchase = None;
    let value = match parsed.name.as_str() {
        "Search" => text(&items(session.act(format!("search[{arguments}]"), false, &mut replies)?)),
        "Click" => {
            let variables = find_variables(arguments);
            let is_variable = match behaviour {
                Behaviour::Paper => !variables.is_empty(),
                // A name of a product may contain `R` and digits.
                Behaviour::Corrected => variables == [arguments],
            };
            let clicked =
                if is_variable { value(results, arguments)?.to_python_text() } else { arguments.to_owned() };
            // The original repeats everything at every click; only what a reset undid has to be repeated.
            let replays = behaviour == Behaviour::Paper || session.reset;
            let reply = session.act(format!("click[{clicked}]"), replays, &mut replies)?;
            purchase.clone_from(&reply.purchase);
            match &reply.purchase {
                Some(purchase) => ShopValue::Reward(purchase.reward),
                None => ShopValue::Clickables(reply.clickables.clone()),
            }
        }
        "FeatureRetrieve" => {
            let features = features(results, arguments)?;
            if features.is_empty() {
                text("")
            } else {
                let query = feature_query(arguments, behaviour);
                let best = highest(rank(&query, &features, &mut replies)?, FEATURES, behaviour);
                let best: Vec<&str> =
                    best.iter().filter_map(|index| features.get(*index)).map(String::as_str).collect();
                text(&best.join(", "))
            }
        }
        "Pick" => {
            let Picking { query, first, described } = Picking::read(arguments, results)?;
            if described.is_empty() {
                text(strip(item_name(&first)))
            } else {
                let best = highest(rank(&query, &described, &mut replies)?, 1, behaviour);
                let best = best.first().and_then(|best| described.get(*best));
                text(best.map_or("", |best| item_name(best)))
            }
        }
        name => {
            let detail = format!("`{name}` is not in the list of actions");
            return Err(Failure::new(Stage::GrounderUnknownAction, detail).into());
        }
    };
    Ok(Executed { variable: parsed.variable(), value, purchase })
}

/// A text value; an empty text becomes something to click.
fn text(text: &str) -> ShopValue {
    ShopValue::Text(if text.is_empty() { NOTHING } else { text }.to_owned())
}

fn rank<'a>(question: &str, texts: &[String], replies: &mut Replies<'a>) -> Result<&'a [f64], Interrupt> {
    replies.rank(question, || texts.iter().map(|text| Passage::untitled(text)).collect())
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

/// The name of an item, which precedes its title.
fn item_name(item: &str) -> &str {
    item.split(" - ").next().unwrap_or_default()
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
    let name = find_variables(arguments).into_iter().next();
    let name = name.ok_or_else(|| Failure::argument("no variable is named"))?;
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
