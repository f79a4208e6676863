//! Short names of models and runs for tables.

use std::collections::{BTreeMap, HashMap, HashSet};

use thiserror::Error;

/// Names given with `--label NAME=TEXT`: a model's name, its last part, or a run's name, and the text shown instead.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(BTreeMap<String, String>);

/// A label that is not `NAME=TEXT`.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("invalid label `{0}`: expected <NAME=TEXT>, such as builtin:tiny=tiny")]
pub struct UnknownLabel(String);

impl Labels {
    /// Parses labels.
    ///
    /// # Errors
    /// The first one that is not `NAME=TEXT` with two non-empty parts.
    pub fn parse<S: AsRef<str>>(given: &[S]) -> Result<Self, UnknownLabel> {
        let label = |text: &S| {
            // A model's name may contain `=` itself, the text may not.
            let (name, shown) = text
                .as_ref()
                .rsplit_once('=')
                .filter(|(name, shown)| !name.is_empty() && !shown.trim().is_empty())?;
            Some((name.to_owned(), shown.trim().to_owned()))
        };
        given
            .iter()
            .map(|text| label(text).ok_or_else(|| UnknownLabel(text.as_ref().to_owned())))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Returns the text given for a name or for its last part.
    pub(crate) fn of(&self, name: &str) -> Option<&str> {
        self.0.get(name).or_else(|| self.0.get(parts(name).last()?.as_ref() as &str)).map(String::as_str)
    }
}

/// Returns the parts of a model's name that are separated by slashes, without the backend: `a/b/models/planner`. The
/// name of a built-in model is one part.
fn parts(name: &str) -> Vec<String> {
    let path = match name.split_once(':') {
        Some((backend, path)) if backend != "builtin" => path,
        _ => name,
    };
    let parts: Vec<String> =
        path.split(['/', '\\']).filter(|part| !part.is_empty()).map(str::to_owned).collect();
    if parts.is_empty() { vec![name.to_owned()] } else { parts }
}

/// Returns a short name for each name: the given label, otherwise the last part of its path, with as many of the parts
/// before it as are needed to tell different names apart. Distinct names without labels have distinct short names.
pub(crate) fn aliases(names: &[&str], given: &Labels) -> BTreeMap<String, String> {
    let mut names: Vec<&str> = names.to_vec();
    names.sort_unstable();
    names.dedup();
    let all: Vec<Vec<String>> = names.iter().map(|name| parts(name)).collect();
    let shortened = |parts: &[String], count: usize| parts[parts.len().saturating_sub(count)..].join("/");
    let labels: HashSet<&str> = names.iter().filter_map(|name| given.of(name)).collect();
    // The name without a label that ends with these parts; `None` if several do.
    let mut owners: HashMap<String, Option<usize>> = HashMap::new();
    for at in (0..names.len()).filter(|&at| given.of(names[at]).is_none()) {
        for count in 1..=all[at].len() {
            let end = shortened(&all[at], count);
            owners.entry(end).and_modify(|owner| *owner = None).or_insert(Some(at));
        }
    }
    let alias = |at: usize| {
        if let Some(label) = given.of(names[at]) {
            return label.to_owned();
        }
        let is_unique = |count: &usize| {
            let own = shortened(&all[at], *count);
            owners.get(&own) == Some(&Some(at)) && !labels.contains(own.as_str())
        };
        let count = (1..=all[at].len()).find(is_unique);
        // Names that differ only in their backend are shown in full.
        count.map_or_else(|| names[at].to_owned(), |count| shortened(&all[at], count))
    };
    names.iter().enumerate().map(|(at, name)| ((*name).to_owned(), alias(at))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn shown(names: &[&str], given: &[&str]) -> Vec<String> {
        let all = aliases(names, &Labels::parse(given).unwrap());
        names.iter().map(|name| all[*name].clone()).collect()
    }

    #[test]
    fn names_are_as_short_as_they_can_be() {
        assert_eq!(shown(&["builtin:tiny", "candle:/a/b/models/planner"], &[]), ["builtin:tiny", "planner"]);
        assert_eq!(shown(&["candle:owner/name"], &[]), ["name"]);
        assert_eq!(
            shown(&["candle:/old/planner", "candle:/new/planner"], &[]),
            ["old/planner", "new/planner"]
        );
        assert_eq!(shown(&["candle:planner", "script:planner"], &[]), ["candle:planner", "script:planner"]);
    }

    #[test]
    fn labels_come_first() {
        assert_eq!(
            shown(&["candle:/a/planner", "candle:/b/planner"], &["candle:/a/planner=before"]),
            ["before", "planner"]
        );
        assert_eq!(shown(&["candle:/a/planner"], &["planner=P"]), ["P"]);
        assert_eq!(shown(&["candle:/a/x", "candle:/b/y"], &["x=y"]), ["y", "b/y"]);
        assert_eq!(shown(&["candle:/a/lr=1"], &["candle:/a/lr=1=low"]), ["low"]);
        for wrong in ["planner", "=x", "x=", "x= "] {
            let told = Labels::parse(&[wrong]).unwrap_err().to_string();
            assert!(told.contains(wrong) && told.contains("NAME=TEXT"), "{told}");
        }
    }

    proptest! {
        #[test]
        fn distinct_names_have_distinct_short_names(names in proptest::collection::btree_set("(candle|script):(/?[ab]){1,4}", 1..8)) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let all = aliases(&names, &Labels::default());
            prop_assert_eq!(all.values().collect::<BTreeSet<_>>().len(), names.len(), "{:?}", all);
        }
    }
}
