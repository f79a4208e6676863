//! Names of models on the hub: `owner/name`, or `owner/name/file.gguf` for a GGUF file, optionally followed
//! by `@` and a branch, tag or commit. The default is `main`. Data sets have an id and a revision, too.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use lumos_http::AccessPolicy;

/// Default branch.
const MAIN: &str = "main";
/// Maximum length of an owner's or model's name on the hub.
const LONGEST: usize = 96;
/// Maximum length of a file name on common file systems.
const LONGEST_FILE: usize = 255;

/// What a repository of the hub contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RepositoryKind {
    /// A model.
    Model,
    /// A data set.
    DataSet,
}

impl RepositoryKind {
    /// Word of the hub's interface and of the cache.
    pub(super) fn plural(self) -> &'static str {
        match self {
            Self::Model => "models",
            Self::DataSet => "datasets",
        }
    }

    /// Start of the path of a repository's pages and files.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Model => "",
            Self::DataSet => "datasets/",
        }
    }
}

impl fmt::Display for RepositoryKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Model => "model",
            Self::DataSet => "data set",
        })
    }
}

/// Name of a model or data set on the hub.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HubName {
    kind: RepositoryKind,
    id: String,
    /// GGUF file, if one is named.
    file: Option<String>,
    revision: String,
}

impl HubName {
    /// Parses a path as a hub name. Returns `None` if it is not a valid hub name, or if the path exists on this host and
    /// `access` allows it. Whether another path exists is not checked, because the choice would reveal it.
    pub fn of_path(path: &Path, access: &AccessPolicy) -> Option<Self> {
        let name = path.to_str()?.parse().ok()?;
        let is_local = access.check_path(path).is_ok() && path.exists();
        (!is_local).then_some(name)
    }

    /// Returns the name of a data set: `owner/name`, at a branch, tag or commit. Returns `None` if one of them is not
    /// valid.
    pub fn data_set(id: &str, revision: Option<&str>) -> Option<Self> {
        let name: Self = format!("{id}@{}", revision.unwrap_or(MAIN)).parse().ok()?;
        name.file.is_none().then_some(Self { kind: RepositoryKind::DataSet, ..name })
    }

    /// What the repository contains.
    pub fn kind(&self) -> RepositoryKind {
        self.kind
    }

    /// `owner/name`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// GGUF file, if one is named.
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// Branch, tag or commit.
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// Commit, if the revision is one.
    pub fn commit(&self) -> Option<&str> {
        is_commit(&self.revision).then_some(self.revision.as_str())
    }

    /// Returns the same model at a commit.
    #[must_use]
    pub fn at(&self, commit: &str) -> Self {
        Self { revision: commit.to_owned(), ..self.clone() }
    }
}

impl FromStr for HubName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (path, revision) = text.split_once('@').unwrap_or((text, MAIN));
        let mut parts = path.split('/');
        let (owner, name) = parts.next().zip(parts.next()).ok_or(())?;
        let file = parts.next();
        // The revision becomes a path below the cache.
        let is_revision = revision.split('/').all(|word| is_word(word, LONGEST));
        let is_id = is_word(owner, LONGEST) && is_word(name, LONGEST);
        if is_id && is_revision && file.is_none_or(is_gguf) && parts.next().is_none() {
            let (id, file) = (format!("{owner}/{name}"), file.map(str::to_owned));
            Ok(Self { kind: RepositoryKind::Model, id, file, revision: revision.to_owned() })
        } else {
            Err(())
        }
    }
}

/// Whether a string is a valid component of a name, and of a path below the cache.
fn is_word(word: &str, longest: usize) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    word.len() <= longest
        && word.bytes().all(known)
        && word.bytes().any(|byte| byte.is_ascii_alphanumeric())
        && !word.starts_with(['-', '.'])
        && !word.contains("..")
}

/// Whether a name is that of a GGUF file directly in the folder.
pub(super) fn is_gguf(name: &str) -> bool {
    is_word(name, LONGEST_FILE) && name.ends_with(".gguf")
}

/// Whether a name is that of a file in a data set, perhaps in folders.
pub(super) fn is_data_file(name: &str) -> bool {
    name.split('/').all(|part| is_word(part, LONGEST_FILE))
}

impl fmt::Display for HubName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.iter().map(|file| format!("/{file}")).collect::<String>();
        write!(formatter, "{}{}{file}@{}", self.kind.path(), self.id, self.revision)
    }
}

/// Whether a revision is a commit, which is immutable.
pub(super) fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && is_hex(revision)
}

/// Whether a string is lower-case hexadecimal, as the hub writes it.
pub(super) fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

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
            ("org/model/llama-Q4_K_M.gguf", "org/model/llama-Q4_K_M.gguf@main"),
            ("org/model/a.gguf@v1", "org/model/a.gguf@v1"),
        ] {
            assert_eq!(text.parse::<HubName>().unwrap().to_string(), shown);
        }
        let name: HubName = "org/model".parse().unwrap();
        assert_eq!(name.commit(), None);
        assert_eq!(name.at(commit).commit(), Some(commit));
        let data = HubName::data_set("org/data", None).unwrap();
        assert_eq!(
            (data.to_string(), data.kind()),
            ("datasets/org/data@main".to_owned(), RepositoryKind::DataSet)
        );
        assert_eq!(HubName::data_set("org/data", Some(commit)).unwrap().commit(), Some(commit));
        for (id, revision) in
            [("data", None), ("org/data/a.gguf", None), ("org/data@v1", None), ("org/data", Some("../x"))]
        {
            assert_eq!(HubName::data_set(id, revision), None, "{id}");
        }
        for path in [
            "model",
            "/org/model",
            "./model",
            "../model",
            "a/b/c",
            "a/b/.gguf",
            "a/b/../c.gguf",
            "a/b/c/d.gguf",
            "a/b/c.gguf/",
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
        let (here, anything) = (Path::new("src/hub"), AccessPolicy::default());
        assert!(here.exists() && HubName::of_path(here, &anything).is_none());
        assert!(HubName::of_path(Path::new("org/model"), &anything).is_some());
        let restricted = |paths: &[PathBuf]| AccessPolicy::only(&[], paths).unwrap();
        assert!(HubName::of_path(here, &restricted(&["src".into()])).is_none());
        assert!(HubName::of_path(here, &restricted(&[])).is_some());
    }

    proptest! {
        #[test]
        fn data_files_stay_in_their_folder(name in "[a-z./@~\\\\ -]{0,40}|[a-z.]{1,9}/[a-z./]{1,9}") {
            if is_data_file(&name) {
                let mut parts = name.split('/');
                prop_assert!(parts.all(|part| !part.is_empty() && !part.starts_with('.') && !part.contains('\\')));
            }
        }

        #[test]
        fn names_never_leave_the_cache(text in "[a-z./@~\\\\-]{1,40}|[a-z./]{2,9}/[a-z./]{1,9}/[a-z./]{0,9}\\.gguf") {
            if let Ok(name) = text.parse::<HubName>() {
                for part in name.id().split('/').chain(name.file()).chain(name.revision().split('/')) {
                    prop_assert!(!part.is_empty() && !part.starts_with('.') && !part.contains('\\'));
                }
            }
        }
    }
}
