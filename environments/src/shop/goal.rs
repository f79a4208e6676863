//! Goals of shopping tasks (upstream `web_agent_site/engine/goal.py`).
//!
//! [`draw`] generates the prices of all products and the goals in the original's order, with the original's
//! random numbers. A [`Goal`] contains the instruction, the requested attributes and options, and a price
//! limit.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::catalogue::{Entry, Instruction};
use super::python_random::PythonRandom;

/// Seed of the prices and of the price limits, which the original sets when its policies are imported.
pub(super) const DRAWING_SEED: u64 = 4;

/// Seed of the goals' order.
const SHUFFLING_SEED: u64 = 233;

/// The price limit of goals without one, in dollars.
const NO_BOUND: f64 = 1_000_000.0;

/// A goal. Prices are in dollars.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// The product it was made from.
    pub asin: String,
    /// Its department.
    pub category: String,
    /// The search query by which it was originally found.
    pub query: String,
    /// Its title.
    pub name: String,
    /// Its category path.
    pub product_category: String,
    /// The customer's instruction.
    pub instruction_text: String,
    /// The requested attributes; never empty.
    pub attributes: Vec<String>,
    /// The price limit.
    pub price_upper: f64,
    /// The requested options.
    pub goal_options: GoalOptions,
    /// The weight of the goal in random selection.
    pub weight: f64,
}

/// The requested options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum GoalOptions {
    /// Values, as in human instructions.
    Values(Vec<String>),
    /// Values by group, as in synthetic instructions.
    #[serde(with = "pairs")]
    Pairs(Vec<(String, String)>),
}

impl GoalOptions {
    /// Number of options.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Values(values) => values.len(),
            Self::Pairs(pairs) => pairs.len(),
        }
    }
}

/// Serialises pairs as a JSON object that keeps its order.
mod pairs {
    use serde::ser::SerializeMap;
    use serde::{Deserialize, Deserializer, Serializer, de};
    use serde_json::{Map, Value};

    pub(super) fn serialize<S: Serializer>(
        pairs: &[(String, String)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(pairs.len()))?;
        for (name, value) in pairs {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(String, String)>, D::Error> {
        let pair = |(name, value): (String, Value)| match value {
            Value::String(value) => Ok((name, value)),
            _ => Err(de::Error::custom("an option is not a string")),
        };
        Map::<String, Value>::deserialize(deserializer)?.into_iter().map(pair).collect()
    }
}

/// The source of goals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GoalMode {
    /// Synthetic instructions made from attributes, one goal for each combination of options. Lumos evaluates
    /// these.
    Synthetic,
    /// Human instructions.
    Human,
}

/// The price of every product, and the goals, as the original generates them at startup.
pub fn draw(entries: &[Entry], mode: GoalMode) -> (Vec<f64>, Vec<Goal>) {
    let mut random = PythonRandom::new(DRAWING_SEED);
    let prices: Vec<f64> = entries.iter().map(|entry| entry.pricing.draw(&mut random)).collect();
    let mut goals = match mode {
        GoalMode::Synthetic => synthetic(entries, &prices, &mut random),
        GoalMode::Human => human(entries, &prices, &mut random),
    };
    PythonRandom::new(SHUFFLING_SEED).shuffle(&mut goals);
    (prices, goals)
}

fn human(entries: &[Entry], prices: &[f64], random: &mut PythonRandom) -> Vec<Goal> {
    let mut goals = Vec::new();
    for (entry, price) in entries.iter().zip(prices) {
        for instruction in &entry.human_instructions {
            if instruction.attributes.is_empty() {
                continue;
            }
            let (price_upper, bound) = bound(*price, random);
            let text = format!("{}{bound}", instruction.text.trim_matches('.'));
            let options = GoalOptions::Values(instruction.options.clone());
            goals.push(goal(entry, instruction, text, price_upper, options));
        }
    }
    goals
}

fn synthetic(entries: &[Entry], prices: &[f64], random: &mut PythonRandom) -> Vec<Goal> {
    let mut goals = Vec::new();
    let mut holding: HashMap<&str, f64> = HashMap::new();
    for (entry, price) in entries.iter().zip(prices) {
        let Some(instruction) = &entry.instruction else { continue };
        let (price_upper, bound) = bound(*price, random);
        for options in combinations(&entry.product.options) {
            let asked: Vec<String> = options.iter().map(|(name, value)| format!("{name}: {value}")).collect();
            let with = if asked.is_empty() { "" } else { " with " };
            let text = format!("{}{with}{}{bound}", instruction.text, asked.join(", and "));
            goals.push(goal(entry, instruction, text, price_upper, GoalOptions::Pairs(options)));
            for attribute in &instruction.attributes {
                *holding.entry(attribute).or_default() += 1.0;
            }
        }
    }
    for goal in &mut goals {
        let shares =
            goal.attributes.iter().map(|attribute| 1.0 / holding.get(attribute.as_str()).unwrap_or(&1.0));
        goal.weight = shares.sum::<f64>() / goal.attributes.len().max(1) as f64;
    }
    goals
}

fn goal(
    entry: &Entry,
    instruction: &Instruction,
    instruction_text: String,
    price_upper: f64,
    goal_options: GoalOptions,
) -> Goal {
    let product = &entry.product;
    Goal {
        asin: product.asin.clone(),
        category: product.category.clone(),
        query: product.query.clone(),
        name: product.title.clone(),
        product_category: product.product_category.clone(),
        instruction_text,
        attributes: instruction.attributes.clone(),
        price_upper,
        goal_options,
        weight: 1.0,
    }
}

/// The price limit for a product of this price, and the text of the instruction for it: the larger of two of
/// the first four multiples of ten above the price; none if there are not two below 1,000.
fn bound(price: f64, random: &mut PythonRandom) -> (f64, String) {
    let tens: Vec<u32> =
        (1..100).map(|tens| tens * 10).filter(|ten| f64::from(*ten) > price).take(4).collect();
    if tens.len() < 2 {
        return (NO_BOUND, String::new());
    }
    let upper = random.sample(&tens, 2).into_iter().max().map_or(NO_BOUND, f64::from);
    (upper, format!(", and price lower than {upper:.2} dollars"))
}

/// Every combination of one value per group, groups ordered by name, the last one varying fastest.
fn combinations(options: &[(String, Vec<String>)]) -> Vec<Vec<(String, String)>> {
    let mut groups: Vec<&(String, Vec<String>)> = options.iter().collect();
    groups.sort_by(|left, right| left.0.cmp(&right.0));
    let mut combinations = vec![Vec::new()];
    for (name, values) in groups {
        let with_each = |combination: &Vec<(String, String)>| {
            let with = |value: &String| {
                let mut longer = combination.clone();
                longer.push((name.clone(), value.clone()));
                longer
            };
            values.iter().map(with).collect::<Vec<_>>()
        };
        combinations = combinations.iter().flat_map(with_each).collect();
    }
    combinations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_vary_the_last_group_fastest() {
        let group = |name: &str, values: &[&str]| {
            (name.to_owned(), values.iter().map(|value| (*value).to_owned()).collect())
        };
        let options = [group("size", &["s", "m"]), group("color", &["red"])];
        let texts: Vec<String> = combinations(&options)
            .iter()
            .map(|pairs| pairs.iter().map(|(name, value)| format!("{name}={value};")).collect())
            .collect();
        assert_eq!(texts, ["color=red;size=s;", "color=red;size=m;"]);
        assert_eq!(combinations(&[]).len(), 1);
        assert!(combinations(&[group("size", &[])]).is_empty());
    }

    #[test]
    fn options_read_back_in_their_order() {
        for text in [r#"{"size":"s","color":"red"}"#, r#"["red","s"]"#, "[]", "{}"] {
            let options: GoalOptions = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&options).unwrap(), text);
        }
    }
}
