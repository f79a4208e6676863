//! Prices, goals and search results of both catalogues equal those of the original, whose search is Lucene.

use super::{rows, shop, stock};
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

/// Scores as Anserini returns them: rounded to four decimals, and reduced by a millionth for each preceding
/// equal score.
fn adjusted(scores: impl Iterator<Item = f32>) -> impl Iterator<Item = f64> {
    scores.scan((f64::NAN, 0), |(before, equal), score| {
        let rounded = (f64::from(score) * 1e4).round() / 1e4;
        *equal = if rounded == *before { *equal + 1 } else { 0 };
        *before = rounded;
        Some(rounded - 1e-6 * f64::from(*equal))
    })
}

#[test]
fn rankings_are_those_of_lucene() {
    let (mut queries, mut first_ten, mut all) = (0, 0, 0);
    for (name, real) in [("lucene_rankings", false), ("real_lucene_rankings", true)] {
        let (Some(rows), Some(stock)) = (rows(name), stock(real)) else { return };
        let (shop, ..) = shop(&stock, false);
        for row in &rows {
            let found = shop.ranking(row["query"].as_str().unwrap()).unwrap();
            let asins: Vec<&str> = found.iter().map(|(asin, _)| *asin).collect();
            let recorded: Vec<&str> =
                row["docids"].as_array().unwrap().iter().map(|asin| asin.as_str().unwrap()).collect();
            let ten =
                |asins: &[&str]| asins.iter().take(10).map(|asin| (*asin).to_owned()).collect::<Vec<_>>();
            queries += 1;
            first_ten += i32::from(ten(&asins) == ten(&recorded));
            all += i32::from(asins == recorded);
            if asins != recorded {
                let place = asins.iter().zip(&recorded).position(|(found, recorded)| found != recorded);
                println!(
                    "{}: differs at {place:?}, {} found, {} recorded",
                    row["id"],
                    asins.len(),
                    recorded.len()
                );
            }
            let scores: Vec<f64> =
                row["scores"].as_array().unwrap().iter().filter_map(Value::as_f64).collect();
            assert_eq!(found.len(), scores.len(), "{}", row["id"]);
            for (adjusted, recorded) in adjusted(found.iter().map(|(_, score)| *score)).zip(&scores) {
                // Recorded to five decimals.
                assert!((adjusted - recorded).abs() < 5.5e-6, "{}: {adjusted} {recorded}", row["id"]);
            }
        }
    }
    println!("{queries} queries: {first_ten} with the same ten first, {all} with the same fifty");
    assert_eq!((first_ten, all), (queries, queries));
}
