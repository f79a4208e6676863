//! Tokenizes texts like Lucene's English analyser (Anserini 0.14.3, Lucene 8).

use lumos_tasks::python::Integer;
use unicode_segmentation::UnicodeSegmentation;

use crate::retrieval::{is_stop_word, lucene_stem};

/// Longer words are split into pieces of this many characters, as in Lucene's tokenizer.
const LONGEST: usize = 255;

/// Calls `with` for every term of a text, in order: words by Unicode's rules, without a possessive `'s`, in
/// lower case, without the 33 stop words, stemmed.
pub(in crate::shop) fn terms(text: &str, mut with: impl FnMut(&str)) {
    // Lucene 8 follows an older Unicode version, in which a colon between letters joins them as a middle dot
    // does.
    let joined = if text.contains(':') { text.replace(':', "\u{b7}") } else { String::new() };
    let text = if joined.is_empty() { text } else { &joined };
    for word in text.split_word_bounds().filter(|word| is_term(word)) {
        let mut rest = word;
        while !rest.is_empty() {
            let cut = rest.char_indices().nth(LONGEST).map_or(rest.len(), |(position, _)| position);
            let (piece, after) = rest.split_at(cut);
            rest = after;
            let lower = without_possessive(piece).to_lowercase();
            if !stop_word(&lower) {
                with(&lucene_stem(&lower));
            }
        }
    }
}

/// Whether a segment is a term: one with a letter or a digit, or an emoji. Characters that only extend the
/// preceding one, such as the half-width voiced sound marks, are alphabetic in Unicode but do not make a
/// segment of brackets a term.
fn is_term(segment: &str) -> bool {
    let is_letter = |character: char| character.is_alphabetic() && !is_extending(character);
    segment.chars().any(|character| is_letter(character) || is_digit(character))
        || segment.chars().next().is_some_and(is_emoji)
}

/// Whether a character has no word boundary before it even after a bracket (Unicode's rule WB4).
fn is_extending(character: char) -> bool {
    let mut text = [0; 5];
    let length = 1 + character.encode_utf8(&mut text[1..]).len();
    text[0] = b'(';
    let text = std::str::from_utf8(&text[..length]).unwrap_or_default();
    !character.is_ascii() && text.split_word_bound_indices().nth(1).is_none()
}

/// Whether a character is a decimal digit; other numbers (`½`, `²`) are not part of words.
fn is_digit(character: char) -> bool {
    character.is_ascii_digit()
        || character.is_numeric() && Integer::parse(character.encode_utf8(&mut [0; 4])).is_some()
}

/// Ranges of characters that Lucene 8 treats as emoji (`Extended_Pictographic` of Unicode 11).
const EMOJI: [(u32, u32); 57] = [
    (0xa9, 0xa9),
    (0xae, 0xae),
    (0x203c, 0x203c),
    (0x2049, 0x2049),
    (0x2122, 0x2122),
    (0x2139, 0x2139),
    (0x2194, 0x2199),
    (0x21a9, 0x21aa),
    (0x231a, 0x231b),
    (0x2328, 0x2328),
    (0x2388, 0x2388),
    (0x23cf, 0x23cf),
    (0x23e9, 0x23f3),
    (0x23f8, 0x23fa),
    (0x24c2, 0x24c2),
    (0x25aa, 0x25ab),
    (0x25b6, 0x25b6),
    (0x25c0, 0x25c0),
    (0x25fb, 0x25fe),
    (0x2600, 0x2605),
    (0x2607, 0x2612),
    (0x2614, 0x2685),
    (0x2690, 0x2705),
    (0x2708, 0x2712),
    (0x2714, 0x2714),
    (0x2716, 0x2716),
    (0x271d, 0x271d),
    (0x2721, 0x2721),
    (0x2728, 0x2728),
    (0x2733, 0x2734),
    (0x2744, 0x2744),
    (0x2747, 0x2747),
    (0x274c, 0x274c),
    (0x274e, 0x274e),
    (0x2753, 0x2755),
    (0x2757, 0x2757),
    (0x2763, 0x2767),
    (0x2795, 0x2797),
    (0x27a1, 0x27a1),
    (0x27b0, 0x27b0),
    (0x27bf, 0x27bf),
    (0x2934, 0x2935),
    (0x2b05, 0x2b07),
    (0x2b1b, 0x2b1c),
    (0x2b50, 0x2b50),
    (0x2b55, 0x2b55),
    (0x3030, 0x3030),
    (0x303d, 0x303d),
    (0x3297, 0x3297),
    (0x3299, 0x3299),
    (0x1f000, 0x1f1e5),
    (0x1f201, 0x1f3fa),
    (0x1f400, 0x1f64f),
    (0x1f680, 0x1f6ff),
    (0x1f774, 0x1f77f),
    (0x1f7d5, 0x1f7ff),
    (0x1f900, 0x1fffd),
];

fn is_emoji(character: char) -> bool {
    let code = u32::from(character);
    let at = EMOJI.partition_point(|(from, _)| *from <= code);
    at.checked_sub(1).and_then(|at| EMOJI.get(at)).is_some_and(|(_, to)| code <= *to)
}

fn without_possessive(word: &str) -> &str {
    let Some(owner) = word.strip_suffix(['s', 'S']) else { return word };
    owner.strip_suffix(['\'', '\u{2019}', '\u{ff07}']).unwrap_or(word)
}

/// Lucene's 33 stop words, which do not include single `s` and `t`.
fn stop_word(word: &str) -> bool {
    is_stop_word(word) && word != "s" && word != "t"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<String> {
        let mut found = Vec::new();
        terms(text, |term| found.push(term.to_owned()));
        found
    }

    #[test]
    fn terms_of_a_text() {
        let text = "The Men's shoes, 10.5\" T-shirts: naïve crèmes don't s/t 100% a:b ★❤️ ½";
        let expected = [
            "men", "shoe", "10.5", "t", "shirt", "naïv", "crème", "don't", "s", "t", "100", "a\u{b7}b", "★",
            "❤️",
        ];
        assert_eq!(all(text), expected);
    }

    /// U+FF9F extends the preceding character and is alphabetic.
    #[test]
    fn extending_characters_alone_are_no_terms() {
        assert_eq!(all("(\u{ff9f} )\u{ff9e} \u{ff9f} (\u{93e} *\u{ff9f}* a\u{ff9f}"), ["a\u{ff9f}"]);
        assert_eq!(all("\u{ff76}\u{ff9e} \u{928}\u{93e}"), ["\u{ff76}\u{ff9e}", "\u{928}\u{93e}"]);
    }

    #[test]
    fn long_words_are_cut() {
        assert_eq!(all(&"x".repeat(600)).iter().map(String::len).collect::<Vec<_>>(), [255, 255, 90]);
    }
}
