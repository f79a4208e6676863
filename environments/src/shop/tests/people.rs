//! Recomputes the rewards of people's purchases in the published sessions.
//!
//! Their products belong to the full catalogue and not to the 1,000 available ones, so attributes and nouns
//! are taken from the recording. Options, price and product type are computed.

use std::fs::File;
use std::io::{BufRead, BufReader};

use crate::shop::reward::{reward, type_factor};
use crate::shop::{Approximation, Goal, Product};
use lumos_capabilities::shared;
use serde_json::Value;

#[test]
fn rewards_of_people_come_out_again() {
    let Some(path) = shared("data/webshop/human_trajectories_a.jsonl") else { return };
    let (mut sessions, mut bought, mut different) = (0, 0, Vec::new());
    for line in BufReader::new(File::open(path).unwrap()).lines() {
        let session: Value = serde_json::from_str(&line.unwrap()).unwrap();
        sessions += 1;
        let last = session["steps"].as_array().unwrap().last().unwrap();
        if last["page"] != "done" {
            continue;
        }
        bought += 1;
        let (goal, info) = (&last["goal"], &last["reward_info"]);
        let goal: Goal = serde_json::from_value(goal.clone()).unwrap();
        let options: Vec<(String, String)> = last["content"]["options"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
            .collect();
        let price = last["content"]["price"].as_f64().unwrap();
        let product = Product::default();
        let found = reward(&product.view(), &goal, price, &options, &Approximation);
        let number = |field: &str| info[field].as_f64();
        let matches = info["query_match"] == true || info["category_match"] == true;
        let r_type = type_factor(matches, number("title_score").unwrap());
        let (attributes, wanted) = (goal.attributes.len() as f64, goal.goal_options.len() as f64);
        let attributes_met = (number("r_att").unwrap() * attributes).round();
        let whole = (attributes_met + f64::from(found.options_met) + f64::from(u8::from(found.price_met)))
            / (attributes + wanted + 1.0)
            * r_type;
        let mut differs = |what: &str, found: f64, recorded: f64| {
            if (found - recorded).abs() > 1e-9 {
                different.push(format!("{}: {what} {found}, recorded is {recorded}", session["session"]));
            }
        };
        differs("r_type", r_type, number("r_type").unwrap());
        differs(
            "r_price",
            f64::from(u8::from(found.price_met)),
            f64::from(u8::from(info["r_price"] == true)),
        );
        if let Some(recorded) = number("r_option") {
            differs("r_option", f64::from(found.options_met) / wanted, recorded);
        }
        differs("reward", whole, last["reward"].as_f64().unwrap());
    }
    println!("{sessions} sessions, {bought} purchases, {} differences", different.len());
    different.iter().for_each(|difference| println!("{difference}"));
    assert_eq!((sessions, bought), (26, 25));
    assert!(different.is_empty());
}
