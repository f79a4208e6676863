//! Prices and goals equal those that the original draws.

use super::support::{rows, shop, stock};
use serde_json::{Value, json};

#[test]
fn prices_and_goals_are_those_of_the_original() {
    for (name, real, human) in [
        ("goals_human", false, true),
        ("goals_synthetic", false, false),
        ("real_goals_human", true, true),
        ("real_goals_synthetic", true, false),
    ] {
        let (Some(rows), Some(stock)) = (rows(name), stock(real)) else { return };
        let (_, goals, prices) = shop(&stock, human);
        let recorded = rows[0]["meta"]["prices"].as_object().unwrap();
        assert_eq!(recorded.len(), stock.on_sale);
        for (entry, price) in stock.for_sale().iter().zip(&prices) {
            assert_eq!(recorded[&entry.product.asin], json!(price), "{}", entry.product.asin);
        }
        assert_eq!(goals.len(), rows.len() - 1, "{name}");
        for (goal, row) in goals.iter().zip(&rows[1..]) {
            let mut row = row.clone();
            row.as_object_mut().unwrap().shift_remove("index");
            let mut found = serde_json::to_value(goal).unwrap();
            for field in ["price_upper", "weight"] {
                let (found, row) = (found[field].take(), row[field].take());
                let difference = found.as_f64().unwrap() - row.as_f64().unwrap();
                assert!(difference.abs() < 1e-12, "{name}: {field} {found} {row}");
            }
            let order = |value: &Value| value["goal_options"].to_string();
            assert_eq!(order(&found), order(&row), "{name}");
            assert_eq!(found, row, "{name}");
        }
        println!("{name}: {} goals", goals.len());
    }
}
