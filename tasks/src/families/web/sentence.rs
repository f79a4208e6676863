//! Describes a gold action as a sentence of a plan (upstream `translate_action`).

use thiserror::Error;

use crate::python::{Characters, strip};

/// Verbs for clicking.
pub(super) const CLICK: [&str; 4] = ["Visit", "Click", "Find and go into", "Enter"];
/// Verbs for typing.
pub(super) const TYPE: [&str; 3] = ["Type", "Input", "Put text"];
/// Verbs for selecting.
pub(super) const SELECT: [&str; 3] = ["Select", "Choose", "Pick up"];

/// An action's representation has no ` -> `; the original raises `IndexError`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the action's representation has no ` -> `")]
pub struct NoArrow;

/// The sentence of an action's representation, `[tag]  words -> OP: value`. `draw` returns a number below its
/// argument, which selects one of that many verbs.
///
/// # Errors
/// Fails if ` -> ` is missing.
pub fn sentence(representation: &str, draw: impl FnOnce(u32) -> u32) -> Result<String, NoArrow> {
    let mut parts = representation.split(" -> ");
    let (element, operation) = (parts.next().unwrap_or_default(), parts.next().ok_or(NoArrow)?);
    let element = Characters::new(element);
    let closing = element.find("]");
    let tag = element.slice(element.find("[") + 1, closing);
    let words = element.from(closing + 1);
    let words = strip(&words);
    let verb = |verbs: &[&'static str]| {
        let drawn = draw(verbs.len() as u32) as usize;
        verbs.get(drawn).or(verbs.first()).copied().unwrap_or_default()
    };
    let value = |marker: &str| strip(operation.rsplit(marker).next().unwrap_or_default()).to_owned();
    Ok(if operation.contains("CLICK") || operation.contains("HOVER") {
        format!("{} {tag} {words}", verb(&CLICK))
    } else if operation.contains("TYPE") {
        format!("{} {} in the {tag} {words}", verb(&TYPE), value("TYPE:"))
    } else if operation.contains("SELECT") {
        format!("{} {} in the {tag} {words}", verb(&SELECT), value("SELECT:"))
    } else {
        let name = strip(operation.split(':').next().unwrap_or_default()).to_lowercase();
        format!("{name} {tag} {words}.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn representations_become_sentences() {
        for (representation, drawn, expected) in [
            ("[button]  Search -> CLICK", 2, "Find and go into button Search"),
            ("[textbox]  City -> TYPE: Boston ", 1, "Input Boston in the textbox City"),
            ("[select]  Size -> SELECT: L", 0, "Select L in the select Size"),
            ("[textbox]   -> ENTER", 0, "enter textbox ."),
            ("[box]  a -> b -> CLICK", 0, "b box a."),
            ("[box]  a -> TYPE: CLICK here", 0, "Visit box a"),
            ("words -> CLICK", 0, "Visit word words"),
        ] {
            assert_eq!(sentence(representation, |_| drawn).unwrap(), expected);
        }
        assert_eq!(sentence("[box] a", |_| 0), Err(NoArrow));
    }
}
