//! Substitutes variables in arguments by their values.

use super::world::Interrupt;
use super::{Known, MAX_QUERY};
use crate::families::Failure;
use crate::families::maths::parse::find_variables;
use crate::formulation::Behaviour;
use crate::outcome::Value;

/// Substitutes variables by their values. In paper behaviour the replacement is textual, one variable after
/// the other, so that `R1` is replaced inside `R10` as well; in corrected behaviour each whole mention is
/// replaced once.
pub(super) fn substitute(
    arguments: &str,
    known: Known<'_>,
    written: impl Fn(&Value) -> String,
) -> Result<String, Failure> {
    let too_long = || Failure::argument("the values make the arguments too long");
    let value = |variable: &str| known.value(variable).map(&written);
    match known.behaviour {
        Behaviour::Paper => {
            find_variables(arguments).into_iter().try_fold(arguments.to_owned(), |text, variable| {
                let value = value(variable)?;
                let added = text.matches(variable).count().saturating_mul(value.len());
                if text.len().saturating_add(added) > MAX_QUERY {
                    return Err(too_long());
                }
                Ok(text.replace(variable, &value))
            })
        }
        Behaviour::Corrected => {
            let mut text = String::new();
            let mut rest = arguments;
            for variable in find_variables(arguments) {
                let Some((before, behind)) = rest.split_once(variable) else { break };
                text.push_str(before);
                text.push_str(&value(variable)?);
                if text.len() > MAX_QUERY {
                    return Err(too_long());
                }
                rest = behind;
            }
            Ok(text + rest)
        }
    }
}

/// A plain assignment. The original intends to substitute values but uses an undefined name, so every plain
/// assignment raises there.
pub(super) fn assign(arguments: &str, known: Known<'_>) -> Result<Value, Interrupt> {
    match known.behaviour {
        Behaviour::Paper => Err(Failure::argument("a plain assignment is not carried out").into()),
        Behaviour::Corrected => Ok(Value::Text(substitute(arguments, known, Value::to_python_text)?)),
    }
}
