//! Rewards, colours and ratios equal those of the original, given the recorded nouns.

use std::collections::HashMap;

use super::rows;
use crate::shop::ratio::token_set_ratio;
use crate::shop::reward::{colour_of, colour_of_pair, reward};
use crate::shop::{Approximation, Goal, KnownNouns, Product};
use serde_json::{Value, json};

fn texts(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[test]
fn rewards_are_those_of_the_original() {
    let Some(rows) = rows("reward_units") else { return };
    for row in &rows {
        let text = |field: &str| row["product"][field].as_str().unwrap_or_default().to_owned();
        let product = Product {
            title: text("name"),
            query: text("query"),
            product_category: text("product_category"),
            description: text("Description"),
            bullet_points: texts(&row["product"]["BulletPoints"]),
            attributes: texts(&row["product"]["Attributes"]),
            ..Product::default()
        };
        let mut goal = row["goal"].clone();
        for field in ["category", "instruction_text"] {
            goal[field] = json!("");
        }
        goal["weight"] = json!(1.0);
        let goal: Goal = serde_json::from_value(goal).unwrap();
        let options: Vec<(String, String)> = row["options"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
            .collect();
        let mut known = HashMap::from([(product.title.clone(), texts(&row["nouns"]["purchased"]))]);
        known.insert(goal.name.clone(), texts(&row["nouns"]["goal"]));
        let tagger = KnownNouns::new(known, Approximation);
        let price = row["price"].as_f64().unwrap();
        let found = reward(&product.view(), &goal, price, &options, &tagger);
        let expected = &row["expected"];
        let near = |found: f64, expected: &Value| {
            assert!((found - expected.as_f64().unwrap()).abs() < 1e-9, "{}: {found} {expected}", row["id"]);
        };
        near(found.reward(), &expected["reward"]);
        near(found.r_type, &expected["info"]["r_type"]);
        near(found.title_score, &expected["info"]["title_score"]);
        assert_eq!(json!(found.query_match), expected["info"]["query_match"], "{}", row["id"]);
        assert_eq!(json!(found.category_match), expected["info"]["category_match"], "{}", row["id"]);
        assert_eq!(json!(found.attributes_met), expected["num_attr_matches"], "{}", row["id"]);
        assert_eq!(json!(found.options_met), expected["num_option_matches"], "{}", row["id"]);
        assert_eq!(json!(found.price_met), expected["info"]["r_price"], "{}", row["id"]);
        assert!(found.r_type_lowest <= found.r_type && found.r_type <= found.r_type_highest, "{}", row["id"]);
    }
    println!("{} rewards", rows.len());
}

#[test]
fn colours_are_those_of_the_original() {
    let Some(rows) = rows("normalize_color") else { return };
    for row in &rows {
        if let Some(input) = row["input"].as_str() {
            assert_eq!(json!(colour_of(input)), row["output"], "{}", row["id"]);
        } else {
            let pair = texts(&row["input_pair"]);
            let found =
                colour_of_pair(&pair[0], &pair[1]).map_or_else(|| json!(pair), |colour| json!(colour));
            assert_eq!(found, row["output"], "{}", row["id"]);
        }
    }
}

#[test]
fn ratios_are_those_of_the_original() {
    let Some(rows) = rows("token_set_ratio") else { return };
    for row in &rows {
        let found = token_set_ratio(row["a"].as_str().unwrap(), row["b"].as_str().unwrap());
        assert_eq!(json!(found), row["difflib_0_19"], "{row}");
    }
}
