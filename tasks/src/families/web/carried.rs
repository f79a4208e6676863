//! Carrying a step's action out in a browser, and what came of it.

use serde::{Deserialize, Serialize};

use super::action::ActionName;

/// A step's action, to be carried out on its page.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attempt {
    /// The gold step that the action was chosen in, counted from 0.
    pub step: u32,
    /// The gold step whose page it was chosen on.
    pub page: u32,
    /// The `backend_node_id` of the element.
    pub element: String,
    /// What is done with it.
    pub action: ActionName,
    /// The text typed or selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// What a browser made of a step's action. Says nothing about whether the action is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Carried {
    /// What came of the action.
    pub action: Executed,
    /// What came of a click on the page's first right element: whether there is anything to be reached at all. `None`
    /// where the page has no right element.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truth: Option<Executed>,
}

/// Whether something could be done on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Executed {
    /// It was done and took effect.
    Done,
    /// It could not be done, or nothing came of it.
    Refused(Obstacle),
}

impl Executed {
    /// Whether it was done.
    pub fn is_done(self) -> bool {
        self == Self::Done
    }
}

/// Why an action could not be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Obstacle {
    /// No element of the page has the id.
    NoElement,
    /// The element is nowhere to be seen.
    Hidden,
    /// Another element lies over it.
    Covered,
    /// It is disabled.
    Disabled,
    /// Text cannot be typed into it.
    NotEditable,
    /// It is no list of options.
    NoList,
    /// The list has no such option.
    NoOption,
    /// The text is longer than what is typed.
    TextTooLong,
    /// It was done, and nothing came of it.
    NoEffect,
    /// The page led elsewhere.
    PageLeft,
    /// The page is larger than what is shown.
    PageTooLarge,
    /// The page is no well-formed XML.
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

    /// What stood in the way, for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::NoElement => "there is no such element",
            Self::Hidden => "the element is hidden",
            Self::Covered => "the element is covered",
            Self::Disabled => "the element is disabled",
            Self::NotEditable => "the element takes no text",
            Self::NoList => "the element is no list of options",
            Self::NoOption => "there is no such option",
            Self::TextTooLong => "the text is too long",
            Self::NoEffect => "nothing came of it",
            Self::PageLeft => "the page led elsewhere",
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
            Carried { action: Executed::Refused(Obstacle::NotEditable), truth: Some(Executed::Done) };
        let text = serde_json::to_string(&carried).unwrap();
        assert_eq!(text, r#"{"action":{"refused":"not_editable"},"truth":"done"}"#);
        assert_eq!(serde_json::from_str::<Carried>(&text).unwrap(), carried);
    }

    #[test]
    fn every_obstacle_has_words_of_its_own() {
        for obstacle in Obstacle::ALL {
            let alike = Obstacle::ALL.iter().filter(|other| other.words() == obstacle.words());
            assert_eq!(alike.count(), 1, "{obstacle:?}");
        }
    }
}
