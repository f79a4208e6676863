//! Replays recorded sessions step by step: observations, clickable elements and rewards.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use super::{rows, shop, stock};
use crate::shop::{Approximation, KnownNouns, Raised, SearchEngine, Shop, ShopServices, ShopSession};
use serde_json::{Value, json};

/// The shop's search, except that random products are the recorded ones.
struct Search {
    shop: Arc<Shop>,
    random: Mutex<VecDeque<Vec<String>>>,
}

impl SearchEngine for Search {
    fn search(&self, keywords: &[&str]) -> Result<Vec<u32>, Raised> {
        if keywords.first() != Some(&"<r>") {
            return self.shop.search(keywords);
        }
        let asins = self.random.lock().unwrap().pop_front().unwrap();
        Ok(asins.iter().map(|asin| self.shop.shelf().find(asin).unwrap()).collect())
    }
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[test]
fn recorded_visits_go_the_same_way() {
    let mut steps = 0;
    for (name, real) in [("env_episodes", false), ("real_env_episodes", true)] {
        let (Some(rows), Some(stock)) = (rows(name), stock(real)) else { return };
        for human in [false, true] {
            let (shop, goals, _) = shop(&stock, human);
            let shop = Arc::new(shop);
            for row in rows.iter().filter(|row| (row["goal_mode"] == "human") == human) {
                let goal = goals[usize::try_from(row["goal_index"].as_u64().unwrap()).unwrap()].clone();
                steps += visit(row, Arc::clone(&shop), goal);
            }
        }
    }
    println!("{steps} steps");
}

fn visit(row: &Value, shop: Arc<Shop>, goal: crate::shop::Goal) -> usize {
    let id = row["id"].as_str().unwrap();
    let recorded = row["steps"].as_array().unwrap();
    let (mut random, mut nouns) = (VecDeque::new(), HashMap::new());
    for step in recorded {
        for search in step["search"].as_array().into_iter().flatten() {
            if search["input"][0] == "<r>" {
                random.push_back(texts(&search["output"]));
            }
        }
        for title in step["pos"].as_array().into_iter().flatten() {
            nouns.insert(title["input"].as_str().unwrap().to_owned(), texts(&title["output"]));
        }
    }
    let staff = ShopServices {
        search: Arc::new(Search { shop: Arc::clone(&shop), random: Mutex::new(random) }),
        shop,
        tagger: Arc::new(KnownNouns::new(nouns, Approximation)),
    };
    let mut visit = ShopSession::new(staff, goal);
    assert_eq!(json!(visit.observation()), row["initial"]["observation"], "{id}");
    assert_eq!(json!(visit.clickables()), row["initial"]["clickables"], "{id}");
    for (number, step) in recorded.iter().enumerate() {
        let action = step["action"].as_str().unwrap();
        let found = visit.step(action);
        if let Some(error) = step["error"].as_str() {
            assert_eq!(found.unwrap_err().exception, error, "{id} {number}");
            continue;
        }
        let found = found.unwrap();
        assert_eq!(json!(found.observation), step["observation"], "{id} {number} {action}");
        assert_eq!(json!(found.clickables), step["clickables"], "{id} {number} {action}");
        assert_eq!(json!(visit.has_search_bar()), step["has_search_bar"], "{id} {number}");
        assert!((found.reward - step["reward"].as_f64().unwrap()).abs() < 1e-9, "{id} {number}");
        assert_eq!(json!(found.done), step["done"], "{id} {number}");
    }
    recorded.len()
}
