//! Text similarity for the reward: thefuzz 0.19's token set ratio on Python's difflib.

use std::collections::{BTreeSet, HashMap};

use lumos_tasks::python::is_space;

/// The token set ratio of two texts, from 0 to 100 (`thefuzz.fuzz.token_set_ratio` of version 0.19 without
/// python-Levenshtein).
pub(super) fn token_set_ratio(left: &str, right: &str) -> u32 {
    let (left, right) = (processed(left), processed(right));
    let (left, right) = (tokens(&left), tokens(&right));
    if left.is_empty() || right.is_empty() {
        return 0;
    }
    let joined = |tokens: &mut dyn Iterator<Item = &&str>| tokens.copied().collect::<Vec<_>>().join(" ");
    let both = joined(&mut left.intersection(&right));
    let with_rest = |rest: String| match (both.is_empty(), rest.is_empty()) {
        (true, _) => rest,
        (_, true) => both.clone(),
        _ => format!("{both} {rest}"),
    };
    let left_all = with_rest(joined(&mut left.difference(&right)));
    let right_all = with_rest(joined(&mut right.difference(&left)));
    ratio(&both, &left_all).max(ratio(&both, &right_all)).max(ratio(&left_all, &right_all))
}

/// A text prepared for comparison: characters from U+0080 to U+00FF are removed, all characters other than
/// letters, digits and underscores become blanks, and the rest is in lower case.
fn processed(text: &str) -> String {
    text.chars()
        .filter(|character| !matches!(character, '\u{80}'..='\u{ff}'))
        .map(|character| if character.is_alphanumeric() || character == '_' { character } else { ' ' })
        .flat_map(char::to_lowercase)
        .collect()
}

fn tokens(text: &str) -> BTreeSet<&str> {
    text.split(is_space).filter(|token| !token.is_empty()).collect()
}

/// difflib's ratio in percent, rounded, with ties to even; equal texts give 100.
fn ratio(left: &str, right: &str) -> u32 {
    if left == right {
        return 100;
    }
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let matches = Matcher::new(&left, &right).matching() as f64;
    (100.0 * (2.0 * matches / (left.len() + right.len()) as f64)).round_ties_even() as u32
}

/// In sequences of at least this length, popular characters are ignored (difflib's `autojunk`).
const LONG: usize = 200;

/// `difflib.SequenceMatcher(None, left, right)`.
struct Matcher<'a> {
    left: &'a [char],
    right: &'a [char],
    /// The positions of each character in the right text.
    positions: HashMap<char, Vec<usize>>,
}

impl<'a> Matcher<'a> {
    fn new(left: &'a [char], right: &'a [char]) -> Self {
        let mut positions: HashMap<char, Vec<usize>> = HashMap::new();
        for (position, character) in right.iter().enumerate() {
            positions.entry(*character).or_default().push(position);
        }
        if right.len() >= LONG {
            let most = right.len() / 100 + 1;
            positions.retain(|_, positions| positions.len() <= most);
        }
        Self { left, right, positions }
    }

    /// Number of characters in matching blocks.
    fn matching(&self) -> usize {
        let mut matched = 0;
        let mut waiting = vec![(0, self.left.len(), 0, self.right.len())];
        while let Some((left, left_end, right, right_end)) = waiting.pop() {
            let (at_left, at_right, size) = self.longest(left, left_end, right, right_end);
            if size > 0 {
                matched += size;
                if left < at_left && right < at_right {
                    waiting.push((left, at_left, right, at_right));
                }
                if at_left + size < left_end && at_right + size < right_end {
                    waiting.push((at_left + size, left_end, at_right + size, right_end));
                }
            }
        }
        matched
    }

    /// The longest block of equal characters, the first if there are several, then extended by popular
    /// characters.
    fn longest(&self, left: usize, left_end: usize, right: usize, right_end: usize) -> (usize, usize, usize) {
        let mut best = (left, right, 0);
        let mut lengths: HashMap<usize, usize> = HashMap::new();
        for (at_left, character) in self.left.iter().enumerate().take(left_end).skip(left) {
            let mut longer = HashMap::new();
            for at_right in self.positions.get(character).into_iter().flatten().copied() {
                if at_right < right {
                    continue;
                }
                if at_right >= right_end {
                    break;
                }
                let before = at_right.checked_sub(1).and_then(|before| lengths.get(&before)).copied();
                let length = before.unwrap_or(0) + 1;
                longer.insert(at_right, length);
                if length > best.2 {
                    best = (at_left + 1 - length, at_right + 1 - length, length);
                }
            }
            lengths = longer;
        }
        let (mut at_left, mut at_right, mut size) = best;
        let equal = |at_left: usize, at_right: usize| self.left.get(at_left) == self.right.get(at_right);
        while at_left > left && at_right > right && equal(at_left - 1, at_right - 1) {
            (at_left, at_right, size) = (at_left - 1, at_right - 1, size + 1);
        }
        while at_left + size < left_end
            && at_right + size < right_end
            && equal(at_left + size, at_right + size)
        {
            size += 1;
        }
        (at_left, at_right, size)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_set_counts_and_not_the_order() {
        for (left, right, expected) in [
            ("('color', 'navy blue')", "navy blue", 100),
            ("multi/color", "Color multi", 100),
            ("navy", "navy blue", 100),
            ("tiger & co", "memory foam", 42),
            ("", "a", 0),
            ("é", "é", 0),
        ] {
            assert_eq!(token_set_ratio(left, right), expected, "{left} {right}");
        }
    }

    proptest! {
        #[test]
        fn a_ratio_is_a_percentage(left in ".{0,40}", right in ".{0,40}", word in "[a-z]{1,5}") {
            prop_assert!(token_set_ratio(&left, &right) <= 100);
            prop_assert_eq!(token_set_ratio(&format!("{left} {word}"), &word), 100);
        }
    }
}
