//! Executes an action (upstream `execute` in `eval/gsm/run_eval.py`, `eval/gsm/math_tool.py`).
//!
//! An action is a pure function of the variables and of the mathematics service's replies so far: [`execute`]
//! either finishes or returns the call it needs next. The caller gets that reply, appends it and calls again. An
//! action needs at most seven queries, so starting over is cheap.

use std::collections::BTreeMap;

use super::parse::{has_letter, has_operator, is_function, parse_action, parse_equations, split_function};
use crate::call::{MathsReply, ToolCall, ToolReply};
use crate::families::Failure;
use crate::families::execution::{self, Interrupt, Replies, unfit};
use crate::formulation::Behaviour;
use crate::outcome::Value;
use crate::python::{Characters, is_digit, strip};

/// Values by variable.
pub type Results = BTreeMap<String, Value>;

/// The result of an action: the original's return value, or the reason if there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MathsResult {
    /// One value for the first variable; `None` if the service had none.
    Single(String, Option<Value>),
    /// A value for each variable (`SolveEquation`).
    Each(Vec<String>, Vec<String>),
    /// A variable in the arguments has no value (the original returns `None, None`).
    UndefinedVariable(String),
    /// An exception was raised (the original returns `"", ""`).
    Raised(Failure),
    /// The name is not an executable action (the original returns nothing).
    NotDispatched(String),
}

impl From<Failure> for MathsResult {
    fn from(failure: Failure) -> Self {
        Self::Raised(failure)
    }
}

/// The mathematics service's replies so far. `NoResult` corresponds to the exception that the original's
/// client raises.
struct Service<'a> {
    replies: Replies<'a>,
    behaviour: Behaviour,
}

impl Service<'_> {
    fn ask(&mut self, query: &str) -> Result<Option<Value>, Interrupt> {
        let reply = self.replies.take(|| ToolCall::Maths { query: query.to_owned() })?;
        let ToolReply::Maths(reply) = reply else { return Err(unfit()) };
        Ok(match (reply, self.behaviour) {
            (MathsReply::One(text), _) => Some(Value::Text(text.clone())),
            (MathsReply::Many(texts), Behaviour::Paper) => Some(Value::List(texts.clone())),
            (MathsReply::Many(texts), Behaviour::Corrected) => {
                texts.iter().flatten().next().map(|text| Value::Text(text.clone()))
            }
            (MathsReply::Empty, _) => None,
            (MathsReply::NoResult { message }, _) => {
                return Err(Failure::tool(format!("no result for `{query}`: {message}")).into());
            }
        })
    }
}

/// Whether a behaviour executes the action. The original's prompt lists more actions than it executes.
fn is_executed(name: &str, behaviour: Behaviour) -> bool {
    match name {
        "" | "Calculator" | "SetEquation" | "SolveEquation" | "Define" => true,
        "Count" | "SolveInequality" => behaviour == Behaviour::Corrected,
        _ => false,
    }
}

/// Executes one action. `results` holds the variables; `None` after an earlier failure.
///
/// # Errors
/// Returns the call whose reply is missing.
pub fn execute(
    action: &str,
    results: Option<&Results>,
    behaviour: Behaviour,
    replies: &[ToolReply],
) -> Result<MathsResult, ToolCall> {
    let parsed = parse_action(action);
    if !is_executed(&parsed.name, behaviour) {
        return Ok(MathsResult::NotDispatched(parsed.name));
    }
    match substitute(&parsed.arguments, results, behaviour) {
        Ok(arguments) => {
            let function = is_function(&parsed.arguments);
            perform(&parsed.name, &parsed.variables, &arguments, function, behaviour, replies)
        }
        Err(refused) => Ok(refused),
    }
}

/// Executes an action whose variables are already substituted in its arguments. `function` is whether the
/// arguments were in function style before substitution. A name that is not an action is a plain assignment.
///
/// # Errors
/// Returns the call whose reply is missing.
pub fn perform(
    name: &str,
    variables: &[String],
    arguments: &str,
    function: bool,
    behaviour: Behaviour,
    replies: &[ToolReply],
) -> Result<MathsResult, ToolCall> {
    let mut service = Service { replies: Replies::new(replies), behaviour };
    let first = variables.first().cloned().unwrap_or_default();
    let executed = match name {
        "Calculator" => {
            calculator(arguments, function, &mut service, 0).map(|value| MathsResult::Single(first, value))
        }
        "SetEquation" => set_equation(arguments, &mut service).map(|value| MathsResult::Single(first, value)),
        "SolveEquation" => solve_equation(arguments, &mut service)
            .map(|values| MathsResult::Each(variables.to_vec(), values)),
        "SolveInequality" => {
            service.ask(&format!("Solve {arguments}")).map(|value| MathsResult::Single(first, value))
        }
        "Count" => count(arguments, &mut service).map(|value| MathsResult::Single(first, value)),
        _ => Ok(MathsResult::Single(first, Some(Value::Text(arguments.to_owned())))),
    };
    executed.or_else(|interrupt| match interrupt {
        Interrupt::Ask(call) => Err(call),
        Interrupt::Failed(failure) => Ok(MathsResult::Raised(failure)),
    })
}

/// Substitutes variables by their values, in parentheses beside operators.
fn substitute(
    arguments: &str,
    results: Option<&Results>,
    behaviour: Behaviour,
) -> Result<String, MathsResult> {
    let bare = is_function(arguments) || !has_operator(arguments);
    execution::substitute(arguments, behaviour, |variable| {
        let value = results
            .and_then(|results| results.get(variable))
            .ok_or_else(|| MathsResult::UndefinedVariable(variable.to_owned()))?
            .to_python_text();
        Ok(match () {
            () if bare => value,
            () if value.contains('=') => format!(":({value}):"),
            () => format!("({value})"),
        })
    })
}

/// Maximum nesting of equations; the original's recursion would overflow.
const MAX_DEPTH: u32 = 16;

fn calculator(
    expression: &str,
    function: bool,
    service: &mut Service<'_>,
    depth: u32,
) -> Result<Option<Value>, Interrupt> {
    let rewritten;
    let expression = if function {
        let (arguments, function) = split_function(expression)
            .ok_or_else(|| Failure::argument(format!("`{expression}` is no function with arguments")))?;
        rewritten = format!("{function}, where {arguments}");
        &rewritten
    } else if expression.contains("):") {
        return combine_equations(expression, service, depth).map(Some);
    } else {
        expression
    };
    if is_digit(expression) {
        return Ok(Some(expression.into()));
    }
    if !has_letter(expression) {
        return service.ask(expression);
    }
    for verb in ["Expand", "Calculate", ""] {
        match service.ask(&format!("{verb} {expression}")) {
            Ok(Some(Value::Text(text))) => return Ok(Some(Value::Text(without_factors(text)))),
            // The original lowercases the answer, which raises for anything but a string.
            Ok(_) | Err(Interrupt::Failed(_)) => {}
            Err(ask) => return Err(ask),
        }
    }
    Ok(None)
}

/// Removes the remark that the service adds to whole numbers: ` (2 prime factors, 2 distinct)`.
fn without_factors(text: String) -> String {
    if !text.to_lowercase().contains("factor") {
        return text;
    }
    let characters = Characters::new(&text);
    characters.slice(0, characters.find(" ("))
}

fn combine_equations(expression: &str, service: &mut Service<'_>, depth: u32) -> Result<Value, Interrupt> {
    if service.behaviour == Behaviour::Paper {
        // Upstream's modules import each other circularly: the function that combines equations never gets
        // the calculator it calls, so each use raises `NameError`.
        return Err(Failure::argument("the original cannot calculate with equations").into());
    }
    if depth == MAX_DEPTH {
        return Err(Failure::argument("equations nested too deep").into());
    }
    let malformed = || Failure::argument(format!("`{expression}` does not combine equations"));
    let equations = parse_equations(expression).ok_or_else(malformed)?;
    let side = |sides: &[String]| match sides {
        [] => None,
        [only] => Some(format!("{}({only})", equations.operations.first()?)),
        [init @ .., last] => {
            let mut text = String::new();
            for (index, side) in init.iter().enumerate() {
                text.push_str(&format!("({side}){}", equations.operations.get(index)?));
            }
            Some(format!("{text}({last})"))
        }
    };
    let left = side(&equations.left).ok_or_else(malformed)?;
    let right = side(&equations.right).ok_or_else(malformed)?;
    let mut evaluate = |side: &str| match calculator(side, false, service, depth + 1)? {
        Some(Value::Text(text)) => Ok(text),
        _ => Err(Interrupt::from(Failure::tool(format!("no single value for `{side}`")))),
    };
    // As in the original, both sides are queried before they are joined.
    let left = evaluate(&left)?;
    let right = evaluate(&right)?;
    Ok(Value::Text(format!("{left} = {right}")))
}

fn set_equation(equation: &str, service: &mut Service<'_>) -> Result<Option<Value>, Interrupt> {
    if equation.contains(',') {
        calculator(&equation.replace(',', ", where"), false, service, 0)
    } else {
        Ok(Some(equation.into()))
    }
}

fn solve_equation(equation: &str, service: &mut Service<'_>) -> Result<Vec<String>, Interrupt> {
    let Some(Value::Text(mut solution)) = service.ask(&format!("Solve {equation}"))? else {
        return Err(Failure::tool(format!("no single solution of `{equation}`")).into());
    };
    if solution.contains('±') {
        let terms: Vec<&str> = solution.splitn(3, '±').collect();
        solution = format!("{} + {}", terms[0], terms[1]);
    }
    Ok(solution
        .split(" ∧ ")
        .map(|part| part.split_once('=').map_or(part, |(_, value)| value))
        .map(|value| if service.behaviour == Behaviour::Corrected { strip(value) } else { value })
        .map(str::to_owned)
        .collect())
}

/// `Count`: the number of elements, or of terms of an arithmetic sequence written with `...`.
fn count(list: &str, service: &mut Service<'_>) -> Result<Option<Value>, Interrupt> {
    let elements: Vec<&str> = list.split(", ").collect();
    if !elements.contains(&"...") {
        return Ok(Some(Value::Text(elements.len().to_string())));
    }
    let (Some(first), Some(second), Some(last)) = (elements.first(), elements.get(1), elements.last()) else {
        return Err(Failure::argument("a sequence needs at least two terms").into());
    };
    let text = |value: Option<Value>| value.map_or_else(|| "None".to_owned(), |value| value.to_python_text());
    let step = text(service.ask(&format!("({second}) - ({first})"))?);
    let span = text(service.ask(&format!("({last}) - ({first})"))?);
    service.ask(&format!("{span} / {step} + 1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Stage;

    fn results(entries: &[(&str, &str)]) -> Results {
        entries.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect()
    }

    /// Runs an action to completion; `service` answers the queries.
    fn run(
        action: &str,
        variables: &Results,
        behaviour: Behaviour,
        service: impl Fn(&str) -> MathsReply,
    ) -> (MathsResult, Vec<String>) {
        let (mut replies, mut queries) = (Vec::new(), Vec::new());
        loop {
            match execute(action, Some(variables), behaviour, &replies) {
                Err(ToolCall::Maths { query }) => {
                    replies.push(ToolReply::Maths(service(&query)));
                    queries.push(query);
                }
                Err(call) => panic!("{call:?}"),
                Ok(executed) => return (executed, queries),
            }
        }
    }

    fn echo(query: &str) -> MathsReply {
        MathsReply::One(format!("<{query}>"))
    }

    fn nothing(_: &str) -> MathsReply {
        MathsReply::NoResult { message: "not understood".to_owned() }
    }

    #[test]
    fn variables_are_put_in_parentheses_beside_operators() {
        let (executed, queries) =
            run("R3 = Calculator(R1 * R2)", &results(&[("R1", "5"), ("R2", "2")]), Behaviour::Paper, echo);
        assert_eq!(queries, ["(5) * (2)"]);
        assert_eq!(executed, MathsResult::Single("R3".into(), Some("<(5) * (2)>".into())));
    }

    #[test]
    fn a_prefix_of_a_longer_variable_is_replaced_in_it_in_paper_behaviour_only() {
        let variables = results(&[("R1", "5"), ("R10", "7")]);
        assert_eq!(
            run("R2 = Calculator(R1 + R10)", &variables, Behaviour::Paper, echo).1,
            ["(5) + (5)0"],
            "`R10` is gone by the time its turn comes"
        );
        assert_eq!(run("R2 = Calculator(R1 + R10)", &variables, Behaviour::Corrected, echo).1, ["(5) + (7)"]);
    }

    #[test]
    fn letters_are_asked_three_ways() {
        let (executed, queries) = run("R1 = Calculator(9 hours)", &Results::new(), Behaviour::Paper, nothing);
        assert_eq!(queries, ["Expand 9 hours", "Calculate 9 hours", " 9 hours"]);
        assert_eq!(executed, MathsResult::Single("R1".into(), None));
    }

    #[test]
    fn equations_are_combined_side_by_side_in_corrected_behaviour_only() {
        let variables = results(&[("R1", "x + y = 10"), ("R2", "x - y = 2")]);
        let (_, queries) = run("R3 = Calculator(R1 + R2)", &variables, Behaviour::Corrected, echo);
        assert_eq!(queries, ["Expand (x + y )+(x - y )", "( 10)+( 2)"]);
        let (executed, queries) = run("R3 = Calculator(R1 + R2)", &variables, Behaviour::Paper, echo);
        assert!(
            matches!(executed, MathsResult::Raised(_)) && queries.is_empty(),
            "the original cannot do it"
        );
    }

    #[test]
    fn solutions_are_taken_apart() {
        let solve = |_: &str| MathsReply::One("x = 2 ∧ y = 3".to_owned());
        let (executed, _) =
            run("R1, R2 = SolveEquation(x + y = 5, x = 2)", &Results::new(), Behaviour::Paper, solve);
        assert_eq!(
            executed,
            MathsResult::Each(vec!["R1".into(), "R2".into()], vec![" 2".into(), " 3".into()])
        );
        let roots = |_: &str| MathsReply::One("x = 1 ± 2".to_owned());
        let (executed, _) = run("R1 = SolveEquation(x^2 = 1)", &Results::new(), Behaviour::Corrected, roots);
        assert_eq!(executed, MathsResult::Each(vec!["R1".into()], vec!["1  +  2".into()]));
    }

    #[test]
    fn count_is_carried_out_in_corrected_behaviour_only() {
        let count = "R1 = Count(2, 4, ..., 20)";
        assert!(matches!(
            run(count, &Results::new(), Behaviour::Paper, echo).0,
            MathsResult::NotDispatched(name) if name == "Count"
        ));
        let (_, queries) = run(count, &Results::new(), Behaviour::Corrected, |query| {
            MathsReply::One(match query {
                "(4) - (2)" => "2".to_owned(),
                "(20) - (2)" => "18".to_owned(),
                _ => "10".to_owned(),
            })
        });
        assert_eq!(queries, ["(4) - (2)", "(20) - (2)", "18 / 2 + 1"]);
    }

    #[test]
    fn values_that_double_again_and_again_are_refused() {
        for behaviour in Behaviour::ALL {
            let mut variables = results(&[("R1", "x")]);
            let mut refused = false;
            for number in 2..60 {
                let previous = number - 1;
                let action = format!("R{number} = Define(R{previous} R{previous})");
                match run(&action, &variables, behaviour, nothing).0 {
                    MathsResult::Single(name, Some(value)) => {
                        assert!(value.to_python_text().len() <= execution::MAX_SUBSTITUTED);
                        variables.insert(name, value);
                    }
                    MathsResult::Raised(failure) => {
                        assert_eq!(failure.stage, Stage::GrounderBadArgument);
                        refused = true;
                        break;
                    }
                    other => panic!("{other:?}"),
                }
            }
            assert!(refused, "{behaviour}");
        }
    }

    #[test]
    fn an_undefined_variable_is_named() {
        let (executed, queries) =
            run("R2 = Calculator(R1 + R7)", &results(&[("R1", "5")]), Behaviour::Paper, echo);
        assert_eq!((executed, queries), (MathsResult::UndefinedVariable("R7".into()), Vec::new()));
    }
}
