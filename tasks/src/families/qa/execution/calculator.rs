//! `Calculator`: in this family a question to the chat model about values, not arithmetic.

use super::arguments::substitute;
use super::knowledge::in_a_question;
use super::world::{Interrupt, World, is_answer};
use super::{Known, Setting};
use crate::families::qa::prompts::{NO_ANSWER, YES_OR_NO};
use crate::formulation::Behaviour;
use crate::item::AnswerForm;
use crate::outcome::Value;
use crate::python::{Characters, strip};

const OPERATORS: [char; 8] = ['*', '/', '+', '-', '^', '=', '<', '>'];

/// `Calculator(formula)`: asks the turn's last subgoal with the values as context, operators removed. `None`
/// if HotpotQA's script returns no value.
///
/// Corrected behaviour first evaluates arithmetic expressions.
pub(super) fn calculate(
    arguments: &str,
    known: Known<'_>,
    setting: &Setting<'_>,
    world: &mut World<'_>,
) -> Result<Option<Value>, Interrupt> {
    let last = strip(setting.plan).rsplit("; ").next().unwrap_or_default();
    let last = Characters::new(last);
    let mut subgoal = last.from(last.find(":") + 2);
    if setting.behaviour == Behaviour::Corrected
        && !setting.wants_yes_or_no()
        && let Some(value) = arithmetic(arguments, known, world)?
    {
        return Ok(Some(value));
    }
    let context = substitute(arguments, known, |value| value.to_python_text() + ".")?.replace(OPERATORS, "");
    if setting.form == AnswerForm::YesNo {
        if setting.wants_yes_or_no() {
            subgoal.push_str(YES_OR_NO);
        }
        return Ok(Some(world.question_answering(&subgoal, &context)?.into()));
    }
    let reply = world.question_answering(&subgoal, &context)?;
    if is_answer(&reply) {
        return Ok(Some(reply.into()));
    }
    let Some(whole) = setting.whole_question() else {
        return Ok((setting.behaviour == Behaviour::Corrected).then(|| NO_ANSWER.into()));
    };
    let reply = world.question_answering(whole, &context)?;
    Ok(Some(if is_answer(&reply) { reply.into() } else { NO_ANSWER.into() }))
}

/// The value of arguments that are a sum of numbers.
fn arithmetic(arguments: &str, known: Known<'_>, world: &mut World<'_>) -> Result<Option<Value>, Interrupt> {
    let query = substitute(arguments, known, in_a_question)?;
    let is_sum = query.contains(|character: char| character.is_ascii_digit())
        && query.contains(OPERATORS)
        && !query.contains(|character: char| character.is_alphabetic());
    if !is_sum {
        return Ok(None);
    }
    let value = world.arithmetic(&query)?;
    Ok(value.map(|value| format!("Question: {query}; Answer: {value}").into()))
}
