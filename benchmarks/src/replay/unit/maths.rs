//! Functions of the maths benchmarks: actions, gold answers, and answers extracted from replies (upstream
//! `eval/gsm/utils.py`, `math_tool.py`, `run_eval.py`).

use lumos_tasks::families::maths::execution::{MathsResult, Results, execute, perform};
use lumos_tasks::families::maths::{answer, parse};
use lumos_tasks::recorded::CallKey;
use lumos_tasks::{Behaviour, ToolCall, ToolReply};
use serde_json::{Value, json};

use super::{Output, UnitRow};
use crate::gsm8k::{gold_answer, is_zero};

/// Calls the function of a row; `None` if it is not one of these.
pub(super) fn call(row: &UnitRow) -> Option<Result<Output, String>> {
    Some(match row.function.as_str() {
        "math.parse_actions" => row.text(0).map(|text| {
            let action = parse::parse_action(text);
            json!([action.variables, action.name, action.arguments]).into()
        }),
        "math.parse_func_args" => row.text(0).map(|text| {
            parse::split_function(text)
                .map_or(Output::Raised(Some("UnboundLocalError")), |(arguments, name)| {
                    json!([arguments, name]).into()
                })
        }),
        "math.isfunc" => row.text(0).map(|text| parse::is_function(text).into()),
        "math.isalphain" => row.text(0).map(|text| parse::has_letter(text).into()),
        "math.examine_ops" => row.text(0).map(|text| parse::has_operator(text).into()),
        "math.parse_equation" => row.text(0).map(|text| {
            parse::parse_equations(text).map_or(Output::Raised(Some("IndexError")), |equations| {
                json!([equations.left, equations.right, equations.operations]).into()
            })
        }),
        "math.execute" => executed(row),
        "gsm8k.gold_answer" => row.text(0).map(|solution| match gold_answer(solution) {
            // The original rejects a gold answer of 0; the loader here accepts it.
            Ok(answer) if is_zero(&answer) => Output::Raised(Some("AssertionError")),
            Ok(answer) => answer.into(),
            Err(error) => Output::Raised(Some(error.exception)),
        }),
        "gsm8k.cot_answer" => row.text(0).map(|reply| answer::of_chain(reply).into()),
        "gsm8k.direct_answer" => row.text(0).map(|reply| answer::of_direct(reply).into()),
        function => return action(row, function.strip_prefix("math.")?),
    })
}

/// `execute(action, results)`.
fn executed(row: &UnitRow) -> Result<Output, String> {
    let action = row.text(0)?;
    let results: Option<Results> = row
        .args
        .get(1)
        .map(|results| serde_json::from_value(results.clone()))
        .transpose()
        .map_err(|error| format!("argument 2 of the row has no variables: {error}"))?;
    let executed = run(row, |replies| execute(action, results.as_ref(), Behaviour::Paper, replies))?;
    Ok(match executed {
        MathsResult::Single(variable, value) => json!([variable, value]),
        MathsResult::Each(variables, values) => json!([variables, values]),
        MathsResult::UndefinedVariable(_) => json!([null, null]),
        MathsResult::Raised(_) => json!(["", ""]),
        MathsResult::NotDispatched(_) => Value::Null,
    }
    .into())
}

/// Calls one of the original's action functions.
fn action(row: &UnitRow, name: &str) -> Option<Result<Output, String>> {
    let name = match name {
        // Called alone, it returns the solution as received from the service. Assignment splits it later.
        "SolveEquation" => "SolveInequality",
        "Calculator" | "SetEquation" | "SolveInequality" | "Define" | "Count" => name,
        _ => return None,
    };
    let function = row.args.get(1).and_then(Value::as_bool).unwrap_or(false);
    Some(row.text(0).and_then(|arguments| {
        let executed =
            run(row, |replies| perform(name, &[], arguments, function, Behaviour::Paper, replies))?;
        Ok(match executed {
            MathsResult::Single(_, value) => json!(value).into(),
            _ => Output::Raised(None),
        })
    }))
}

/// Runs an action with the recorded replies, all of which must be used.
fn run(
    row: &UnitRow,
    step: impl Fn(&[ToolReply]) -> Result<MathsResult, ToolCall>,
) -> Result<MathsResult, String> {
    let mut replies: Vec<ToolReply> = Vec::new();
    loop {
        let call = match step(&replies) {
            Err(call) => call,
            Ok(_) if replies.len() < row.tools.len() => {
                return Err(format!("got {} tool calls, expected {}", replies.len(), row.tools.len()));
            }
            Ok(executed) => return Ok(executed),
        };
        match row.reply(replies.len(), &call) {
            Ok(reply @ ToolReply::Maths(_)) => replies.push(reply),
            _ => {
                let (number, asked) = (replies.len() + 1, CallKey::of(&call).text);
                let recorded = row.tools.get(replies.len());
                let recorded = recorded.map_or(Value::Null, |recorded| recorded.input.clone());
                return Err(format!("tool call {number}: got {asked:?}, expected {recorded}"));
            }
        }
    }
}
