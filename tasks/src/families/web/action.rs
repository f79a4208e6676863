//! Parses the grounder's actions on web pages.

use serde::{Deserialize, Serialize};

use crate::python::{Characters, strip};

/// The kind of action on an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ActionName {
    /// Clicks the element.
    Click,
    /// Types a text into the element.
    Type,
    /// Selects one of the element's options.
    Select,
}

impl ActionName {
    /// All names.
    pub const ALL: [Self; 3] = [Self::Click, Self::Type, Self::Select];

    /// The name in prompts and data.
    pub fn word(self) -> &'static str {
        match self {
            Self::Click => "CLICK",
            Self::Type => "TYPE",
            Self::Select => "SELECT",
        }
    }

    /// Parses a name.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.word() == word)
    }
}

const QUERY: &str = ", QUERY:";
const TEXT: &str = ", TEXT:";

/// A parsed action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedWebAction {
    /// The variable that the next page is assigned to.
    pub variable: String,
    /// The variable of the page.
    pub page: String,
    /// The action's name as written.
    pub written: String,
    /// The kind of action, if it is one of the three.
    pub name: Option<ActionName>,
    /// The query for the element.
    pub query: String,
    /// The text of TYPE and SELECT.
    pub text: Option<String>,
}

/// Reasons why corrected behaviour rejects an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActionRefusal {
    /// It is not an action, or a part is missing.
    Unparsable,
    /// Its name is not one of the three.
    Unknown,
}

impl ParsedWebAction {
    /// Parses an action as the original does: a failed search returns -1 in Python, which is then used as an
    /// index.
    pub fn as_published(action: &str) -> Self {
        let text = Characters::new(action);
        let name_starts = text.find(" = ") + 3;
        let opening = text.find("(");
        let variable = text.slice(0, name_starts - 3);
        let written = text.slice(name_starts, opening);
        let arguments = Characters::new(&text.slice(opening + 1, text.rfind(")")));
        let name = ActionName::of(&written);
        let query_starts = arguments.find(QUERY) + len(QUERY);
        let (query, typed) = match name {
            Some(ActionName::Type | ActionName::Select) => (
                arguments.slice(query_starts, arguments.rfind(TEXT)),
                Some(arguments.from(arguments.find(TEXT) + len(TEXT))),
            ),
            Some(ActionName::Click) | None => (arguments.from(query_starts), None),
        };
        Self {
            variable: strip(variable.split(", ").next().unwrap_or_default()).to_owned(),
            page: arguments.slice(0, arguments.find(", ")),
            written,
            name,
            query: strip(&query).to_owned(),
            text: typed.map(|text| strip(&text).to_owned()),
        }
    }

    /// Parses an action and rejects it if a part is missing.
    ///
    /// # Errors
    /// The reason for the rejection.
    pub fn strictly(action: &str) -> Result<Self, ActionRefusal> {
        let (variable, call) = action.split_once(" = ").ok_or(ActionRefusal::Unparsable)?;
        let (written, rest) = call.split_once('(').ok_or(ActionRefusal::Unparsable)?;
        let (arguments, _) = rest.rsplit_once(')').ok_or(ActionRefusal::Unparsable)?;
        let name = ActionName::of(strip(written)).ok_or(ActionRefusal::Unknown)?;
        let (page, asked) = arguments.split_once(QUERY).ok_or(ActionRefusal::Unparsable)?;
        let (query, text) = match name {
            ActionName::Click => (asked, None),
            ActionName::Type | ActionName::Select => {
                let (query, text) = asked.split_once(TEXT).ok_or(ActionRefusal::Unparsable)?;
                (query, Some(strip(text).to_owned()))
            }
        };
        Ok(Self {
            variable: strip(variable).to_owned(),
            page: strip(page).to_owned(),
            written: strip(written).to_owned(),
            name: Some(name),
            query: strip(query).to_owned(),
            text,
        })
    }
}

fn len(marker: &str) -> isize {
    marker.len().cast_signed()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(action: &str) -> (String, String, String, String, Option<String>) {
        let ParsedWebAction { variable, page, written, query, text, .. } =
            ParsedWebAction::as_published(action);
        (variable, page, written, query, text)
    }

    fn owned(
        parts: (&str, &str, &str, &str, Option<&str>),
    ) -> (String, String, String, String, Option<String>) {
        let (variable, page, written, query, text) = parts;
        (variable.into(), page.into(), written.into(), query.into(), text.map(Into::into))
    }

    #[test]
    fn actions_are_taken_apart() {
        let expected = owned(("R1", "Env", "TYPE", "The box", Some("New York, NY")));
        assert_eq!(parts("R1 = TYPE(Env, QUERY: The box, TEXT: New York, NY)"), expected);
        let expected = owned(("R1", "Env", "CLICK", "The (big) box", None));
        assert_eq!(parts("R1, R2 = CLICK(Env, QUERY: The (big) box) more"), expected);
    }

    #[test]
    fn what_is_missing_is_cut_as_python_cuts_it() {
        assert_eq!(parts(""), owned(("", "", "", "", None)));
        // No closing parenthesis: the last character is lost.
        let expected = owned(("R1", "Env", "CLICK", "The bo", None));
        assert_eq!(parts("R1 = CLICK(Env, QUERY: The box"), expected);
        // No ` = `: the name starts at the third character.
        assert_eq!(parts("CLICK(Env, QUERY: x)").2, "ICK");
        // No markers: the query starts at the eighth character, the text at the seventh.
        assert_eq!(parts("R1 = CLICK(Env, The box)").3, "e box");
        assert_eq!(parts("R1 = TYPE(Env, QUERY: The box)").4.as_deref(), Some("UERY: The box"));
    }

    #[test]
    fn strictly_nothing_may_be_missing() {
        let parsed = ParsedWebAction::strictly("R1 = SELECT(Env, QUERY: Size, TEXT: L)").unwrap();
        assert_eq!((parsed.query.as_str(), parsed.text.as_deref()), ("Size", Some("L")));
        for (action, refusal) in [
            ("", ActionRefusal::Unparsable),
            ("CLICK(Env, QUERY: x)", ActionRefusal::Unparsable),
            ("R1 = CLICK(Env, x)", ActionRefusal::Unparsable),
            ("R1 = CLICK(Env, QUERY: x", ActionRefusal::Unparsable),
            ("R1 = TYPE(Env, QUERY: x)", ActionRefusal::Unparsable),
            ("R1 = HOVER(Env, QUERY: x)", ActionRefusal::Unknown),
            ("R1 = click(Env, QUERY: x)", ActionRefusal::Unknown),
        ] {
            assert_eq!(ParsedWebAction::strictly(action), Err(refusal), "{action}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(action in "(R1|, | = |CLICK|TYPE|\\(|\\)|, QUERY:|, TEXT:|é|x){0,12}") {
            let published = ParsedWebAction::as_published(&action);
            if let Ok(parsed) = ParsedWebAction::strictly(&action) {
                prop_assert!(parsed.name.is_some());
                prop_assert!(published.variable.len() <= action.len());
            }
        }
    }
}
