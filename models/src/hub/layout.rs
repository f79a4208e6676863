//! Paths of the cache, in the layout of Hugging Face's tools, so that all of them share downloads
//! (<https://huggingface.co/docs/huggingface_hub/guides/manage-cache>): contents by hash in `blobs`, links to
//! them in `snapshots/<commit>`, and commits of branches in `refs`.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use lumos_engine::shard_names;

use super::listing::INDEX_SUFFIX;
use super::name::HubName;

/// Cache folders of one model or data set.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    cache: PathBuf,
    /// `models--owner--name` or `datasets--owner--name`.
    folder: String,
}

impl Layout {
    pub(super) fn new(cache: &Path, name: &HubName) -> Self {
        let folder = format!("{}--{}", name.kind().plural(), name.id().replace('/', "--"));
        Self { cache: cache.to_owned(), folder }
    }

    fn root(&self) -> PathBuf {
        self.cache.join(&self.folder)
    }

    /// Folder of a commit's files, as loaders read it.
    pub(super) fn snapshot(&self, commit: &str) -> PathBuf {
        self.root().join("snapshots").join(commit)
    }

    /// Path of a file's content.
    pub(super) fn blob(&self, etag: &str) -> PathBuf {
        self.root().join("blobs").join(etag)
    }

    /// Path of a partially downloaded content.
    pub(super) fn partial(&self, etag: &str) -> PathBuf {
        self.root().join("blobs").join(format!("{etag}.incomplete"))
    }

    /// Path of the lock that is held while a content is downloaded.
    pub(super) fn lock(&self, etag: &str) -> PathBuf {
        self.cache.join(".locks").join(&self.folder).join(format!("{etag}.lock"))
    }

    /// Path of the list of all files of a commit that the engine needs.
    fn list(&self, commit: &str) -> PathBuf {
        self.cache.join(".locks").join(&self.folder).join(format!("{commit}.lumos"))
    }

    fn reference(&self, revision: &str) -> PathBuf {
        self.root().join("refs").join(revision)
    }

    /// Records the commit of a branch or tag, if the cache can be written.
    pub(super) fn note(&self, revision: &str, commit: &str) {
        if self.noted(revision).as_deref() != Some(commit) {
            record(&self.reference(revision), commit);
        }
    }

    /// Returns the recorded commit of a branch or tag.
    pub(super) fn noted(&self, revision: &str) -> Option<String> {
        let commit = fs::read_to_string(self.reference(revision)).ok()?;
        Some(commit.trim().to_owned()).filter(|commit| super::name::is_commit(commit))
    }

    /// Links a content into a commit's folder. The file may be in folders within it.
    pub(super) fn link(&self, commit: &str, file: &str, etag: &str) -> io::Result<()> {
        let link = self.snapshot(commit).join(file);
        if let Some(folder) = link.parent() {
            fs::create_dir_all(folder)?;
        }
        // From the link's folder to that of the contents.
        let up = "../".repeat(2 + file.matches('/').count());
        let target = PathBuf::from(format!("{up}blobs/{etag}"));
        match place(&self.blob(etag), &target, &link) {
            // Another process created the link first, or an old link is dangling.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && !link.exists() => {
                fs::remove_file(&link)?;
                place(&self.blob(etag), &target, &link)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            placed => placed,
        }
    }

    /// Records that all files of a commit are downloaded, if the cache can be written.
    pub(super) fn complete(&self, commit: &str, files: &[String]) {
        record(&self.list(commit), &files.join("\n"));
    }

    /// Returns the commit's folder if it was recorded as complete, and all of its recorded files and the shards of its
    /// index exist.
    pub(super) fn completed(&self, commit: &str) -> Option<PathBuf> {
        let files = fs::read_to_string(self.list(commit)).ok()?;
        let folder = self.snapshot(commit);
        let exists = |file: &str| {
            folder.join(file).is_file() && (!file.ends_with(INDEX_SUFFIX) || has_shards(&folder, file))
        };
        files.lines().all(exists).then_some(folder)
    }

    /// Returns the commit's folder if it contains a file.
    pub(super) fn has(&self, commit: &str, file: &str) -> Option<PathBuf> {
        let folder = self.snapshot(commit);
        folder.join(file).is_file().then_some(folder)
    }

    /// Returns the commit's folder if it contains the files that the engine needs. Another tool may have
    /// created it.
    pub(super) fn usable(&self, commit: &str) -> Option<PathBuf> {
        let folder = self.snapshot(commit);
        let has = |file: &str| folder.join(file).is_file();
        let tokenizer = has("tokenizer.json") || has("tokenizer.model");
        let weights = ["model.safetensors", "pytorch_model.bin"]
            .into_iter()
            .any(|file| has(file) || has_shards(&folder, &format!("{file}{INDEX_SUFFIX}")));
        let adapter =
            has("adapter_config.json") && (has("adapter_model.safetensors") || has("adapter_model.bin"));
        ((has("config.json") && tokenizer && weights) || adapter).then_some(folder)
    }
}

/// Whether a folder contains the index, and the shards that it names.
fn has_shards(folder: &Path, index: &str) -> bool {
    let shards = shard_names(&folder.join(index));
    shards.is_ok_and(|shards| shards.iter().all(|shard| folder.join(shard).is_file()))
}

/// Writes a small file that saves later requests. Failures are ignored, because a read-only cache may be complete.
fn record(path: &Path, text: &str) {
    if let Err(error) = write(path, text) {
        tracing::debug!(path = %path.display(), %error, "failed to write to the hub cache");
    }
}

/// Writes a small file atomically.
fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    // A unique name, because several threads and processes may write the file at the same time.
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let count = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let new = path.with_added_extension(format!("{}-{count}.new", std::process::id()));
    fs::write(&new, text)?;
    fs::rename(&new, path)
}

#[cfg(unix)]
fn place(_blob: &Path, target: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(not(unix))]
fn place(blob: &Path, _target: &Path, link: &Path) -> io::Result<()> {
    // Symbolic links need privileges on Windows that most users do not have.
    if link.exists() {
        return Err(ErrorKind::AlreadyExists.into());
    }
    fs::hard_link(blob, link).or_else(|_| fs::copy(blob, link).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn the_layout_is_hugging_face_s() {
        let cache = tempfile::tempdir().unwrap();
        let layout = Layout::new(cache.path(), &"org/model".parse().unwrap());
        fs::create_dir_all(layout.blob("ab").parent().unwrap()).unwrap();
        fs::write(layout.blob("ab"), "{}").unwrap();
        for _ in 0..2 {
            layout.link(COMMIT, "config.json", "ab").unwrap();
        }
        let file = cache.path().join("models--org--model/snapshots").join(COMMIT).join("config.json");
        assert_eq!(fs::read_to_string(&file).unwrap(), "{}");
        let data = Layout::new(cache.path(), &HubName::data_set("org/model", None).unwrap());
        fs::create_dir_all(data.blob("ab").parent().unwrap()).unwrap();
        fs::write(data.blob("ab"), "[]").unwrap();
        data.link(COMMIT, "data/part/test.json", "ab").unwrap();
        let nested =
            cache.path().join("datasets--org--model/snapshots").join(COMMIT).join("data/part/test.json");
        assert_eq!(fs::read_to_string(nested).unwrap(), "[]");
        layout.note("refs/pr/1", COMMIT);
        assert_eq!(layout.noted("refs/pr/1").as_deref(), Some(COMMIT));
        assert_eq!(layout.noted("main"), None);
        layout.complete(COMMIT, &["config.json".to_owned()]);
        assert_eq!(layout.completed(COMMIT), Some(layout.snapshot(COMMIT)));
        // A dangling link is replaced.
        fs::remove_file(layout.blob("ab")).unwrap();
        assert_eq!(layout.completed(COMMIT), None);
        fs::write(layout.blob("cd"), "[]").unwrap();
        layout.link(COMMIT, "config.json", "cd").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "[]");
    }

    #[test]
    fn what_other_tools_downloaded_is_usable_with_all_its_shards() {
        let cache = tempfile::tempdir().unwrap();
        let layout = Layout::new(cache.path(), &"org/model".parse().unwrap());
        let folder = layout.snapshot(COMMIT);
        fs::create_dir_all(&folder).unwrap();
        for file in ["config.json", "tokenizer.model", "a.safetensors"] {
            fs::write(folder.join(file), "").unwrap();
        }
        let index = r#"{"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}"#;
        fs::write(folder.join("model.safetensors.index.json"), index).unwrap();
        assert_eq!(layout.usable(COMMIT), None);
        fs::write(folder.join("b.safetensors"), "").unwrap();
        assert_eq!(layout.usable(COMMIT).as_deref(), Some(&*folder));
        // An index cannot name files elsewhere.
        fs::rename(folder.join("b.safetensors"), folder.with_file_name("b.safetensors")).unwrap();
        let index = index.replace("b.safetensors", "../b.safetensors");
        fs::write(folder.join("model.safetensors.index.json"), index).unwrap();
        assert!(folder.join("../b.safetensors").is_file());
        assert_eq!(layout.usable(COMMIT), None);
        let adapter = layout.snapshot("ad");
        fs::create_dir_all(&adapter).unwrap();
        fs::write(adapter.join("adapter_config.json"), "").unwrap();
        assert_eq!(layout.usable("ad"), None);
        fs::write(adapter.join("adapter_model.bin"), "").unwrap();
        assert_eq!(layout.usable("ad"), Some(adapter));
    }
}
