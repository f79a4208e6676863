//! What a candidate looks like to the ranker (upstream `format_candidate` in `dataloader.py`), and what it says.

use super::error::TextError;
use super::prune::{PruneLimits, Pruner};
use super::text::{Brackets, IdNumbers, PageText};
use super::tree::Tree;

/// The most words of a candidate's surroundings, the last of them.
const WORDS_AROUND: usize = 50;
/// The most words of a candidate, the first of them.
const WORDS_OF_TARGET: usize = 100;
/// The most bytes that the texts of one page's candidates may have in all, before they are cut to so many words.
pub const MAX_TEXT: usize = 1 << 28;

/// The texts of a page's candidates.
#[derive(Debug)]
pub struct CandidateTexts<'t> {
    pruner: Pruner<'t>,
    text: PageText<'t>,
    written: usize,
}

impl<'t> CandidateTexts<'t> {
    /// Begins with a page.
    pub fn new(tree: &'t Tree) -> Self {
        Self { pruner: Pruner::new(tree), text: PageText::new(tree), written: 0 }
    }

    /// The candidate's text: `ancestors: …`, a line break, `target: …`. What stands beside the candidate counts to its
    /// ancestors.
    ///
    /// # Errors
    /// If the page has no such element, the element is text or a `text` element around it holds nothing; if the page's
    /// texts get too long.
    pub fn write(&mut self, candidate: &str, brackets: Brackets) -> Result<String, TextError> {
        let view = self.pruner.prune(&[candidate], PruneLimits::default())?;
        let place = view.entries.iter().position(|entry| entry.keeps_ident);
        let place = place.ok_or_else(|| TextError::NoSuchElement(candidate.to_owned()))?;
        let around = if place == 0 {
            String::new()
        } else {
            self.text.text_of(&view, 0, Some(place), &mut IdNumbers::default(), brackets)?
        };
        let target = self.text.text_of(&view, place, None, &mut IdNumbers::default(), brackets)?;
        self.written += around.len() + target.len() + view.entries.len();
        if self.written > MAX_TEXT {
            return Err(TextError::TooMuchText { most: MAX_TEXT });
        }
        let around = as_path(&around);
        let last = around.rmatch_indices(' ').nth(WORDS_AROUND - 1).map_or(0, |(at, blank)| at + blank.len());
        let first = target.match_indices(' ').nth(WORDS_OF_TARGET - 1).map_or(target.len(), |(at, _)| at);
        Ok(format!("ancestors: {}\ntarget: {}", &around[last..], &target[..first]))
    }
}

/// `(` with the blanks around it to `/`, `)` with the blanks around it to nothing, no blanks at the ends.
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

/// The words of a candidate's text that are its own (upstream `process_tag`): behind the last `target: ` all from the
/// third on but those that hold a parenthesis.
pub fn own_words(text: &str) -> String {
    let target = text.rsplit("target: ").next().unwrap_or_default();
    let words = lumos_tasks::python::strip(target).split(' ').skip(2);
    let words = words.filter(|word| !word.contains(['(', ')']));
    lumos_tasks::python::strip(&words.collect::<Vec<_>>().join(" ")).to_owned()
}
