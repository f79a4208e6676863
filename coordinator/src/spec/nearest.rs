//! Suggests the known word that is most similar to a mistyped one.

/// Returns the word in `known` with the smallest edit distance to `word`, if the distance is small.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let wanted = plain(word);
    let allowed = (wanted.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|candidate| (distance(&wanted, &plain(candidate)), candidate))
        .filter(|(edits, candidate)| *edits <= allowed || plain(candidate).starts_with(&wanted))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance in which swapping two adjacent characters counts as one edit.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (row, &from) in left.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, &to) in right.iter().enumerate() {
            let replaced = last[column] + usize::from(from != to);
            let mut best = replaced.min(last[column + 1] + 1).min(current[column] + 1);
            if row > 0 && column > 0 && from == right[column - 1] && left[row - 1] == to {
                best = best.min(before_last[column - 1] + 1);
            }
            current.push(best);
        }
        before_last = std::mem::replace(&mut last, current);
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(distance("gsm8k", "gms8k"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
