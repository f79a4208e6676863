//! Files that are there whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes a file through a temporary one beside it: after the rename, and after a crash at any moment, the name
/// holds either what it held before or all of the new content.
pub(crate) fn write_whole(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or_else(|| io::Error::other("a file needs a name"))?;
    fs::create_dir_all(folder)?;
    let mut temporary = name.to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = folder.join(temporary);
    let written = (|| {
        let mut out = BufWriter::with_capacity(1 << 16, create_locked(&temporary)?);
        fill(&mut out)?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
    })();
    if let Err(error) = written.and_then(|()| fs::rename(&temporary, path)) {
        // The error that brought us here is the one to report.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    // Files that a killed process left do not make the write fail.
    let _ = remove_left_behind(folder);
    sync_folder(folder)
}

/// Makes a folder, and those above it that are missing. The folder itself, where it is new, is its owner's alone (mode
/// 0700, less what the umask forbids): prompts and replies lie in it.
pub(crate) fn create_private_folder(folder: &Path) -> io::Result<()> {
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

/// Creates a temporary file that is locked while it is written, so that nobody takes it for left behind.
fn create_locked(path: &Path) -> io::Result<File> {
    loop {
        let file = File::create(path)?;
        // Where there are no locks nothing is ever removed either.
        let _ = file.lock();
        // Between its creation and its lock it may have been removed.
        if path.exists() {
            return Ok(file);
        }
    }
}

/// Removes temporary files (`NAME.PID.tmp`) of processes that were killed while they wrote into a folder.
///
/// # Errors
/// If the folder cannot be read or a file cannot be removed.
pub fn remove_left_behind(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let process = name.strip_suffix(".tmp").and_then(|name| name.rsplit_once('.'));
        let ours = process.is_some_and(|(name, process)| {
            !name.is_empty() && !process.is_empty() && process.bytes().all(|digit| digit.is_ascii_digit())
        });
        if ours
            && let Ok(file) = File::open(&path)
            && file.try_lock().is_ok()
        {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Makes a rename in a folder survive a power cut, where the system can.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
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
        // A process that another test starts holds the lock as well, between its fork and its exec.
        let deadline = Instant::now() + Duration::from_secs(60);
        while path("report.md.99.tmp").exists() && Instant::now() < deadline {
            remove_left_behind(folder.path()).unwrap();
        }
        assert_eq!(names(), ["a.b.tmp", "current", "notes.tmp"]);
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
