//! An approximation of a part-of-speech tagger for product titles.
//!
//! spaCy's models are not available here, and other taggers need a neural network's runtime. In titles
//! nearly every word is a noun or part of a name, so this module lists the words to exclude: closed word
//! classes, numbers with their units, adverbs, and the adjectives and participles that are common in titles.
//! The reward states how far other nouns could have changed it ([`PurchaseReward`](super::PurchaseReward)).

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use unicode_segmentation::UnicodeSegmentation;

use super::reward::Tagger;

/// The approximation: everything except listed words.
#[derive(Debug, Clone, Copy, Default)]
pub struct Approximation;

/// Incremented when the approximation changes, so that results with the old and new ones are not mixed.
pub const VERSION: u32 = 1;

/// Words that are not nouns: determiners, pronouns, prepositions, conjunctions, auxiliaries, adverbs, and the
/// adjectives and verbs that are common in titles.
static OTHERS: LazyLock<HashSet<&str>> = LazyLock::new(|| include_str!("other_words.txt").lines().collect());

/// Endings of words that are not nouns.
const ENDINGS: [&str; 12] =
    ["able", "ible", "ful", "less", "ous", "ive", "proof", "resistant", "friendly", "ly", "est", "ish"];

/// Nouns with such an ending.
const EXCEPTIONS: [&str; 22] = [
    "adhesive",
    "belly",
    "butterfly",
    "cable",
    "chest",
    "dish",
    "family",
    "finish",
    "fish",
    "fly",
    "handful",
    "harvest",
    "jelly",
    "july",
    "olive",
    "polish",
    "supply",
    "table",
    "tablecloth",
    "vegetable",
    "vest",
    "west",
];

impl Tagger for Approximation {
    fn nouns(&self, title: &str) -> Vec<String> {
        title.unicode_words().flat_map(parts).filter(|word| is_noun(word)).collect()
    }
}

/// A word in lower case without its possessive.
fn parts(word: &str) -> Option<String> {
    let word = word.to_lowercase().replace('’', "'");
    Some(word.strip_suffix("'s").unwrap_or(&word).to_owned())
}

fn is_noun(word: &str) -> bool {
    let letters = word.chars().filter(|character| character.is_alphabetic()).count();
    let listed = OTHERS.contains(word);
    let starts_as_number = word.starts_with(|character: char| character.is_numeric());
    let by_ending = word.chars().count() > 4
        && ENDINGS.iter().any(|ending| word.ends_with(ending))
        && EXCEPTIONS.binary_search(&word).is_err();
    letters > 0 && !starts_as_number && !listed && !by_ending
}

/// Known nouns by title, and another tagger for all other titles.
#[derive(Debug, Clone, Default)]
pub struct KnownNouns<T> {
    known: HashMap<String, Vec<String>>,
    otherwise: T,
}

impl<T> KnownNouns<T> {
    /// Creates a tagger from nouns by title, and a fallback for other titles. Nouns are converted to lower
    /// case.
    pub fn new(known: HashMap<String, Vec<String>>, otherwise: T) -> Self {
        Self { known, otherwise }
    }
}

impl<T: Tagger> Tagger for KnownNouns<T> {
    fn nouns(&self, title: &str) -> Vec<String> {
        match self.known.get(title) {
            Some(nouns) => nouns.iter().map(|noun| noun.to_lowercase()).collect(),
            None => self.otherwise.nouns(title),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nouns_of_a_title() {
        let title = "Men's Waterproof Rain Jacket with Hood, 2 Pockets (Blue, X-Large) for the outdoors";
        let expected = ["men", "rain", "jacket", "hood", "pockets", "outdoors"];
        assert_eq!(Approximation.nouns(title), expected);
        assert!(Approximation.nouns("for 16x20 and very soft").is_empty());
    }

    #[test]
    fn lists_are_sorted() {
        assert!(include_str!("other_words.txt").lines().is_sorted() && EXCEPTIONS.is_sorted());
        assert_eq!(OTHERS.len(), 302);
    }

    #[test]
    fn known_titles_come_first() {
        let tagger =
            KnownNouns::new(HashMap::from([("A b".to_owned(), vec!["B".to_owned()])]), Approximation);
        assert_eq!(tagger.nouns("A b"), ["b"]);
        assert_eq!(tagger.nouns("Red Lamp"), ["lamp"]);
    }
}
