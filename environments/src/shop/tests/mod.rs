//! Compares the shop with the original's recorded behaviour, if `LUMOS_SHARED` names a folder that contains
//! it.

mod catalogues;
mod episodes;
mod people;
mod rewards;

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};

use crate::shop::catalogue::{HumanInstruction, SideTables};
use crate::shop::{Goal, GoalMode, Shop, Stock, draw};
use flate2::read::GzDecoder;
use lumos_capabilities::shared;
use serde_json::Value;

/// Reads the rows of a recorded file.
fn rows(name: &str) -> Option<Vec<Value>> {
    let path = shared(&format!("golden/webshop/{name}.jsonl.gz"))?;
    let lines = BufReader::new(GzDecoder::new(File::open(path).unwrap())).lines();
    Some(lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect())
}

fn json<T: serde::de::DeserializeOwned>(path: &str) -> Option<T> {
    let file = BufReader::new(File::open(shared(path)?).unwrap());
    Some(serde_json::from_reader(file).unwrap())
}

/// Reads the catalogue of 1,000 real products, or the synthetic one.
fn stock(real: bool) -> Option<Stock> {
    let stock = if real {
        let file = File::open(shared("data/webshop/items_1000_documents.jsonl")?).unwrap();
        let records = BufReader::new(file).lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap());
        let attributes = json("data/webshop/items_ins_v2_1000.json")?;
        Stock::read(records, SideTables { attributes, human: HashMap::new() }, Some(1000))
    } else {
        let records: Vec<Value> = json("golden/webshop/catalogue/items_shuffle.json")?;
        let attributes = json("golden/webshop/catalogue/items_ins_v2.json")?;
        let human: HashMap<String, Vec<HumanInstruction>> =
            json("golden/webshop/catalogue/items_human_ins.json")?;
        Stock::read(records, SideTables { attributes, human }, Some(1000))
    };
    Some(stock.unwrap())
}

/// Creates the shop of a catalogue, with its goals and prices.
fn shop(stock: &Stock, human: bool) -> (Shop, Vec<Goal>, Vec<f64>) {
    let (prices, goals) = draw(stock.for_sale(), if human { GoalMode::Human } else { GoalMode::Synthetic });
    (Shop::new(stock, &prices), goals, prices)
}
