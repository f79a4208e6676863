//! What the execution of actions needs in several families: the tools' replies so far ([`Replies`]), variables in
//! arguments ([`substitute`]), and the variable with the highest number.
//!
//! An action is a pure function of the variables and of the tools' replies so far. It takes the replies in order;
//! if one is missing, it stops with [`Interrupt::Ask`] and starts over when the reply has arrived. No action needs
//! many replies, so starting over is cheap.

use super::Failure;
use super::parse::find_variables;
use crate::call::{Passage, ToolCall, ToolReply};
use crate::formulation::Behaviour;
use crate::outcome::Stage;
use crate::python::Integer;

/// Stops an action: the next call, or a failure.
#[derive(Debug)]
pub(crate) enum Interrupt {
    Ask(ToolCall),
    Failed(Failure),
}

impl From<Failure> for Interrupt {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The tools' replies so far, taken in order.
#[derive(Debug)]
pub(crate) struct Replies<'a>(std::slice::Iter<'a, ToolReply>);

impl<'a> Replies<'a> {
    pub(crate) fn new(replies: &'a [ToolReply]) -> Self {
        Self(replies.iter())
    }

    /// The reply to a call. Fails if the call raised in the original.
    pub(crate) fn take(&mut self, call: impl FnOnce() -> ToolCall) -> Result<&'a ToolReply, Interrupt> {
        match self.0.next() {
            None => Err(Interrupt::Ask(call())),
            Some(ToolReply::Raised { message }) => Err(Failure::tool(message.as_str()).into()),
            Some(reply) => Ok(reply),
        }
    }

    /// The relevance of passages to a question.
    pub(crate) fn rank(
        &mut self,
        question: &str,
        passages: impl FnOnce() -> Vec<Passage>,
    ) -> Result<&'a [f64], Interrupt> {
        match self.take(|| ToolCall::Rank { question: question.to_owned(), passages: passages() })? {
            ToolReply::Rank(scores) => Ok(scores),
            _ => Err(unfit()),
        }
    }
}

/// A reply from another tool: a bug in the driver that the action cannot handle.
pub(crate) fn unfit() -> Interrupt {
    Failure::tool("a reply of another tool came").into()
}

/// Maximum length in bytes of a text after substitution. Values contain earlier values, so a reply could
/// double them repeatedly; no action of a real episode comes close.
pub(crate) const MAX_SUBSTITUTED: usize = 1 << 16;

/// Substitutes variables by their values, as `value` writes them. In paper behaviour the replacement is textual,
/// one variable after the other, so that `R1` is replaced inside `R10` as well; in corrected behaviour each whole
/// mention is replaced once.
pub(crate) fn substitute<E: From<Failure>>(
    arguments: &str,
    behaviour: Behaviour,
    value: impl Fn(&str) -> Result<String, E>,
) -> Result<String, E> {
    let too_long = || E::from(Failure::argument("the values make the arguments too long"));
    let variables = find_variables(arguments);
    match behaviour {
        Behaviour::Paper => variables.into_iter().try_fold(arguments.to_owned(), |text, variable| {
            let value = value(variable)?;
            let added = text.matches(variable).count().saturating_mul(value.len());
            if text.len().saturating_add(added) > MAX_SUBSTITUTED {
                return Err(too_long());
            }
            Ok(text.replace(variable, &value))
        }),
        Behaviour::Corrected => {
            let mut text = String::new();
            let mut rest = arguments;
            for variable in variables {
                let Some((before, behind)) = rest.split_once(variable) else { break };
                text.push_str(before);
                text.push_str(&value(variable)?);
                if text.len() > MAX_SUBSTITUTED {
                    return Err(too_long());
                }
                rest = behind;
            }
            Ok(text + rest)
        }
    }
}

/// Why an action with this name is not executed. `listed` are the names in the grounder's prompt.
pub(crate) fn not_dispatched(name: &str, listed: &[&str]) -> Failure {
    if listed.contains(&name) {
        let detail = format!("`{name}` is listed in the prompt but not carried out");
        Failure::new(Stage::GrounderUnknownAction, detail)
    } else if !name.is_empty() && name.chars().all(char::is_alphanumeric) {
        Failure::new(Stage::GrounderUnknownAction, format!("`{name}` is not in the list of actions"))
    } else {
        Failure::new(Stage::GrounderUnparsable, "the reply is not an action")
    }
}

/// The name of the variable with the highest number. The original raises for a variable of another form;
/// corrected behaviour skips such variables.
pub(crate) fn last_variable<'a>(
    names: impl Iterator<Item = &'a str>,
    behaviour: Behaviour,
) -> Result<String, Failure> {
    let (mut first, mut last) = (None, None::<Integer>);
    for name in names {
        first = first.or(Some(name));
        let number = name.char_indices().nth(1).and_then(|(at, _)| Integer::parse(&name[at..]));
        match number {
            Some(number) if behaviour == Behaviour::Paper || name.starts_with('R') => {
                last = last.max(Some(number));
            }
            _ if behaviour == Behaviour::Corrected => {}
            _ => return Err(invalid_variable(name)),
        }
    }
    let last = last.ok_or_else(|| invalid_variable(first.unwrap_or_default()))?;
    Ok(format!("R{last}"))
}

/// The variable that the prediction would be taken from has another form, or no value.
pub(crate) fn invalid_variable(name: &str) -> Failure {
    Failure::new(Stage::GrounderUnparsable, format!("invalid variable `{name}`: expected R1, R2, …"))
}
