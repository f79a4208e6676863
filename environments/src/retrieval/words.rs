//! Splits texts into words.

/// Words too common to be useful for ranking: the 33 of Lucene's English analyser, and the letters that
/// remain after an apostrophe (`Holst's`, `don't`).
const STOP_WORDS: [&str; 35] = [
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no",
    "not", "of", "on", "or", "s", "such", "t", "that", "the", "their", "then", "there", "these", "they",
    "this", "to", "was", "will", "with",
];

/// The words of a text, unchanged: runs of letters and digits.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// Whether a word in lower case is excluded from rankings.
pub fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_runs_of_letters_and_digits() {
        let text = "Holst's \"The Planets\" (Op. 32), 1918–20; Gaudí";
        let expected = ["Holst", "s", "The", "Planets", "Op", "32", "1918", "20", "Gaudí"];
        assert_eq!(words(text).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_stop_words_are_sorted() {
        assert!(STOP_WORDS.is_sorted());
        assert!(is_stop_word("the") && !is_stop_word("planet"));
    }
}
