//! Parses actions as the originals do (upstream `parse_actions` and `findvariables` in the `utils.py` of HotpotQA
//! and WebShop).
//!
//! [`parse_action`] is the parser of question answering and shopping; [mathematics](super::maths::parse) has its
//! own, which also supports a trailing ` = value`. Neither fails: for text that is not an action they return an
//! arbitrary triple, which execution rejects. Indices count characters and may be relative to the end, as in
//! Python.

use std::sync::LazyLock;

use regex::Regex;

use crate::python::Characters;

/// The three parts of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedAction {
    /// The variables before ` = `.
    pub variables: Vec<String>,
    /// The action's name; empty for a plain assignment.
    pub name: String,
    /// The text in its parentheses.
    pub arguments: String,
}

impl ParsedAction {
    /// The first variable.
    pub(crate) fn variable(&self) -> String {
        self.variables.first().cloned().unwrap_or_default()
    }
}

/// Splits `{vars} = {Name}({args})`. The arguments end at the parenthesis that matches the first one, or before
/// the last character if it is missing.
pub fn parse_action(text: &str) -> ParsedAction {
    let action = Characters::new(text);
    let assign = action.find(" = ");
    let open = action.find("(");
    ParsedAction {
        variables: action.slice(0, assign).split(", ").map(str::to_owned).collect(),
        name: action.slice(assign + 3, open),
        arguments: action.slice(open + 1, closing(&action, open)),
    }
}

/// The index of the parenthesis that matches the one at `open`; that of the last character if it is missing.
/// Without an opening parenthesis `open` is -1, and the search starts at the last character.
pub(super) fn closing(action: &Characters, open: isize) -> isize {
    let start = if open < 0 { (open + action.len()).max(0) } else { open };
    let mut close = open - 1;
    let mut depth = 0i32;
    for index in start..action.len() {
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
    close
}

/// All mentions of variables, in order, including duplicates.
pub fn find_variables(text: &str) -> Vec<&str> {
    static VARIABLE: LazyLock<Regex> = LazyLock::new(|| Regex::new("R[0-9]+").expect("a valid pattern"));
    VARIABLE.find_iter(text).map(|found| found.as_str()).collect()
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
        let variables = variables.iter().map(|&variable| variable.to_owned()).collect();
        (variables, name.to_owned(), arguments.to_owned())
    }

    #[test]
    fn well_formed_actions() {
        for (text, variable, name, arguments) in [
            ("R1 = KnowledgeQuery(Kyoto (city))", "R1", "KnowledgeQuery", "Kyoto (city)"),
            ("R3 = QA([R2], Question: Who?)", "R3", "QA", "[R2], Question: Who?"),
            ("R1 = Search(red (dark) lamp).", "R1", "Search", "red (dark) lamp"),
        ] {
            assert_eq!(parsed(text), expected(&[variable], name, arguments), "{text}");
        }
    }

    #[test]
    fn accidents_of_the_original() {
        for (text, variables, name, arguments) in [
            ("Output = R3 = yes", &["Output"][..], "R3 = ye", "Output = R3 = ye"),
            ("R9 = (R3", &["R9"], "", "R"),
            ("R1, R2 = Click(R7", &["R1", "R2"], "Click", "R"),
            ("R1=Search(a)", &["R1=Search(a"], "=Search", "a"),
            ("R4 = Click", &["R4"], "Clic", "R4 = Clic"),
            ("", &[""], "", ""),
        ] {
            assert_eq!(parsed(text), expected(variables, name, arguments), "{text}");
        }
    }

    #[test]
    fn variables_are_found_in_order() {
        assert_eq!(find_variables("click R12 or R3"), ["R12", "R3"]);
        assert_eq!(find_variables("< prev"), [""; 0]);
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in any::<String>()) {
            parse_action(&text);
        }

        #[test]
        fn text_that_is_almost_an_action_never_panics(text in "[R0-9 =()a-zé,]{0,20}") {
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
