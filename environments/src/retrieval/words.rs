//! Splits texts into words, and reduces English words to their stems: M. F. Porter, *An algorithm for suffix
//! stripping*, Program 14 (3), 1980, which Lucene's English analyser uses too.

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

/// Longer words are not stemmed; no English word is longer.
const LONGEST: usize = 40;

/// The stem of a word in lower case. Words with other letters than a to z are returned unchanged.
pub(super) fn stem(word: &str) -> String {
    let mut word = word.to_owned();
    if word.len() > 2 && word.len() <= LONGEST && word.bytes().all(|letter| letter.is_ascii_lowercase()) {
        steps(&mut word, &STEP_2_ARTICLE);
    }
    word
}

/// The stem according to Lucene's `PorterStemmer`: words with any letters and digits are stemmed, and two
/// rules of step 2 are those of Porter's own later programs (`bli` and `logi`).
pub(crate) fn lucene_stem(word: &str) -> String {
    let mut word = word.to_owned();
    if word.chars().nth(2).is_some() {
        steps(&mut word, &STEP_2_LATER);
    }
    word
}

fn steps(word: &mut String, step_2: &Rules) {
    plural(word);
    past(word);
    if word.strip_suffix('y').is_some_and(has_vowel) {
        set(word, 1, "i");
    }
    first_match(word, STEP_2.iter().chain(step_2), 1);
    first_match(word, STEP_3.iter(), 1);
    ending(word);
    last_e(word);
}

/// Suffixes with their replacements; if a word can end in several, the longer come first.
type Rules = [(&'static str, &'static str)];

const STEP_2: [(&str, &str); 19] = [
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
];

/// Rules of step 2 in Porter's article, and those that replace them in his later programs. No word matches
/// two of all rules.
const STEP_2_ARTICLE: [(&str, &str); 1] = [("abli", "able")];
const STEP_2_LATER: [(&str, &str); 2] = [("bli", "ble"), ("logi", "log")];

const STEP_3: [(&str, &str); 7] = [
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
];

/// Endings that are removed if the measure is large enough. `ion` is removed only after an `s` or a `t`.
const STEP_4: [&str; 19] = [
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism",
    "ate", "iti", "ous", "ive", "ize",
];

/// Which letters are consonants: `y` is one at the start of a word and after a vowel.
fn consonants(word: &str) -> impl Iterator<Item = bool> {
    word.chars().scan(false, |before, letter| {
        *before = match letter {
            'a' | 'e' | 'i' | 'o' | 'u' => false,
            'y' => !*before,
            _ => true,
        };
        Some(*before)
    })
}

/// The number of vowel-consonant sequences: `m` in the article.
fn measure(stem: &str) -> usize {
    let mut vowel = false;
    consonants(stem).filter(|consonant| std::mem::replace(&mut vowel, !consonant) && *consonant).count()
}

fn has_vowel(stem: &str) -> bool {
    consonants(stem).any(|consonant| !consonant)
}

/// Whether the stem ends in a double consonant.
fn ends_doubled(stem: &str) -> bool {
    let mut letters = stem.chars().rev();
    letters.next().is_some_and(|last| letters.next() == Some(last)) && consonants(stem).last() == Some(true)
}

/// Whether the stem ends in consonant, vowel, consonant, and the last is not `w`, `x` or `y`: `hop`.
fn ends_short(stem: &str) -> bool {
    let kinds: Vec<bool> = consonants(stem).collect();
    kinds.ends_with(&[true, false, true]) && !stem.ends_with(['w', 'x', 'y'])
}

/// Replaces the last `cut` letters.
fn set(word: &mut String, cut: usize, replacement: &str) {
    word.truncate(word.len() - cut);
    word.push_str(replacement);
}

/// Applies the first rule whose suffix matches, if the measure of the part before it is large enough.
fn first_match<'a>(word: &mut String, mut rules: impl Iterator<Item = &'a (&'a str, &'a str)>, least: usize) {
    let rule = rules.find_map(|(suffix, by)| Some((suffix, by, word.strip_suffix(suffix)?)));
    if let Some((suffix, by, stem)) = rule
        && measure(stem) >= least
    {
        set(word, suffix.len(), by);
    }
}

/// Step 1a.
fn plural(word: &mut String) {
    if word.ends_with("sses") || word.ends_with("ies") {
        set(word, 2, "");
    } else if word.ends_with('s') && !word.ends_with("ss") {
        set(word, 1, "");
    }
}

/// Step 1b.
fn past(word: &mut String) {
    if let Some(stem) = word.strip_suffix("eed") {
        if measure(stem) > 0 {
            set(word, 1, "");
        }
        return;
    }
    let Some(suffix) =
        ["ed", "ing"].into_iter().find(|suffix| word.strip_suffix(suffix).is_some_and(has_vowel))
    else {
        return;
    };
    set(word, suffix.len(), "");
    if ["at", "bl", "iz"].iter().any(|end| word.ends_with(end)) {
        word.push('e');
    } else if ends_doubled(word) && !word.ends_with(['l', 's', 'z']) {
        word.pop();
    } else if measure(word) == 1 && ends_short(word) {
        word.push('e');
    }
}

/// Step 4.
fn ending(word: &mut String) {
    let found = STEP_4.iter().find_map(|suffix| Some((*suffix, word.strip_suffix(suffix)?)));
    if let Some((suffix, stem)) = found
        && measure(stem) > 1
        && (suffix != "ion" || stem.ends_with(['s', 't']))
    {
        set(word, suffix.len(), "");
    }
}

/// Step 5.
fn last_e(word: &mut String) {
    if let Some(stem) = word.strip_suffix('e') {
        let measure = measure(stem);
        if measure > 1 || measure == 1 && !ends_short(stem) {
            set(word, 1, "");
        }
    }
    if word.ends_with("ll") && measure(word) > 1 {
        set(word, 1, "");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    /// The article's own examples, each after all steps.
    #[test]
    fn examples_of_the_article() {
        for (word, expected) in [
            ("caresses", "caress"),
            ("ponies", "poni"),
            ("cats", "cat"),
            ("feed", "feed"),
            ("agreed", "agre"),
            ("plastered", "plaster"),
            ("bled", "bled"),
            ("motoring", "motor"),
            ("sing", "sing"),
            ("conflated", "conflat"),
            ("troubled", "troubl"),
            ("sized", "size"),
            ("hopping", "hop"),
            ("falling", "fall"),
            ("hissing", "hiss"),
            ("filing", "file"),
            ("happy", "happi"),
            ("sky", "sky"),
            ("relational", "relat"),
            ("conditional", "condit"),
            ("vietnamization", "vietnam"),
            ("operator", "oper"),
            ("hopefulness", "hope"),
            ("triplicate", "triplic"),
            ("electrical", "electr"),
            ("revival", "reviv"),
            ("replacement", "replac"),
            ("adoption", "adopt"),
            ("probate", "probat"),
            ("rate", "rate"),
            ("cease", "ceas"),
            ("controll", "control"),
            ("roll", "roll"),
            ("generalizations", "gener"),
            ("oscillators", "oscil"),
        ] {
            assert_eq!(stem(word), expected, "{word}");
        }
        assert_eq!(stem("山"), "山");
        assert_eq!(lucene_stem("crèmes"), "crème");
        assert_eq!(lucene_stem("technology"), "technolog");
    }

    proptest! {
        #[test]
        fn a_stem_is_no_longer_than_its_word(word in "[a-z]{0,45}") {
            prop_assert!(stem(&word).len() <= word.len());
        }

        #[test]
        fn arbitrary_words_never_panic(word in any::<String>(), ending in "(ed|ing|s|y|ational|logi|é+ed)?") {
            stem(&word);
            lucene_stem(&format!("{word}{ending}"));
        }
    }
}
