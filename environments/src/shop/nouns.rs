//! An approximation of a part-of-speech tagger for product titles.
//!
//! spaCy's models are not available here, and other taggers need a neural network's runtime. In titles
//! nearly every word is a noun or part of a name, so this module lists the words to exclude: closed word
//! classes, numbers with their units, adverbs, and the adjectives and participles that are common in titles.
//! The reward states how far other nouns could have changed it ([`PurchaseReward`](super::PurchaseReward)).

use std::collections::HashMap;

use unicode_segmentation::UnicodeSegmentation;

use super::reward::Tagger;

/// The approximation: everything except listed words.
#[derive(Debug, Clone, Copy, Default)]
pub struct Approximation;

/// Incremented when the approximation changes, so that results with the old and new ones are not mixed.
pub const VERSION: u32 = 1;

/// Words that are not nouns: determiners, pronouns, prepositions, conjunctions, auxiliaries, adverbs, and the
/// adjectives and verbs that are common in titles. Sorted.
const OTHERS: [&str; 302] = [
    "a",
    "about",
    "above",
    "across",
    "adjustable",
    "adult",
    "after",
    "against",
    "all",
    "along",
    "also",
    "among",
    "an",
    "and",
    "any",
    "are",
    "around",
    "as",
    "at",
    "available",
    "back",
    "be",
    "been",
    "before",
    "behind",
    "below",
    "beneath",
    "beside",
    "between",
    "beyond",
    "big",
    "black",
    "blue",
    "both",
    "bright",
    "brown",
    "built",
    "but",
    "by",
    "can",
    "casual",
    "classic",
    "clean",
    "clear",
    "cold",
    "colorful",
    "comfortable",
    "compatible",
    "cool",
    "could",
    "custom",
    "cute",
    "daily",
    "dark",
    "deep",
    "designed",
    "did",
    "do",
    "does",
    "double",
    "dry",
    "dual",
    "durable",
    "during",
    "each",
    "easy",
    "eco",
    "eight",
    "either",
    "electric",
    "elegant",
    "every",
    "extra",
    "fashionable",
    "fast",
    "featuring",
    "few",
    "first",
    "fitted",
    "five",
    "flat",
    "for",
    "formal",
    "four",
    "framed",
    "free",
    "fresh",
    "from",
    "full",
    "gold",
    "good",
    "gray",
    "great",
    "green",
    "grey",
    "had",
    "handmade",
    "hard",
    "has",
    "have",
    "he",
    "heavy",
    "her",
    "hers",
    "high",
    "him",
    "his",
    "hot",
    "how",
    "i",
    "ideal",
    "if",
    "in",
    "include",
    "includes",
    "including",
    "indoor",
    "inside",
    "into",
    "is",
    "it",
    "its",
    "just",
    "knitted",
    "l",
    "large",
    "light",
    "lightweight",
    "little",
    "long",
    "loose",
    "lovely",
    "low",
    "m",
    "made",
    "main",
    "make",
    "makes",
    "many",
    "matte",
    "may",
    "me",
    "medium",
    "might",
    "mine",
    "mini",
    "modern",
    "more",
    "most",
    "much",
    "multi",
    "must",
    "my",
    "natural",
    "near",
    "neither",
    "new",
    "nice",
    "nine",
    "no",
    "nor",
    "not",
    "of",
    "off",
    "old",
    "on",
    "once",
    "one",
    "only",
    "onto",
    "or",
    "organic",
    "original",
    "other",
    "our",
    "out",
    "outdoor",
    "over",
    "own",
    "padded",
    "per",
    "perfect",
    "pink",
    "plain",
    "plastic",
    "plus",
    "portable",
    "premium",
    "printed",
    "professional",
    "pure",
    "purple",
    "quick",
    "quilted",
    "rapid",
    "real",
    "rectangular",
    "red",
    "ribbed",
    "rich",
    "round",
    "rustic",
    "s",
    "safe",
    "second",
    "seven",
    "sexy",
    "she",
    "short",
    "should",
    "silver",
    "simple",
    "since",
    "single",
    "six",
    "slim",
    "small",
    "smart",
    "so",
    "soft",
    "solid",
    "some",
    "special",
    "square",
    "stainless",
    "strong",
    "stylish",
    "such",
    "super",
    "sweet",
    "tailored",
    "tall",
    "ten",
    "than",
    "that",
    "the",
    "their",
    "them",
    "then",
    "there",
    "these",
    "they",
    "thick",
    "thin",
    "this",
    "those",
    "three",
    "through",
    "throughout",
    "tiny",
    "to",
    "too",
    "top",
    "toward",
    "triple",
    "two",
    "ultra",
    "under",
    "unique",
    "until",
    "up",
    "upgraded",
    "upon",
    "us",
    "various",
    "very",
    "via",
    "vintage",
    "warm",
    "was",
    "washable",
    "waterproof",
    "we",
    "wear",
    "were",
    "what",
    "when",
    "where",
    "which",
    "while",
    "white",
    "who",
    "whom",
    "whose",
    "wide",
    "wild",
    "will",
    "wireless",
    "with",
    "within",
    "without",
    "wooden",
    "would",
    "x",
    "xl",
    "xs",
    "xx",
    "xxl",
    "yellow",
    "you",
    "young",
    "your",
];

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
    let listed = OTHERS.binary_search(&word).is_ok();
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

    /// Number of known titles.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether no titles are known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
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
        assert!(OTHERS.is_sorted() && EXCEPTIONS.is_sorted());
    }

    #[test]
    fn known_titles_come_first() {
        let tagger =
            KnownNouns::new(HashMap::from([("A b".to_owned(), vec!["B".to_owned()])]), Approximation);
        assert_eq!(tagger.nouns("A b"), ["b"]);
        assert_eq!(tagger.nouns("Red Lamp"), ["lamp"]);
    }
}
