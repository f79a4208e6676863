//! Parses an action as the original's QA parser does (upstream `parse_actions` in `eval/hotpotqa/utils.py`).
//!
//! Unlike the mathematics parser it does not support a trailing ` = value`. It cuts the arguments at the
//! parenthesis that matches the first one, or before the last character if there is none. It never fails.

use crate::families::maths::parse::ParsedAction;
use crate::python::Characters;

/// Splits `{vars} = {Name}({args})`.
pub fn parse_action(text: &str) -> ParsedAction {
    const ASSIGN: &str = " = ";
    let action = Characters::new(text);
    let assign = action.find(ASSIGN);
    let open = action.find("(");
    let scan_start = if open < 0 { (open + action.len()).max(0) } else { open };
    let mut close = open - 1;
    let mut depth = 0i32;
    for index in scan_start..action.len() {
        close += 1;
        match action.at(index) {
            Some('(') => depth += 1,
            Some(')') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    ParsedAction {
        variables: action.slice(0, assign).split(", ").map(str::to_owned).collect(),
        name: action.slice(assign + 3, open),
        arguments: action.slice(open + 1, close),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> (Vec<String>, String, String) {
        let action = parse_action(text);
        (action.variables, action.name, action.arguments)
    }

    fn expected(variable: &str, name: &str, arguments: &str) -> (Vec<String>, String, String) {
        (vec![variable.to_owned()], name.to_owned(), arguments.to_owned())
    }

    #[test]
    fn well_formed_actions() {
        assert_eq!(
            parsed("R1 = KnowledgeQuery(Kyoto (city))"),
            expected("R1", "KnowledgeQuery", "Kyoto (city)")
        );
        assert_eq!(parsed("R3 = QA([R2], Question: Who?)"), expected("R3", "QA", "[R2], Question: Who?"));
    }

    #[test]
    fn accidents_of_the_original() {
        assert_eq!(parsed("Output = R3 = yes"), expected("Output", "R3 = ye", "Output = R3 = ye"));
        assert_eq!(parsed("R9 = (R3"), expected("R9", "", "R"));
        assert_eq!(parsed(""), expected("", "", ""));
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in any::<String>()) {
            parse_action(&text);
        }

        #[test]
        fn written_actions_read_back(number in 1u32..99, name in "[A-Z][a-z]{2,8}", inner in "[a-zé ,:]{0,20}") {
            let action = parse_action(&format!("R{number} = {name}({inner})"));
            prop_assert_eq!(action.variables, vec![format!("R{number}")]);
            prop_assert_eq!((action.name, action.arguments), (name, inner));
        }
    }
}
