//! Parses an action as the original's mathematics parser does (upstream `eval/gsm/utils.py`).
//!
//! The parser never fails: for text that is not an action it returns an arbitrary triple, which execution
//! rejects. Indices count characters and may be relative to the end, as in Python.

use std::sync::LazyLock;

use regex::Regex;

use crate::families::parse::{ParsedAction, closing};
use crate::python::{Characters, strip};

/// Splits `{vars} = {Name}({args})`, with or without a trailing ` = value`; also `Output = R9 = 40`.
pub fn parse_action(text: &str) -> ParsedAction {
    let action = Characters::new(text);
    let assign = action.find(" = ");
    let (variables_end, name_start) = (assign, assign + 3);
    let open = action.find("(");
    let close = closing(&action, open);
    let mut name = action.slice(name_start, open);
    let arguments = if close + 2 >= action.len() {
        action.slice(open + 1, action.rfind(")"))
    } else if close == open {
        name = String::new();
        strip(&action.slice(name_start, action.rfind(" = "))).to_owned()
    } else if action.at(close + 2) != Some('=') {
        action.slice(open + 1, action.rfind(" = ") - 1)
    } else {
        action.slice(open + 1, close)
    };

    ParsedAction {
        variables: action.slice(0, variables_end).split(", ").map(str::to_owned).collect(),
        name,
        arguments,
    }
}

/// Whether the arguments are in function style: `R1(a=1)`.
pub fn is_function(text: &str) -> bool {
    static FUNCTION: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"R[0-9]+\(").expect("a valid pattern"));
    FUNCTION.is_match(text)
}

/// Whether the text contains a Latin letter.
pub fn has_letter(text: &str) -> bool {
    text.chars().any(|character| character.is_ascii_alphabetic())
}

/// Whether the arguments contain an operator, so that values are put in parentheses.
pub fn has_operator(text: &str) -> bool {
    text.contains(['*', '/', '+', '-', '^'])
}

/// Splits `expression(arguments)` at the parenthesis that matches the last `)`; `None` if the original raises
/// because there is none (its search stops before the first character).
pub fn split_function(text: &str) -> Option<(String, String)> {
    let characters = Characters::new(text);
    let close = characters.rfind(")");
    let mut depth = 0i32;
    let open = (0..close).map(|distance| close - distance).find(|index| {
        match characters.at(*index) {
            Some(')') => depth += 1,
            Some('(') => depth -= 1,
            _ => {}
        }
        depth == 0
    })?;
    Some((characters.slice(open + 1, close), characters.slice(0, open)))
}

/// Equations in `:(left = right):` and the operations between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Equations {
    /// The left sides.
    pub left: Vec<String>,
    /// The right sides (up to a second `=`).
    pub right: Vec<String>,
    /// The operations between the equations.
    pub operations: Vec<String>,
}

/// Parses equations in `:(…):`; `None` if the original raises because one has no `=`.
pub fn parse_equations(text: &str) -> Option<Equations> {
    static EQUATION: LazyLock<Regex> = LazyLock::new(|| Regex::new(r":\((.*?)\):").expect("a valid pattern"));
    let matches: Vec<&str> = EQUATION
        .captures_iter(text)
        .filter_map(|captures| captures.get(1))
        .map(|group| group.as_str())
        .collect();
    let mut rest = text.to_owned();
    for equation in &matches {
        if !equation.is_empty() {
            rest = rest.replace(equation, "");
        }
    }
    let operations =
        rest.replace(' ', "").split(":():").filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let mut equations = Equations { left: Vec::new(), right: Vec::new(), operations };
    for equation in matches {
        let mut sides = equation.split('=');
        equations.left.push(sides.next().unwrap_or_default().to_owned());
        equations.right.push(sides.next()?.to_owned());
    }
    Some(equations)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> (Vec<String>, String, String) {
        let action = parse_action(text);
        (action.variables, action.name, action.arguments)
    }

    fn expected(variables: &[&str], name: &str, arguments: &str) -> (Vec<String>, String, String) {
        (
            variables.iter().map(|&variable| variable.to_owned()).collect(),
            name.to_owned(),
            arguments.to_owned(),
        )
    }

    #[test]
    fn well_formed_actions() {
        assert_eq!(parsed("R1 = Calculator(2 * (3 + 4))"), expected(&["R1"], "Calculator", "2 * (3 + 4)"));
        assert_eq!(parsed("R1, R2 = SolveEquation(R3) = 5"), expected(&["R1", "R2"], "SolveEquation", "R3"));
        assert_eq!(parsed("Output = R9 = 40"), expected(&["Output"], "", "R9"));
    }

    #[test]
    fn accidents_of_the_original() {
        assert_eq!(parsed("R1 = Calculator(2 + 3"), expected(&["R1"], "Calculator", "2 + "));
        assert_eq!(parsed(""), expected(&[""], "", ""));
        assert_eq!(parsed("x = Calculator((1 + 2) done"), expected(&["x"], "Calculator", "(1 + 2"));
    }

    #[test]
    fn functions_and_equations() {
        assert_eq!(split_function("2*a + 3(a = 1)"), Some(("a = 1".into(), "2*a + 3".into())));
        assert_eq!(split_function("(a)"), None);
        let equations = parse_equations(":(x + y = 10): + :(x - y = 2):").unwrap();
        assert_eq!(equations.left, ["x + y ", "x - y "]);
        assert_eq!(equations.right, [" 10", " 2"]);
        assert_eq!(equations.operations, ["+"]);
        assert_eq!(parse_equations(":(x):"), None);
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "[R0-9 =(),;:+*a-z]{0,40}") {
            parse_action(&text);
            split_function(&text);
            parse_equations(&text);
        }

        #[test]
        fn written_actions_read_back(number in 1u32..99, name in "[A-Z][a-z]{2,8}", inner in "[0-9+* ]{0,20}") {
            let arguments = inner.trim().to_owned();
            let action = parse_action(&format!("R{number} = {name}({arguments})"));
            prop_assert_eq!(action.variables, vec![format!("R{number}")]);
            prop_assert_eq!(action.name, name);
            prop_assert_eq!(action.arguments, arguments);
        }
    }
}
