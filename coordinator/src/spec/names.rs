//! Matches words with known names: expands lists of benchmarks (names, patterns such as `gsm*`, and `all`),
//! and suggests the known word that is most similar to a mistyped one.

/// The word for all benchmarks.
const ALL: &str = "all";

/// Expands a list of benchmarks, without duplicates. Words are names, patterns with `*` and `?`, or `all`,
/// separated by blanks and commas. Patterns and `all` expand to known names in their order; a word without a
/// match is kept unchanged.
/// ```
/// use lumos_coordinator::spec::expand_names;
///
/// let known = ["gsm8k", "svamp", "hotpotqa"];
/// assert_eq!(expand_names(["svamp, gsm*"], &known), ["svamp", "gsm8k"]);
/// assert_eq!(expand_names(["all"], &known), known);
/// ```
pub fn expand_names<'a>(words: impl IntoIterator<Item = &'a str>, known: &[&str]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let words = words.into_iter().flat_map(|word| word.split(',')).map(str::trim);
    for word in words.filter(|word| !word.is_empty()) {
        let meant = |name: &&str| word == ALL || matches(word.as_bytes(), name.as_bytes());
        let found: Vec<&str> = known.iter().copied().filter(meant).collect();
        let found = if found.is_empty() { vec![word] } else { found };
        for name in found {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
    }
    names
}

/// Whether a word is a pattern.
pub(super) fn has_pattern(word: &str) -> bool {
    word.contains(['*', '?'])
}

/// Whether a pattern matches the whole name: `*` matches any characters, `?` one character. Takes time
/// proportional to the product of the lengths at most, because only the last `*` is retried.
pub(super) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut position) = (0, 0);
    let mut star = None;
    while position < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, position));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[position] => {
                at += 1;
                position += 1;
            }
            _ => match star {
                Some((stood, from)) => {
                    star = Some((stood, from + 1));
                    (at, position) = (stood + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Returns the word in `known` with the smallest edit distance to `word`, if the distance is small.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let wanted = plain(word);
    let allowed = (wanted.chars().count() / 3).max(1);
    known
        .into_iter()
        // Swapping two adjacent characters counts as one edit.
        .map(|candidate| (strsim::osa_distance(&wanted, &plain(candidate)), candidate))
        .filter(|(edits, candidate)| *edits <= allowed || plain(candidate).starts_with(&wanted))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 4] = ["gsm8k", "svamp", "hotpotqa", "strategyqa"];

    fn expand(text: &str) -> Vec<String> {
        expand_names([text], &KNOWN)
    }

    #[test]
    fn lists_hold_names_patterns_and_all() {
        assert_eq!(expand("gsm8k, svamp"), ["gsm8k", "svamp"]);
        assert_eq!(expand(" gsm* "), ["gsm8k"]);
        assert_eq!(expand("*qa"), ["hotpotqa", "strategyqa"]);
        assert_eq!(expand("all"), KNOWN);
        assert_eq!(expand("svamp,*,gsm8k"), ["svamp", "gsm8k", "hotpotqa", "strategyqa"]);
        assert_eq!(expand("gsm9*,,nothing"), ["gsm9*", "nothing"]);
        assert!(expand(" , ").is_empty());
    }

    #[test]
    fn patterns_match_whole_names() {
        let cases = [
            ("gsm8k", "gsm8k", true),
            ("gsm", "gsm8k", false),
            ("g*k", "gsm8k", true),
            ("g?m8k", "gsm8k", true),
            ("*a*b*c", "xaxbxbxc", true),
            ("*a*b*c", "xaxbxbx", false),
            ("?", "", false),
            ("**", "", true),
        ];
        for (pattern, name, matched) in cases {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), matched, "{pattern} {name}");
        }
    }

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let known = ["tasks", "formulation", "time_limit", "max_new_tokens"];
        assert_eq!(nearest("taks", known), Some("tasks"));
        assert_eq!(nearest("time-limits", known), Some("time_limit"));
        assert_eq!(nearest("max", known), Some("max_new_tokens"));
        assert_eq!(nearest("colour", known), None);
    }

    #[test]
    fn swapped_letters_are_one_edit() {
        assert_eq!(nearest("svq", ["sqvx", "sqv", "sql"]), Some("sqv"));
        assert_eq!(nearest("kitten", ["sitting"]), None);
    }
}
