//! Compares a disturbed run with the undisturbed one: every sample, result and unit.

use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::path::Path;

use serde_json::Value;

use crate::support::content;
use crate::world::{Content, is_settled};

/// Units that differ, each with its run and, if useful, the difference.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) lost: Vec<String>,
    pub(crate) double: Vec<String>,
    pub(crate) different: Vec<String>,
}

impl Comparison {
    pub(crate) fn is_equal(&self) -> bool {
        self.lost.is_empty() && self.double.is_empty() && self.different.is_empty()
    }

    pub(crate) fn add(&mut self, run: &str, other: Self) {
        let named =
            |texts: Vec<String>| texts.into_iter().map(|text| format!("{run}: {text}")).collect::<Vec<_>>();
        self.lost.extend(named(other.lost));
        self.double.extend(named(other.double));
        self.different.extend(named(other.different));
    }

    pub(crate) fn add_double(&mut self, run: &str, double: Vec<String>) {
        self.add(run, Self { double, ..Self::default() });
    }
}

/// Compares a run's folder with the expected content.
pub(crate) fn compare(expected: &Content, folder: &Path) -> Comparison {
    let mut comparison = Comparison::default();
    let Ok(found) = catch_unwind(|| content(folder)) else {
        comparison.lost.push("results or samples cannot be read".to_owned());
        return comparison;
    };
    let (wanted, mut known) = (by_unit(expected), by_unit(&found));
    for (unit, rows) in &wanted {
        match known.remove(unit).as_deref() {
            None => comparison.lost.push((*unit).to_owned()),
            Some([row, rest @ ..]) => {
                if !rest.is_empty() {
                    comparison.double.push((*unit).to_owned());
                }
                if !is_settled(row) {
                    comparison.lost.push(format!("{unit} is {}", row["status"]));
                } else if let Some(difference) = difference(rows[0], row, "") {
                    comparison.different.push(format!("{unit}{difference}"));
                }
            }
            Some([]) => {}
        }
    }
    comparison.different.extend(known.keys().map(|unit| format!("{unit} was never planned")));
    comparison.different.extend(difference(&expected.1, &found.1, "results"));
    comparison
}

fn by_unit(content: &Content) -> BTreeMap<&str, Vec<&Value>> {
    let mut units: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for row in content.0.values().flatten() {
        units.entry(row["unit"].as_str().unwrap_or_default()).or_default().push(row);
    }
    units
}

/// Describes the first difference between two values.
fn difference(expected: &Value, found: &Value, place: &str) -> Option<String> {
    match (expected, found) {
        (Value::Object(left), Value::Object(right)) if left.keys().eq(right.keys()) => {
            left.iter().find_map(|(key, value)| difference(value, &right[key], &format!("{place}.{key}")))
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            let mut pairs = left.iter().zip(right).enumerate();
            pairs.find_map(|(index, (left, right))| difference(left, right, &format!("{place}[{index}]")))
        }
        _ if expected == found => None,
        _ => Some(format!("{place}: {expected} and {found}")),
    }
}
