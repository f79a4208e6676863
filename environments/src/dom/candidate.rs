//! The text of a candidate for the ranker (upstream `format_candidate` in `dataloader.py`).

use super::prune::{PruneLimits, Pruner};
use super::text::{Brackets, IdNumbers, PageText, TextError};
use super::tree::Tree;

/// Maximum number of words of a candidate's surroundings; the last ones are kept.
const WORDS_AROUND: usize = 50;
/// Maximum number of words of a candidate; the first ones are kept.
const WORDS_OF_TARGET: usize = 100;
/// Maximum total size in bytes of the texts of one page's candidates, before they are truncated to a number
/// of words. Each element that is visited counts as one byte.
const MAX_TEXT: usize = 1 << 28;

/// The texts of a page's candidates.
#[derive(Debug)]
pub struct CandidateTexts<'t> {
    pruner: Pruner<'t>,
    text: PageText<'t>,
    written: usize,
}

impl<'t> CandidateTexts<'t> {
    /// Prepares the texts of a page.
    pub fn new(tree: &'t Tree) -> Self {
        Self { pruner: Pruner::new(tree), text: PageText::new(tree), written: 0 }
    }

    /// The candidate's text: `ancestors: …`, a line break, `target: …`. Siblings of the candidate belong to
    /// the ancestors part.
    ///
    /// # Errors
    /// Fails if the page has no such element, if the element is text or is within an empty `text` element, or
    /// if the page's texts get too long.
    pub fn write(&mut self, candidate: &str, brackets: Brackets) -> Result<String, TextError> {
        let view = self.pruner.prune(&[candidate], PruneLimits::default());
        self.count(self.pruner.visited())?;
        let view = view?;
        let place = view.entries.iter().position(|entry| entry.keeps_ident);
        let place = place.ok_or_else(|| TextError::NoSuchElement(candidate.to_owned()))?;
        // Before anything is written, because text that ends with an error is not counted.
        let is_empty_text = |at: usize| view.node(at).is_text && view.node(at).text.is_empty();
        if (0..view.entries.len()).any(is_empty_text) {
            return Err(TextError::EmptyText);
        }
        let around = if place == 0 {
            String::new()
        } else {
            self.text.text_of(&view, 0, Some(place), &mut IdNumbers::default(), brackets)?
        };
        let target = self.text.text_of(&view, place, None, &mut IdNumbers::default(), brackets)?;
        self.count(around.len() + target.len())?;
        let around = as_path(&around);
        let last = around.rmatch_indices(' ').nth(WORDS_AROUND - 1).map_or(0, |(at, blank)| at + blank.len());
        let first = target.match_indices(' ').nth(WORDS_OF_TARGET - 1).map_or(target.len(), |(at, _)| at);
        Ok(format!("ancestors: {}\ntarget: {}", &around[last..], &target[..first]))
    }

    fn count(&mut self, bytes: usize) -> Result<(), TextError> {
        self.written += bytes;
        if self.written > MAX_TEXT { Err(TextError::TooMuchText { most: MAX_TEXT }) } else { Ok(()) }
    }
}

/// Replaces `(` and the blanks around it with `/`, removes `)` and the blanks around it, and trims the
/// result.
fn as_path(text: &str) -> String {
    let mut path = String::with_capacity(text.len());
    let mut after_bracket = false;
    for character in text.chars() {
        match character {
            '(' | ')' => {
                path.truncate(path.trim_end_matches(' ').len());
                if character == '(' {
                    path.push('/');
                }
                after_bracket = true;
            }
            ' ' if after_bracket => {}
            other => {
                path.push(other);
                after_bracket = false;
            }
        }
    }
    path.trim_matches(' ').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_that_are_dropped_count() {
        let namesakes = "<a backend_node_id=\"1\"/>".repeat(1_000);
        let page = format!(
            "<html backend_node_id=\"1\"><b backend_node_id=\"2\"><b backend_node_id=\"3\">{namesakes}</b>\
             </b><i backend_node_id=\"4\"/></html>"
        );
        let tree = Tree::parse(&page).unwrap();
        let mut texts = CandidateTexts::new(&tree);
        texts.write("4", Brackets::Round).unwrap();
        assert!(texts.written > 1_000, "{}", texts.written);
        texts.written = MAX_TEXT - 1_000;
        assert!(matches!(texts.write("4", Brackets::Round), Err(TextError::TooMuchText { .. })));
    }

    #[test]
    fn texts_that_fail_are_not_written() {
        let text = "word ".repeat(1 << 20);
        let page = format!("<html backend_node_id=\"1\">{text}<a backend_node_id=\"2\"><text/></a></html>");
        let tree = Tree::parse(&page).unwrap();
        let mut texts = CandidateTexts::new(&tree);
        for _ in 0..10_000 {
            assert_eq!(texts.write("2", Brackets::Round), Err(TextError::EmptyText));
        }
    }
}
