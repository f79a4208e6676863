//! Gold answers, and answers extracted from replies (upstream `eval/gsm/run_eval.py`).

use lumos_tasks::families::maths::answer;

use super::UnitRow;
use super::output::Output;
use crate::gsm8k::{gold_answer, is_zero};

/// Calls the function of a row; `None` if it is not one of these.
pub(super) fn call(row: &UnitRow) -> Option<Result<Output, String>> {
    Some(match row.function.as_str() {
        "gsm8k.gold_answer" => row.text(0).map(|solution| match gold_answer(solution) {
            // The original rejects a gold answer of 0; the loader here accepts it.
            Ok(answer) if is_zero(&answer) => Output::Raised(Some("AssertionError")),
            Ok(answer) => answer.into(),
            Err(error) => Output::Raised(Some(error.exception)),
        }),
        "gsm8k.cot_answer" => row.text(0).map(|reply| answer::of_chain(reply).into()),
        "gsm8k.direct_answer" => row.text(0).map(|reply| answer::of_direct(reply).into()),
        _ => return None,
    })
}
