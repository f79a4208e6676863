//! Parses actions (upstream `parse_actions` and `findvariables` in `eval/webshop/utils.py`).

use std::sync::LazyLock;

use regex::Regex;

use crate::python::Characters;

/// An action as parsed by the original.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parsed {
    /// The first of the variables before ` = `.
    pub(super) variable: String,
    /// The text before the first parenthesis.
    pub(super) name: String,
    /// The text between that parenthesis and the matching one.
    pub(super) arguments: String,
}

/// Parses an action. Nothing raises: without ` = ` or a parenthesis, Python's slices continue with the index
/// -1.
pub(super) fn action(text: &str) -> Parsed {
    let characters = Characters::new(text);
    let assigned = characters.find(" = ");
    let open = characters.find("(");
    let variables = characters.slice(0, assigned);
    let mut depth = 0i64;
    let mut close = open - 1;
    for character in characters.from(open).chars() {
        close += 1;
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    Parsed {
        variable: variables.split(", ").next().unwrap_or_default().to_owned(),
        name: characters.slice(assigned + 3, open),
        arguments: characters.slice(open + 1, close),
    }
}

static VARIABLE: LazyLock<Regex> = LazyLock::new(|| Regex::new("R[0-9]+").expect("a valid pattern"));

/// The first variable in a text.
pub(super) fn variable(text: &str) -> Option<&str> {
    VARIABLE.find(text).map(|found| found.as_str())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn actions_are_taken_apart_as_python_slices() {
        for (text, variable, name, arguments) in [
            ("R1 = Search(red (dark) lamp).", "R1", "Search", "red (dark) lamp"),
            ("R1, R2 = Click(R7", "R1", "Click", "R"),
            ("R1=Search(a)", "R1=Search(a", "=Search", "a"),
            ("R4 = Click", "R4", "Clic", "R4 = Clic"),
            ("", "", "", ""),
        ] {
            let parsed = action(text);
            assert_eq!(
                (&*parsed.variable, &*parsed.name, &*parsed.arguments),
                (variable, name, arguments),
                "{text}"
            );
        }
        assert_eq!((variable("click R12 or R3"), variable("< prev")), (Some("R12"), None));
    }

    proptest! {
        #[test]
        fn never_panics(text in "[R0-9 =()a-zé,]{0,20}") {
            action(&text);
        }
    }
}
