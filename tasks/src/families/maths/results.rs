//! The variables of a mathematics episode, and its prediction: taken from the variables at its end, or from a
//! single model's reply (upstream `cot` and `direct` in `eval/gsm/run_eval.py`).

use super::execution::{MathsResult, Results};
use crate::families::Failure;
use crate::families::execution::{invalid_variable, last_variable, not_dispatched};
use crate::formulation::{Behaviour, Formulation};
use crate::outcome::{Observation, Stage, Value};
use crate::python::{Characters, strip};

/// An action's value for readers and for the episode's record.
#[derive(Debug)]
pub(super) struct Assigned {
    pub(super) observation: Observation,
    /// The text that the original appends to the action; `None` if joining a list raises there.
    pub(super) shown: Option<String>,
}

impl Assigned {
    fn text(text: String) -> Self {
        Self { shown: Some(text.clone()), observation: Observation::Text(text) }
    }

    fn list(texts: Vec<String>) -> Self {
        Self { shown: Some(texts.join(", ")), observation: Observation::List(texts) }
    }
}

/// Assigns an action's result to the variables. The error is the reason why the episode's results are lost.
///
/// Paper behaviour keeps two quirks of the original: an empty value counts as a failure, and Lumos-O strips
/// values (and fails on lists) while Lumos-I keeps them unchanged.
pub(super) fn assign(
    results: &mut Results,
    executed: MathsResult,
    formulation: Formulation,
    behaviour: Behaviour,
) -> Result<Assigned, Failure> {
    let strips = formulation == Formulation::OneTime || behaviour == Behaviour::Corrected;
    let stripped = |text: String| if strips { strip(&text).to_owned() } else { text };
    match executed {
        MathsResult::Single(variable, Some(Value::Text(text))) if !text.is_empty() => {
            let text = stripped(text);
            results.insert(variable, Value::Text(text.clone()));
            Ok(Assigned::text(text))
        }
        MathsResult::Single(variable, Some(Value::List(texts))) if !strips && !texts.is_empty() => {
            let known: Option<Vec<String>> = texts.iter().cloned().collect();
            let value = Value::List(texts);
            let assigned = match known {
                Some(texts) => Assigned::list(texts),
                None => Assigned { shown: None, ..Assigned::text(value.to_python_text()) },
            };
            results.insert(variable, value);
            Ok(assigned)
        }
        MathsResult::Single(_, Some(Value::List(_))) => {
            Err(Failure::tool("the service gave a list, not a value"))
        }
        MathsResult::Single(_, Some(Value::Text(_))) => Err(Failure::argument("the value is empty")),
        MathsResult::Single(_, None) => Err(Failure::tool("the service gave no value")),
        MathsResult::Each(variables, values) => {
            let values: Vec<String> = values.into_iter().map(stripped).collect();
            let given = values.len();
            for (index, variable) in variables.into_iter().enumerate() {
                let Some(value) = values.get(index) else {
                    let detail = format!("`{variable}` has no value: the solution has {given}");
                    return Err(Failure::argument(detail));
                };
                results.insert(variable, Value::Text(value.clone()));
            }
            Ok(Assigned::list(values))
        }
        MathsResult::UndefinedVariable(variable) => {
            Err(Failure::argument(format!("`{variable}` is used before it has a value")))
        }
        MathsResult::Raised(failure) => Err(failure),
        MathsResult::NotDispatched(name) => Err(not_dispatched(&name, &LISTED)),
    }
}

/// The actions that the grounder's prompt lists; any other name is unknown or not an action.
const LISTED: [&str; 7] =
    ["Calculator", "SetEquation", "SolveEquation", "Count", "SolveInequality", "Code", "Define"];

/// An episode without a prediction, with the corresponding exception of the original.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoPrediction {
    pub(super) failure: Failure,
    pub(super) exception: &'static str,
}

/// The prediction of an episode: the value of `Output` (Lumos-O, and both in corrected behaviour) or of the
/// variable with the highest number. The error is what the original raises for a variable of another form;
/// corrected behaviour skips such variables.
pub(super) fn prediction(
    results: &Results,
    formulation: Formulation,
    behaviour: Behaviour,
) -> Result<Value, NoPrediction> {
    if results.is_empty() {
        let failure = Failure::new(Stage::Planner, "planning stopped before anything was carried out");
        return Err(NoPrediction { failure, exception: "IndexError" });
    }
    let takes_output = formulation == Formulation::OneTime || behaviour == Behaviour::Corrected;
    if let (true, Some(value)) = (takes_output, results.get("Output")) {
        return Ok(value.clone());
    }
    let variable = last_variable(results.keys().map(String::as_str), behaviour)
        .map_err(|failure| NoPrediction { failure, exception: "ValueError" })?;
    results
        .get(&variable)
        .cloned()
        .ok_or_else(|| NoPrediction { failure: invalid_variable(&variable), exception: "KeyError" })
}

const MARKER: &str = "Answer is ";
const MARKER_LENGTH: isize = 10;

/// The answer of a chain of thought: the text after the last `Answer is `, without the last character (the
/// full stop). Without the marker, the original cuts at the tenth character, and this function does the same.
pub fn of_chain(reply: &str) -> String {
    let reply = Characters::new(reply);
    reply.slice(reply.rfind(MARKER) + MARKER_LENGTH, -1)
}

/// The answer of a direct reply: everything after the first ten characters, without the last one.
pub fn of_direct(reply: &str) -> String {
    Characters::new(reply).slice(MARKER_LENGTH, -1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(entries: &[(&str, &str)]) -> Results {
        entries.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect()
    }

    #[test]
    fn the_highest_number_wins_not_the_last_in_the_alphabet() {
        let variables = results(&[("R10", "a"), ("R9", "b")]);
        let value = prediction(&variables, Formulation::Iterative, Behaviour::Paper);
        assert_eq!(value, Ok(Value::from("a")));
    }

    #[test]
    fn output_counts_where_the_original_looks_for_it() {
        let variables = results(&[("R1", "1"), ("Output", "2")]);
        assert_eq!(prediction(&variables, Formulation::OneTime, Behaviour::Paper), Ok(Value::from("2")));
        assert!(prediction(&variables, Formulation::Iterative, Behaviour::Paper).is_err());
        assert_eq!(
            prediction(&variables, Formulation::Iterative, Behaviour::Corrected),
            Ok(Value::from("2"))
        );
    }

    #[test]
    fn a_variable_with_a_blank_is_found_by_number_and_missed_by_name() {
        let variables = results(&[("R3 ", "1")]);
        assert!(prediction(&variables, Formulation::Iterative, Behaviour::Paper).is_err());
    }

    #[test]
    fn answers_are_cut_as_the_original_cuts_them() {
        assert_eq!(of_chain("First we count. Answer is 25."), "25");
        assert_eq!(of_chain("Answer 68. He has 3."), ". He has 3");
        assert_eq!(of_direct("Answer is 7."), "7");
        assert_eq!(of_direct("7."), "");
    }
}
