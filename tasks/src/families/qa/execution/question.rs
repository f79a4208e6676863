//! `QA` and `Calculator`: questions to the chat model.
//!
//! `QA`: it answers a question from passages; if it cannot, pages found by a search are read. `Calculator`: in
//! this family a question about values, not arithmetic.

use super::knowledge::{in_a_question, passages, titled};
use super::world::{World, is_answer};
use super::{Known, MAX_CONTEXT, Setting, operand, substitute};
use crate::families::Failure;
use crate::families::execution::Interrupt;
use crate::families::qa::page::{MOST_SENTENCES, TABLE_MARK};
use crate::families::qa::prompts::{NO_ANSWER, YES_OR_NO};
use crate::formulation::Behaviour;
use crate::item::AnswerForm;
use crate::outcome::Value;
use crate::python::{Characters, strip};

const QUESTION: &str = ", Question: ";
/// The site whose pages are read.
const SITE: &str = "en.wikipedia.org/wiki";
/// The prefix removed from an address to get a title; from other addresses the same number of characters is
/// removed.
const ADDRESS: &str = "https://en.wikipedia.org/wiki/";
const MOST_ADDRESSES: u32 = 3;
const OPERATORS: [char; 8] = ['*', '/', '+', '-', '^', '=', '<', '>'];

/// `QA([context], Question: …)`.
pub(super) fn answer(
    arguments: &str,
    known: Known<'_>,
    setting: &Setting<'_>,
    world: &mut World<'_>,
) -> Result<Value, Interrupt> {
    let own_question = || {
        let question = arguments
            .split(QUESTION)
            .nth(1)
            .ok_or_else(|| Failure::argument(format!("there is no `{QUESTION}`")))?;
        match known.behaviour {
            Behaviour::Paper => Ok(question.to_owned()),
            Behaviour::Corrected => substitute(question, known, in_a_question),
        }
    };
    let whole = setting.whole_question();
    let mut question = match whole {
        Some(whole) => whole.to_owned(),
        None => own_question()?,
    };
    let context = context(arguments, known)?;
    if setting.wants_yes_or_no() {
        question.push_str(YES_OR_NO);
        return Ok(world.question_answering(&question, &context)?.into());
    }
    let reply = world.question_answering(&question, &context)?;
    if is_answer(&reply) {
        return Ok(reply.into());
    }
    if whole.is_some() {
        question = own_question()?;
        let reply = world.question_answering(&question, &context)?;
        if is_answer(&reply) {
            return Ok(reply.into());
        }
    }
    if !setting.agent.searches() {
        return Ok(NO_ANSWER.into());
    }
    for address in world.search(&format!("{question} Wikipedia"), MOST_ADDRESSES)? {
        if !address.contains(SITE) {
            continue;
        }
        let title = Characters::new(address).from(ADDRESS.len().cast_signed()).replace('_', " ");
        let Some(text) = world.page(address)?.observation(MOST_SENTENCES) else { continue };
        let passages = passages(&title, &text, TABLE_MARK);
        let passages = titled(passages.iter().map(String::as_str))?;
        let evidence = world.evidence(&question, &passages)?;
        let reply = world.question_answering(&question, &evidence)?;
        if is_answer(&reply) {
            return Ok(reply.into());
        }
    }
    Ok(NO_ANSWER.into())
}

/// The texts of the variables in brackets, one per line.
fn context(arguments: &str, known: Known<'_>) -> Result<String, Failure> {
    let named = Characters::new(arguments.split(QUESTION).next().unwrap_or_default()).slice(1, -1);
    let mut context = String::new();
    for variable in named.split(", ") {
        match (known.value(variable)?, known.behaviour) {
            (Value::Text(text), _) => context.push_str(text),
            (Value::List(entries), Behaviour::Corrected) => {
                let texts: Vec<&str> = entries.iter().flatten().map(String::as_str).collect();
                context.push_str(&texts.join("\n"));
            }
            (Value::List(_), Behaviour::Paper) => {
                return Err(Failure::argument(format!("`{variable}` holds passages, not a text")));
            }
        }
        context.push('\n');
        if context.len() > MAX_CONTEXT {
            return Err(Failure::argument("the context is too long"));
        }
    }
    Ok(strip(&context).to_owned())
}

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
    // A date or a range among the values is not a formula.
    if !arguments.contains(OPERATORS) {
        return Ok(None);
    }
    let query = substitute(arguments, known, |value| operand(arguments, in_a_question(value)))?;
    let is_sum = query.contains(|character: char| character.is_ascii_digit())
        && !query.contains(|character: char| character.is_alphabetic());
    if !is_sum {
        return Ok(None);
    }
    let value = world.arithmetic(&query)?;
    Ok(value.map(|value| format!("Question: {query}; Answer: {value}").into()))
}
