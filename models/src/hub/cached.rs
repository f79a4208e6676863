//! Lists the models in the cache of the hub.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::layout::Layout;
use super::name::{HubName, is_commit, is_gguf};

/// A revision of a model in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedModel {
    /// `owner/name`.
    pub id: String,
    /// Branch or tag under which it was downloaded, or its commit.
    pub revision: String,
    /// Folder that contains its files.
    pub folder: PathBuf,
    /// Total size of its files in bytes.
    pub bytes: u64,
    /// Whether the cache has all files that the engine needs.
    pub usable: bool,
}

/// Returns the models in a cache, sorted by name; empty if the cache does not exist. Folders that are not
/// models are skipped.
///
/// # Errors
/// If the cache cannot be read.
pub fn cached(cache: &Path) -> io::Result<Vec<CachedModel>> {
    let mut models = Vec::new();
    for name in names(cache)? {
        let Some(id) = name.strip_prefix("models--").map(|id| id.replacen("--", "/", 1)) else { continue };
        let Ok(hub_name) = id.parse::<HubName>() else { continue };
        let layout = Layout::new(cache, &hub_name);
        let root = cache.join(&name);
        let branches = names(&root.join("refs"))?;
        for commit in names(&root.join("snapshots"))?.into_iter().filter(|commit| is_commit(commit)) {
            let folder = layout.snapshot(&commit);
            let files = names(&folder)?;
            let is_branch = |branch: &&String| layout.noted(branch).as_deref() == Some(&*commit);
            models.push(CachedModel {
                usable: layout.usable(&commit).is_some() || files.iter().any(|file| is_gguf(file)),
                bytes: files
                    .iter()
                    .filter_map(|file| Some(fs::metadata(folder.join(file)).ok()?.len()))
                    .sum(),
                revision: branches.iter().find(is_branch).cloned().unwrap_or(commit),
                id: id.clone(),
                folder,
            });
        }
    }
    models.sort_by(|left, right| (&left.id, &left.revision).cmp(&(&right.id, &right.revision)));
    Ok(models)
}

/// The names in a folder, sorted; empty if the folder does not exist.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string());
    }
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
    const OTHER: &str = "1123456789abcdef0123456789abcdef01234567";

    #[test]
    fn models_are_listed_with_branch_size_and_whether_they_are_whole() {
        let cache = tempfile::tempdir().unwrap();
        assert_eq!(cached(&cache.path().join("none")).unwrap(), []);
        let write = |path: &str, content: &str| {
            let path = cache.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        for (file, content) in
            [("config.json", "{}"), ("tokenizer.json", "{}"), ("model.safetensors", "weights")]
        {
            write(&format!("models--org--whole/snapshots/{COMMIT}/{file}"), content);
        }
        write("models--org--whole/refs/main", COMMIT);
        write(&format!("models--org--whole/snapshots/{OTHER}/config.json"), "{}");
        write(&format!("models--org--quantized/snapshots/{COMMIT}/a.gguf"), "12345");
        write("datasets--org--data/refs/main", COMMIT);
        write("models--.hidden/refs/main", COMMIT);
        write("models--org--whole/snapshots/elsewhere/config.json", "{}");
        let found = cached(cache.path()).unwrap();
        let told: Vec<_> =
            found.iter().map(|model| (&*model.id, &*model.revision, model.bytes, model.usable)).collect();
        let expected = [
            ("org/quantized", COMMIT, 5, true),
            ("org/whole", OTHER, 2, false),
            ("org/whole", "main", 11, true),
        ];
        assert_eq!(told, expected);
    }
}
