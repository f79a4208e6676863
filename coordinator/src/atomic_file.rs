//! Atomic writes of files and folders: a reader sees the old content or the complete new one, never a part.
//!
//! [`write_whole`] writes a file to a folder that only lumos writes to, such as a run's. [`FolderDraft`] writes a folder,
//! anywhere. [`remove_left_behind`] deletes the temporary files of processes that were killed while writing.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes a file through a temporary file in the same folder and renames it. After a crash at any moment the
/// path holds either its previous content or all of the new content. Removes all temporary files that killed
/// processes left in that folder ([`remove_left_behind`]), so it must be one that only lumos writes to.
pub fn write_whole(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let folder = above(path).unwrap_or(Path::new("."));
    let temporary = temporary_beside(path, "")?;
    fs::create_dir_all(folder)?;
    let written = (|| {
        let mut out = BufWriter::with_capacity(1 << 16, create_locked(&temporary)?);
        fill(&mut out)?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
    })();
    if let Err(error) = written.and_then(|()| fs::rename(&temporary, path)) {
        // Report the write error, not an error of the clean-up.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    // A leftover file that cannot be removed must not make the write fail.
    let _ = remove_left_behind(folder);
    sync_folder(folder)
}

/// Creates a folder and its missing parents. A new folder gets mode 0700 (less the umask), because it
/// contains prompts and replies; parents get the default mode.
pub fn create_private_folder(folder: &Path) -> io::Result<()> {
    if let Some(above) = folder.parent().filter(|above| !above.as_os_str().is_empty()) {
        fs::create_dir_all(above)?;
    }
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(folder) {
        Err(_) if folder.is_dir() => Ok(()),
        created => created,
    }
}

/// A new folder under a temporary name. It is removed on drop unless it was published.
pub struct FolderDraft {
    path: PathBuf,
    draft: PathBuf,
    /// Locked while the folder is written. `None` on systems that cannot open folders.
    _lock: Option<File>,
}

impl FolderDraft {
    /// Creates an empty folder that [`FolderDraft::publish`] moves to `path`.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn new(path: &Path) -> io::Result<Self> {
        let draft = temporary_beside(path, "")?;
        let above = above(path).unwrap_or(Path::new("."));
        fs::create_dir_all(above)?;
        // The other entries of that folder may be the user's.
        let _ = remove_drafts_of(path, above);
        if draft.exists() {
            fs::remove_dir_all(&draft)?;
        }
        fs::create_dir(&draft)?;
        let lock = File::open(&draft).ok().inspect(|folder| drop(folder.lock()));
        Ok(Self { path: path.to_owned(), draft, _lock: lock })
    }

    /// The folder to fill.
    pub fn folder(&self) -> &Path {
        &self.draft
    }

    /// Moves the folder to its path. A folder there is removed with its content.
    ///
    /// # Errors
    /// If a folder cannot be moved or removed.
    pub fn publish(self) -> io::Result<()> {
        sync_folder(&self.draft)?;
        if self.path.exists() {
            let old = temporary_beside(&self.path, ".old")?;
            fs::rename(&self.path, &old)?;
            fs::rename(&self.draft, &self.path)?;
            fs::remove_dir_all(&old)?;
        } else {
            fs::rename(&self.draft, &self.path)?;
        }
        above(&self.path).map_or(Ok(()), sync_folder)
    }
}

impl Drop for FolderDraft {
    fn drop(&mut self) {
        // Gone if it was published.
        let _ = fs::remove_dir_all(&self.draft);
    }
}

/// Returns the path `NAME[SUFFIX].PID.tmp` next to a path.
fn temporary_beside(path: &Path, suffix: &str) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::other("the path has no file name"))?;
    let mut temporary = name.to_owned();
    temporary.push(format!("{suffix}.{}.tmp", std::process::id()));
    Ok(path.with_file_name(temporary))
}

fn above(path: &Path) -> Option<&Path> {
    path.parent().filter(|above| !above.as_os_str().is_empty())
}

/// Creates a temporary file and locks it while it is written, so that `remove_left_behind` does not delete
/// it.
fn create_locked(path: &Path) -> io::Result<File> {
    loop {
        let file = File::create(path)?;
        // On a file system without locks, `remove_left_behind` removes nothing either.
        let _ = file.lock();
        // Another process may remove the file between its creation and its lock.
        if path.exists() {
            return Ok(file);
        }
    }
}

/// Removes temporary files and folders (`NAME.PID.tmp`) of processes that were killed while writing to a folder
/// that only lumos writes to.
///
/// # Errors
/// If the folder cannot be read or a file cannot be removed.
pub fn remove_left_behind(folder: &Path) -> io::Result<()> {
    remove_temporary(folder, |name| !name.is_empty())
}

/// Removes the drafts of one path (`NAME.PID.tmp` and `NAME.old.PID.tmp`) from the folder above it.
fn remove_drafts_of(path: &Path, above: &Path) -> io::Result<()> {
    let Some(own) = path.file_name().and_then(|name| name.to_str()) else { return Ok(()) };
    remove_temporary(above, |name| name == own || name.strip_suffix(".old") == Some(own))
}

/// Removes unlocked entries `NAME.PID.tmp` whose `NAME` is accepted.
fn remove_temporary(folder: &Path, accepts: impl Fn(&str) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let process = name.strip_suffix(".tmp").and_then(|name| name.rsplit_once('.'));
        let ours = process.is_some_and(|(name, process)| {
            accepts(name) && !process.is_empty() && process.bytes().all(|digit| digit.is_ascii_digit())
        });
        if ours
            && let Ok(file) = File::open(&path)
            && file.try_lock().is_ok()
        {
            if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }?;
        }
    }
    Ok(())
}

/// Syncs a folder, so that a rename in it survives a power failure. Does nothing on systems other than Unix.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_private_folder_is_its_owner_s_and_one_that_is_there_stays_as_it_is() {
        use std::os::unix::fs::PermissionsExt;

        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let folder = tempfile::tempdir().unwrap();
        let private = folder.path().join("run/checkpoint");
        create_private_folder(&private).unwrap();
        assert_eq!(mode(&private) & 0o077, 0);
        assert_ne!(mode(private.parent().unwrap()) & 0o055, 0, "a run's folder is open to readers");
        fs::set_permissions(&private, fs::Permissions::from_mode(0o750)).unwrap();
        create_private_folder(&private).unwrap();
        assert_eq!(mode(&private), 0o750);
        fs::write(folder.path().join("file"), "").unwrap();
        assert!(create_private_folder(&folder.path().join("file")).is_err());
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_is_being_written_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["results_1.json.4242.tmp", "manifest.json.17.tmp", "notes.tmp", "a.b.tmp"] {
            fs::write(path(name), b"half").unwrap();
        }
        let written = create_locked(&path("report.md.99.tmp")).unwrap();
        write_whole(&path("current"), |out| out.write_all(b"x")).unwrap();
        let names = || {
            let entries = fs::read_dir(folder.path()).unwrap();
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        assert_eq!(names(), ["a.b.tmp", "current", "notes.tmp", "report.md.99.tmp"]);
        drop(written);
        // A process started by another test also holds the lock between its fork and its exec.
        let deadline = Instant::now() + Duration::from_secs(60);
        while path("report.md.99.tmp").exists() && Instant::now() < deadline {
            remove_left_behind(folder.path()).unwrap();
        }
        assert_eq!(names(), ["a.b.tmp", "current", "notes.tmp"]);
    }

    #[test]
    fn a_folder_is_replaced_whole_and_a_draft_that_is_dropped_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report");
        for name in ["first", "second"] {
            let draft = FolderDraft::new(&path).unwrap();
            fs::write(draft.folder().join(name), name).unwrap();
            draft.publish().unwrap();
        }
        // Left by processes that were killed.
        fs::create_dir_all(folder.path().join("report.old.17.tmp/data")).unwrap();
        fs::create_dir_all(folder.path().join("report.18.tmp/data")).unwrap();
        drop(FolderDraft::new(&path).unwrap());
        let names = |folder: &Path| -> Vec<_> {
            fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect()
        };
        assert_eq!(
            (names(folder.path()), names(&path)),
            (vec!["report".to_owned()], vec!["second".to_owned()])
        );
    }

    #[test]
    fn a_draft_leaves_the_files_of_others_next_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let foreign = ["dump.20261123.tmp", "report.html.17.tmp", "my-report.17.tmp", "report.older.17.tmp"];
        for name in foreign {
            fs::write(path(name), b"data").unwrap();
        }
        fs::create_dir_all(path("backup.20261123.tmp/data")).unwrap();
        fs::create_dir(path("report.17.tmp")).unwrap();
        FolderDraft::new(&path("report")).unwrap().publish().unwrap();
        assert!(foreign.iter().all(|name| path(name).is_file()), "files of other programs stay");
        assert!(path("backup.20261123.tmp/data").is_dir() && path("report").is_dir());
        assert!(!path("report.17.tmp").exists());
    }

    #[test]
    fn a_failed_write_leaves_the_old_content_and_no_litter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("inner/file");
        write_whole(&path, |out| out.write_all(b"old")).unwrap();
        let failed = write_whole(&path, |out| {
            out.write_all(b"new")?;
            Err(io::Error::other("torn"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "torn");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}
