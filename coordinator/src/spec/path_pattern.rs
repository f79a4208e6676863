//! Finds the paths that match a pattern such as `checkpoints/*/planner`.
//!
//! `*` matches any characters and `?` one character within a name. Names that start with `.` only match a pattern that
//! starts with `.`. The paths are in natural order: `step-200` is before `step-1000`.

use std::cmp::Ordering;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::names::{has_pattern, matches};

/// Returns the existing paths that match a pattern relative to `folder`, in natural order.
///
/// # Errors
/// A message if the pattern is unsupported, a folder cannot be read, or more than `most` paths match.
pub(super) fn paths(pattern: &str, folder: &Path, most: usize) -> Result<Vec<PathBuf>, String> {
    let mut found = vec![if pattern.starts_with('/') { PathBuf::from("/") } else { folder.to_owned() }];
    for name in pattern.split('/').filter(|name| !name.is_empty()) {
        if name.contains("**") {
            return Err("`**` is unsupported; `*` matches within one folder".to_owned());
        }
        if !has_pattern(name) {
            found.iter_mut().for_each(|path| path.push(name));
            continue;
        }
        let mut next = Vec::new();
        for folder in &found {
            for name in names_in(folder, name)? {
                if next.len() == most {
                    return Err(format!("more than {most} paths match"));
                }
                next.push(folder.join(name));
            }
        }
        found = next;
    }
    found.retain(|path| path.exists());
    Ok(found)
}

/// Returns the names in a folder that match a pattern, in natural order. A path that is not a folder has none.
fn names_in(folder: &Path, pattern: &str) -> Result<Vec<String>, String> {
    let opened = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let failed = |error: std::io::Error| format!("{}: {error}", opened.display());
    let entries = match std::fs::read_dir(opened) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(failed(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let Ok(name) = entry.map_err(failed)?.file_name().into_string() else { continue };
        let is_hidden = name.starts_with('.') && !pattern.starts_with('.');
        if !is_hidden && matches(pattern.as_bytes(), name.as_bytes()) {
            names.push(name);
        }
    }
    names.sort_by(|one, other| natural(one, other));
    Ok(names)
}

/// Compares names with their numbers by value; equal numbers by their digits.
fn natural(one: &str, other: &str) -> Ordering {
    let (mut left, mut right) = (one, other);
    loop {
        let (text, number) = split_number(left);
        let (other_text, other_number) = split_number(right);
        let by_text = text.cmp(other_text);
        let value = |digits: &str| {
            let digits = digits.trim_start_matches('0');
            (digits.len(), digits.to_owned())
        };
        let order = by_text.then_with(|| value(number.0).cmp(&value(other_number.0)));
        if order != Ordering::Equal || number.0.is_empty() || other_number.0.is_empty() {
            return order.then_with(|| one.cmp(other));
        }
        (left, right) = (number.1, other_number.1);
    }
}

/// Splits a name into its text before the first number, and the digits of the number with the rest.
fn split_number(name: &str) -> (&str, (&str, &str)) {
    let digits = |character: char| character.is_ascii_digit();
    let start = name.find(digits).unwrap_or(name.len());
    let (text, rest) = name.split_at(start);
    let end = rest.find(|character| !digits(character)).unwrap_or(rest.len());
    (text, rest.split_at(end))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(folder: &Path, pattern: &str) -> Vec<String> {
        let paths = paths(pattern, folder, 100).unwrap();
        paths.iter().map(|path| path.strip_prefix(folder).unwrap().display().to_string()).collect()
    }

    #[test]
    fn patterns_match_in_every_component_and_in_natural_order() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["step-1000/plan", "step-200/plan", "step-200/ground", ".cache/plan", "final"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        std::fs::write(folder.path().join("README.md"), "").unwrap();
        let found = |pattern: &str| found(folder.path(), pattern);
        assert_eq!(found("*"), ["README.md", "final", "step-200", "step-1000"]);
        assert_eq!(found("step-*/plan"), ["step-200/plan", "step-1000/plan"]);
        assert_eq!(found("step-200/*"), ["step-200/ground", "step-200/plan"]);
        assert_eq!(found("./*/ground"), ["step-200/ground"]);
        assert_eq!(found(".*/plan"), [".cache/plan"]);
        assert_eq!(found("*/none"), Vec::<String>::new());
        assert_eq!(found("missing/*"), Vec::<String>::new());
        let error = paths("**/plan", folder.path(), 100).unwrap_err();
        assert!(error.contains("`**` is unsupported"), "{error}");
        assert_eq!(paths("*", folder.path(), 3).unwrap_err(), "more than 3 paths match");
        let absolute = format!("{}/fin*", folder.path().display());
        assert_eq!(paths(&absolute, Path::new("elsewhere"), 3).unwrap(), [folder.path().join("final")]);
    }

    proptest! {
        #[test]
        fn names_have_a_total_order(names in proptest::collection::vec("[a0-2]{0,5}", 3)) {
            let [one, two, three] = [&names[0], &names[1], &names[2]];
            prop_assert_eq!(natural(one, two), natural(two, one).reverse());
            prop_assert_eq!(natural(one, two) == Ordering::Equal, one == two);
            if natural(one, two) != Ordering::Greater && natural(two, three) != Ordering::Greater {
                prop_assert_ne!(natural(one, three), Ordering::Greater);
            }
        }

        #[test]
        fn numbers_are_ordered_by_value(one in 0u64..5000, two in 0u64..5000) {
            prop_assert_eq!(natural(&format!("step-{one}/a"), &format!("step-{two}/a")), one.cmp(&two));
        }
    }
}
