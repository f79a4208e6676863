//! Requests to execute a step's action in a browser ([`PageAction`]) and their results ([`PageExecution`]).

use serde::{Deserialize, Serialize};

use super::action::ActionName;

/// A step's action, to be executed on its page.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PageAction {
    /// The gold step in which the action was chosen, counted from 0.
    pub step: u32,
    /// The gold step on whose page it was chosen.
    pub page: u32,
    /// The `backend_node_id` of the element.
    pub element: String,
    /// The kind of action.
    pub action: ActionName,
    /// The text typed or selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// The result of executing a step's action in a browser. It does not depend on whether the action is correct.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PageExecution {
    /// The result of the action.
    pub action: WebResult,
    /// The result of a click on the page's first correct element, which shows whether anything on the page
    /// can be reached. `None` if the page has no correct element.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truth: Option<WebResult>,
}

/// Whether an action could be executed on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WebResult {
    /// It was executed and had an effect.
    Done,
    /// It could not be executed, or had no effect.
    Refused(Obstacle),
}

impl WebResult {
    /// Whether it was done.
    pub fn is_done(self) -> bool {
        self == Self::Done
    }
}

/// Reasons why an action could not be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Obstacle {
    /// No element of the page has the id.
    NoElement,
    /// The element is not visible.
    Hidden,
    /// Another element covers it.
    Covered,
    /// It is disabled.
    Disabled,
    /// Text cannot be typed into it.
    NotEditable,
    /// It is not a list of options.
    NoList,
    /// The list has no such option.
    NoOption,
    /// The text exceeds the maximum length for typing.
    TextTooLong,
    /// It was executed, but had no effect.
    NoEffect,
    /// The page navigated away.
    PageLeft,
    /// The page exceeds the maximum size.
    PageTooLarge,
    /// The page is not well-formed XML.
    PageUnreadable,
}

impl Obstacle {
    /// All obstacles.
    pub const ALL: [Self; 12] = [
        Self::NoElement,
        Self::Hidden,
        Self::Covered,
        Self::Disabled,
        Self::NotEditable,
        Self::NoList,
        Self::NoOption,
        Self::TextTooLong,
        Self::NoEffect,
        Self::PageLeft,
        Self::PageTooLarge,
        Self::PageUnreadable,
    ];

    /// A description for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::NoElement => "element not found",
            Self::Hidden => "the element is hidden",
            Self::Covered => "the element is covered",
            Self::Disabled => "the element is disabled",
            Self::NotEditable => "the element is not editable",
            Self::NoList => "the element is not a list of options",
            Self::NoOption => "option not found",
            Self::TextTooLong => "the text is too long",
            Self::NoEffect => "the action had no effect",
            Self::PageLeft => "the page navigated away",
            Self::PageTooLarge => "the page is too large",
            Self::PageUnreadable => "the page cannot be read",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_written_flat() {
        let carried =
            PageExecution { action: WebResult::Refused(Obstacle::NotEditable), truth: Some(WebResult::Done) };
        let text = serde_json::to_string(&carried).unwrap();
        assert_eq!(text, r#"{"action":{"refused":"not_editable"},"truth":"done"}"#);
        assert_eq!(serde_json::from_str::<PageExecution>(&text).unwrap(), carried);
    }

    #[test]
    fn every_obstacle_has_words_of_its_own() {
        for obstacle in Obstacle::ALL {
            let alike = Obstacle::ALL.iter().filter(|other| other.words() == obstacle.words());
            assert_eq!(alike.count(), 1, "{obstacle:?}");
        }
    }
}
