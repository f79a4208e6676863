//! Executes an action (upstream `execute` in `eval/hotpotqa/run_eval.py` and `eval/strategyqa/run_eval.py`).
//!
//! An action is a pure function of the variables and of the tools' replies so far: [`execute`] either
//! finishes or returns the call it needs next. The caller performs the call, appends the reply and calls
//! again. Variables in an action's arguments are substituted by their values.

mod knowledge;
mod question;
pub(super) mod world;

use super::results::{Variables, own_value};
use crate::call::{ToolCall, ToolReply};
use crate::families::Failure;
use crate::families::agent::{self, AgentDefinition, Operation};
use crate::families::execution::{self, Interrupt, not_dispatched};
use crate::families::maths::parse::has_operator;
use crate::families::parse::parse_action;
use crate::formulation::Behaviour;
use crate::item::AnswerForm;
use crate::outcome::Value;
use crate::python::strip;

pub(crate) use world::World;

/// The context of an action.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting<'a> {
    /// The agent, with its actions.
    pub(super) agent: &'a AgentDefinition,
    /// The item's question, stripped.
    pub(super) question: &'a str,
    /// The answer form; StrategyQA's actions differ slightly from HotpotQA's.
    pub(super) form: AnswerForm,
    /// Agent behaviour: `paper` or `corrected`.
    pub(super) behaviour: Behaviour,
    /// The planner's reply, which contains the subgoal.
    pub(super) plan: &'a str,
    /// The index of this action if it is the last of a one-time episode.
    pub(super) last_of_all: Option<usize>,
}

impl<'a> Setting<'a> {
    /// HotpotQA's question, which the last action of a one-time episode answers.
    fn whole_question(&self) -> Option<&'a str> {
        (self.form == AnswerForm::Entity && self.last_of_all.is_some() && !self.question.is_empty())
            .then_some(self.question)
    }

    /// Whether StrategyQA requires yes or no from this action: the last of a one-time episode, unless it is
    /// the only one.
    fn wants_yes_or_no(&self) -> bool {
        self.form == AnswerForm::YesNo && self.last_of_all.is_some_and(|position| position > 0)
    }
}

/// The result of an action: the original's return value, or the reason if there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum QaResult {
    /// A value for the first variable.
    Value(String, Value),
    /// An exception was raised (the original returns `"", ""`).
    Raised(Failure),
    /// Nothing was executed (the original returns nothing).
    Nothing(Failure),
}

/// Maximum size in bytes of a context, and of one action's value. Values contain earlier values, so replies could
/// grow without limit; no action of a real episode comes close.
const MAX_CONTEXT: usize = 1 << 20;
const MAX_VALUE: usize = 1 << 22;

/// Executes one action. `variables` is `None` after an earlier failure. Fails with the call whose reply is missing.
pub(super) fn execute(
    action: &str,
    variables: Option<&Variables>,
    setting: &Setting<'_>,
    replies: &[ToolReply],
) -> Result<QaResult, ToolCall> {
    let parsed = parse_action(action);
    let mut world = World::new(replies, setting.behaviour);
    let known = Known { variables, behaviour: setting.behaviour };
    let arguments = parsed.arguments.as_str();
    let name = parsed.name.as_str();
    let action = setting.agent.action(name);
    let value = match action.and_then(|action| Some((action, action.operation()?))) {
        Some((_, Operation::Pages)) => knowledge::query(arguments, known, &mut world).map(Some),
        Some((_, Operation::Retrieve)) => knowledge::retrieve(arguments, known, &mut world).map(Some),
        Some((_, Operation::Answer)) => question::answer(arguments, known, setting, &mut world).map(Some),
        Some((_, Operation::Calculate)) => question::calculate(arguments, known, setting, &mut world),
        Some((_, Operation::Formula)) => formula(arguments, known, &mut world).map(Some),
        Some((action, Operation::External)) => {
            let substituted = |text: &str| substitute(text, known, in_an_argument);
            agent::execute(action, arguments, substituted, replies).map(|text| Some(Value::Text(text)))
        }
        None if name.is_empty() => assign(arguments, known).map(Some),
        None => {
            let listed: Vec<_> = action.map(|action| action.name.as_str()).into_iter().collect();
            return Ok(QaResult::Nothing(not_dispatched(name, &listed)));
        }
    };
    Ok(match value {
        Ok(Some(value)) if size(&value) > MAX_VALUE => {
            QaResult::Raised(Failure::argument("the action's value is too long"))
        }
        Ok(Some(value)) => QaResult::Value(parsed.variable(), value),
        Ok(None) => QaResult::Nothing(Failure::tool("the calculator's question has no answer")),
        Err(Interrupt::Ask(call)) => return Err(call),
        Err(Interrupt::Failed(failure)) => QaResult::Raised(failure),
    })
}

/// The values of earlier actions.
#[derive(Debug, Clone, Copy)]
struct Known<'a> {
    variables: Option<&'a Variables>,
    behaviour: Behaviour,
}

impl<'a> Known<'a> {
    fn value(&self, variable: &str) -> Result<&'a Value, Failure> {
        self.variables
            .and_then(|variables| variables.get(variable))
            .ok_or_else(|| Failure::argument(format!("`{variable}` is used before it has a value")))
    }
}

/// Substitutes variables by their values.
fn substitute(
    arguments: &str,
    known: Known<'_>,
    written: impl Fn(&Value) -> String,
) -> Result<String, Failure> {
    execution::substitute(arguments, known.behaviour, |variable| known.value(variable).map(&written))
}

/// The value of a formula.
fn formula(arguments: &str, known: Known<'_>, world: &mut World<'_>) -> Result<Value, Interrupt> {
    let query = substitute(arguments, known, |value| operand(arguments, in_an_argument(value)))?;
    let value = world.arithmetic(&query)?;
    let value = value.ok_or_else(|| Failure::tool(format!("`{query}` has no value")))?;
    Ok(value.into())
}

/// A value as inserted into a formula: in parentheses beside an operator, unless it is a number without a sign.
fn operand(formula: &str, value: String) -> String {
    let is_plain = value.chars().all(|character| character.is_ascii_digit() || character == '.');
    if is_plain || !has_operator(formula) { value } else { format!("({value})") }
}

/// A value as inserted into an argument: the answer only, if it is an answer of the question-answering tool.
fn in_an_argument(value: &Value) -> String {
    match value {
        Value::Text(text) => strip(own_value(text)).to_owned(),
        Value::List(_) => value.to_python_text(),
    }
}

/// A plain assignment. The original intends to substitute values but uses an undefined name, so every plain
/// assignment raises there.
fn assign(arguments: &str, known: Known<'_>) -> Result<Value, Interrupt> {
    match known.behaviour {
        Behaviour::Paper => Err(Failure::argument("a plain assignment is not carried out").into()),
        Behaviour::Corrected => Ok(Value::Text(substitute(arguments, known, Value::to_python_text)?)),
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::Text(text) => text.len(),
        Value::List(entries) => entries.iter().flatten().map(String::len).sum(),
    }
}

#[cfg(test)]
mod tests;
