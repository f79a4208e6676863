//! The candidates of one step on a web page.

use std::collections::HashMap;

use lumos_tasks::families::web::{CandidateElement, CandidateScope, WebStep};
use thiserror::Error;

use super::candidate::CandidateTexts;
use super::parse::PageError;
use super::text::{Brackets, TextError};
use super::tree::Tree;

/// Errors of writing the candidates of a step.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CandidateError {
    /// The page cannot be parsed.
    #[error(transparent)]
    Page(#[from] PageError),
    /// A candidate's text cannot be written.
    #[error(transparent)]
    Text(#[from] TextError),
}

impl CandidateError {
    /// The exception with which the original ends its run.
    pub fn exception(&self) -> &'static str {
        match self {
            Self::Page(_) => "XMLSyntaxError",
            Self::Text(error) => error.exception().unwrap_or("MemoryError"),
        }
    }
}

/// The texts of a step's candidates; the page is parsed once.
///
/// # Errors
/// Fails if the page cannot be parsed; with [`CandidateScope::Published`] also if one of the candidates has
/// no text. [`CandidateScope::All`] skips such candidates.
pub fn candidates(step: &WebStep, scope: CandidateScope) -> Result<Vec<CandidateElement>, CandidateError> {
    let tree = Tree::parse(&step.page)?;
    let mut texts = CandidateTexts::new(&tree);
    let listed = step.positives.iter().chain(&step.negatives).map(String::as_str);
    match scope {
        CandidateScope::Published => listed
            .take(CandidateScope::PUBLISHED)
            .map(|id| Ok(CandidateElement { id: id.to_owned(), text: texts.write(id, Brackets::Round)? }))
            .collect(),
        CandidateScope::All => {
            let mut places: HashMap<&str, usize> = HashMap::new();
            for (place, id) in tree.element_ids().enumerate() {
                places.entry(id).or_insert(place);
            }
            let mut known: Vec<(usize, &str)> =
                listed.filter_map(|id| Some((*places.get(id)?, id))).collect();
            known.sort_unstable();
            known.dedup();
            let mut elements = Vec::with_capacity(known.len());
            for (_, id) in known {
                match texts.write(id, Brackets::Round) {
                    Ok(text) => elements.push(CandidateElement { id: id.to_owned(), text }),
                    Err(error @ TextError::TooMuchText { .. }) => return Err(error.into()),
                    Err(_) => {}
                }
            }
            Ok(elements)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step() -> WebStep {
        WebStep {
            page: "<html backend_node_id=\"1\"><a backend_node_id=\"2\"><text>Home</text></a>\
                   <b backend_node_id=\"3\" title=\"Cart\"/></html>"
                .to_owned(),
            positives: vec!["3".to_owned()],
            negatives: vec!["2".to_owned(), "9".to_owned()],
        }
    }

    #[test]
    fn candidates_come_as_published_or_as_they_stand_on_the_page() {
        let missing = candidates(&step(), CandidateScope::Published).unwrap_err();
        assert_eq!((missing.exception(), missing.to_string().contains("`9`")), ("IndexError", true));
        let known = WebStep { negatives: vec!["2".to_owned()], ..step() };
        let ids = |elements: Vec<CandidateElement>| {
            elements.into_iter().map(|element| element.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(candidates(&known, CandidateScope::Published).unwrap()), ["3", "2"]);
        let all = candidates(&step(), CandidateScope::All).unwrap();
        assert_eq!(all[0].text, "ancestors: /html/b cart\ntarget: (a id=0Home)");
        assert_eq!(ids(all), ["2", "3"]);
    }

    #[test]
    fn a_page_that_cannot_be_read_says_why() {
        let broken = WebStep { page: "<html>".to_owned(), ..step() };
        assert_eq!(candidates(&broken, CandidateScope::All).unwrap_err().exception(), "XMLSyntaxError");
    }
}
