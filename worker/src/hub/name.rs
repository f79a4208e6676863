//! Names of models on the hub: `owner/name`, with a branch, tag or commit after an `@` where not `main`.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// The branch that is meant where none is named.
const MAIN: &str = "main";
/// The longest name of an owner or a model that the hub allows.
const LONGEST: usize = 96;

/// A model of the hub.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HubName {
    id: String,
    revision: String,
}

impl HubName {
    /// What a path names on the hub: nothing where something is there on this host, or where it can only be a path.
    pub fn of_path(path: &Path) -> Option<Self> {
        let text = path.to_str()?;
        let name = text.parse().ok()?;
        (!path.exists()).then_some(name)
    }

    /// `owner/name`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// A branch, a tag, or a commit.
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// The commit, where the revision is one.
    pub fn commit(&self) -> Option<&str> {
        is_commit(&self.revision).then_some(self.revision.as_str())
    }

    /// The same model at a commit.
    #[must_use]
    pub fn at(&self, commit: &str) -> Self {
        Self { id: self.id.clone(), revision: commit.to_owned() }
    }
}

impl FromStr for HubName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (id, revision) = text.split_once('@').unwrap_or((text, MAIN));
        let (owner, name) = id.split_once('/').ok_or(())?;
        let is_word = |word: &str| {
            let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            word.len() <= LONGEST
                && word.bytes().all(known)
                && word.bytes().any(|byte| byte.is_ascii_alphanumeric())
                && !word.starts_with(['-', '.'])
                && !word.contains("..")
        };
        // A revision becomes a path below the cache.
        let is_revision = revision.split('/').all(is_word);
        if is_word(owner) && is_word(name) && is_revision {
            Ok(Self { id: id.to_owned(), revision: revision.to_owned() })
        } else {
            Err(())
        }
    }
}

impl fmt::Display for HubName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}@{}", self.id, self.revision)
    }
}

/// Whether a revision is a commit, which never changes.
pub(super) fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && is_hex(revision)
}

/// Whether a text is hexadecimal as the hub writes it.
pub(super) fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_have_an_owner_and_perhaps_a_revision() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        let pinned = format!("org/model@{commit}");
        for (text, shown) in [
            ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "TinyLlama/TinyLlama-1.1B-Chat-v1.0@main"),
            ("org/model@refs/pr/1", "org/model@refs/pr/1"),
            (pinned.as_str(), pinned.as_str()),
        ] {
            assert_eq!(text.parse::<HubName>().unwrap().to_string(), shown);
        }
        let name: HubName = "org/model".parse().unwrap();
        assert_eq!(name.commit(), None);
        assert_eq!(name.at(commit).commit(), Some(commit));
        for path in [
            "model",
            "/org/model",
            "./model",
            "../model",
            "a/b/c",
            "~/model",
            "org/mo del",
            "org/",
            "a/..",
            "a/b@../../c",
            "a/b@",
            "a/b@x//y",
            "a/b@x/.git",
        ] {
            assert!(path.parse::<HubName>().is_err(), "{path}");
        }
    }

    #[test]
    fn what_is_here_is_no_model_of_the_hub() {
        // Tests run in the crate's folder.
        assert!(Path::new("src/hub").exists() && HubName::of_path(Path::new("src/hub")).is_none());
        assert!(HubName::of_path(Path::new("org/model")).is_some());
    }

    proptest! {
        #[test]
        fn names_never_leave_the_cache(text in "[a-z./@~\\\\-]{1,40}") {
            if let Ok(name) = text.parse::<HubName>() {
                for part in name.id().split('/').chain(name.revision().split('/')) {
                    prop_assert!(!part.is_empty() && !part.starts_with('.') && !part.contains('\\'));
                }
            }
        }
    }
}
