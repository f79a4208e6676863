//! Searches return the same results as Lucene.

use super::support::{rows, shop, stock};
use serde_json::Value;

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
