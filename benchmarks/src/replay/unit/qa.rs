//! Functions of the question-answering benchmarks (upstream `eval/hotpotqa/utils.py` and `run_eval.py`, and
//! their copies in `eval/strategyqa`).

use lumos_tasks::families::parse::parse_action;
use lumos_tasks::families::qa::page::{self, LISTED_SENTENCES, MOST_SENTENCES, SENTENCE_MARK, WikiPage};
use lumos_tasks::families::qa::{answer, ranking};
use lumos_tasks::{AnswerForm, Behaviour, Formulation, ToolCall, ToolReply, WikiRequest};
use serde_json::{Value, json};

use super::{Output, UnitRow};
use crate::metrics::{f1, normalise};

/// Calls the function of a row; `None` if it is not one of these.
pub(super) fn call(row: &UnitRow) -> Option<Result<Output, String>> {
    let reply =
        |form, formulation| row.text(0).map(|reply| json!(answer::of_reply(reply, form, formulation)).into());
    Some(match row.function.as_str() {
        "qa.parse_actions" => row.text(0).map(|text| {
            let action = parse_action(text);
            json!([action.variables, action.name, action.arguments]).into()
        }),
        "qa.clean_str" => row.text(0).map(|text| match page::clean(text) {
            Ok(text) => text.into(),
            Err(exception) => Output::Raised(Some(exception)),
        }),
        "qa.get_page_obs" => observation(row),
        "qa.search_step" => search(row),
        "qa.get_max_idx" => highest(row),
        "hotpotqa.normalize_answer" => row.text(0).map(|text| normalise(text).into()),
        "hotpotqa.f1_score" => {
            row.text(0).and_then(|prediction| row.text(1).map(|gold| f1(prediction, gold).into()))
        }
        "hotpotqa.cot_pred" => reply(AnswerForm::Entity, Formulation::Cot),
        "hotpotqa.direct_pred" => reply(AnswerForm::Entity, Formulation::Direct),
        "strategyqa.cot_answer" => reply(AnswerForm::YesNo, Formulation::Cot),
        _ => return None,
    })
}

/// `get_page_obs(page, num)`: the first sentences, all but the last sentences, or all sentences.
fn observation(row: &UnitRow) -> Result<Output, String> {
    let mut sentences = page::sentences(row.text(0)?);
    let most = row.args.get(1).and_then(Value::as_i64).unwrap_or(0);
    let magnitude = usize::try_from(most.unsigned_abs()).unwrap_or(usize::MAX);
    match most {
        0 => {}
        1.. => sentences.truncate(magnitude),
        _ => sentences.truncate(sentences.len().saturating_sub(magnitude)),
    }
    Ok(sentences.join(&format!(" {SENTENCE_MARK} ")).into())
}

/// `search_step(query, typ)`.
fn search(row: &UnitRow) -> Result<Output, String> {
    let call = ToolCall::Wiki { request: WikiRequest::of(row.text(0)?), reading: Behaviour::Paper };
    let reply = row.reply(0, &call).map_err(|error| error.to_string())?;
    let most = if row.args.get(1).is_some_and(Value::is_string) { LISTED_SENTENCES } else { MOST_SENTENCES };
    Ok(match reply {
        ToolReply::Wiki(WikiPage::Listed(entries)) => json!(entries).into(),
        ToolReply::Wiki(page) => page.observation(most).map_or(Output::Raised(None), Output::from),
        _ => Output::Raised(None),
    })
}

/// `get_max_idx(scores, k)`.
fn highest(row: &UnitRow) -> Result<Output, String> {
    let scores: Option<Vec<f64>> = row
        .args
        .first()
        .and_then(Value::as_array)
        .map(|scores| scores.iter().filter_map(Value::as_f64).collect());
    let most = row.args.get(1).and_then(Value::as_u64).and_then(|most| usize::try_from(most).ok());
    let (Some(scores), Some(most)) = (scores, most) else {
        return Err("the row's arguments are not a list of scores and a count".to_owned());
    };
    Ok(json!(ranking::highest(&scores, most, Behaviour::Paper)).into())
}
