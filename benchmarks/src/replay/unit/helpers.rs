//! Helper functions of the original, including some that its evaluation never calls (upstream
//! `eval/gsm/utils.py`).

use lumos_tasks::families::parse::find_variables;
use lumos_tasks::python::{Characters, is_digit, repr_list, strip};
use serde_json::{Value, json};

use super::{Output, UnitRow};
use crate::python_float::float;

/// Calls the function of a row; `None` if it is not one of these.
pub(super) fn call(row: &UnitRow) -> Option<Result<Output, String>> {
    Some(match row.function.as_str() {
        "findvariables" => row.text(0).map(|text| json!(find_variables(text)).into()),
        "parse_subgoals" => row.text(0).map(|text| subgoals(text).into()),
        "math.process_frac" => fraction(row),
        "python.str" => list_text(row),
        _ => return None,
    })
}

/// Parses subgoals and their actions, starting at `Subgoal 1`: blocks of a subgoal's line and its actions'
/// lines. If the marker is missing, the original reads the last character.
fn subgoals(text: &str) -> Value {
    let text = Characters::new(text);
    let plan = text.from(text.find("Subgoal 1"));
    let (mut subgoals, mut actions) = (Vec::new(), Vec::new());
    for block in plan.split("\n\n") {
        let mut lines = block.split('\n');
        subgoals.push(lines.next().unwrap_or_default());
        actions.push(lines.collect::<Vec<_>>());
    }
    json!([subgoals, actions])
}

/// Returns the value of a fraction of integers; returns any other value unchanged.
fn fraction(row: &UnitRow) -> Result<Output, String> {
    let argument = row.args.first().ok_or("the row has no argument")?;
    let Value::String(text) = argument else { return Ok(argument.clone().into()) };
    let mut parts = text.split('/');
    let (Some(numerator), Some(denominator)) = (parts.next(), parts.next()) else {
        return Ok(argument.clone().into());
    };
    if !is_digit(&text.replace(['/', ' '], "")) {
        return Ok(argument.clone().into());
    }
    Ok(match (float(strip(numerator)), float(strip(denominator))) {
        (Some(_), Some(0.0)) => Output::Raised(Some("ZeroDivisionError")),
        (Some(numerator), Some(denominator)) => (numerator / denominator).into(),
        _ => Output::Raised(Some("ValueError")),
    })
}

/// `str(list of texts)`.
fn list_text(row: &UnitRow) -> Result<Output, String> {
    let texts: Vec<Option<&str>> = row
        .args
        .first()
        .and_then(Value::as_array)
        .ok_or("the row's argument is not a list")?
        .iter()
        .map(Value::as_str)
        .collect();
    Ok(repr_list(texts).into())
}
