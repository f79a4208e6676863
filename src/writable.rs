//! Checks that results can be written, before anything is computed.

use std::io;
use std::path::Path;

use crate::exit::Failure;

/// Checks that files can be written in a folder, which may not exist yet. Leaves no files. `flag` is the flag
/// that selects a different folder, for the hint.
///
/// # Errors
/// If files cannot be written: the folder and the cause.
pub(crate) fn check_folder(folder: &Path, flag: Option<&str>) -> Result<(), Failure> {
    let refused = |cause: &dyn std::fmt::Display| {
        let hint = flag.map(|flag| format!("set a writable folder with {flag}"));
        Failure { hint, ..Failure::input(format!("cannot write to `{}`: {cause}", folder.display())) }
    };
    let existing = existing(folder).map_err(|error| refused(&error))?;
    if !existing.is_dir() {
        return Err(refused(&format!("`{}` is not a folder", existing.display())));
    }
    // The temporary file has no name, or its name is removed at once.
    tempfile::tempfile_in(existing).map(drop).map_err(|error| refused(&bare(error)))
}

/// Checks that a file can be created or overwritten. Leaves no files.
///
/// # Errors
/// If it cannot be written: the file and the cause.
pub(crate) fn check_file(file: &Path) -> Result<(), Failure> {
    let refused = |cause: &dyn std::fmt::Display| {
        Failure::input(format!("cannot write to `{}`: {cause}", file.display()))
    };
    if file.exists() {
        let opened = std::fs::OpenOptions::new().append(true).open(file);
        return opened.map(drop).map_err(|error| refused(&error));
    }
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        return Err(refused(&format!("folder not found: `{}`", folder.display())));
    }
    tempfile::tempfile_in(folder).map(drop).map_err(|error| refused(&bare(error)))
}

/// Returns the failure for a path that the manifest cannot contain, because it is JSON.
pub(crate) fn not_utf8(path: &Path) -> Failure {
    Failure::input(format!("the path `{}` is not UTF-8", path.display()))
}

/// Returns the folder, or its nearest existing parent.
fn existing(folder: &Path) -> io::Result<&Path> {
    for above in folder.ancestors().filter(|above| !above.as_os_str().is_empty()) {
        match above.symlink_metadata() {
            Ok(_) => return Ok(above),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Path::new("."))
}

/// Returns an error without the path of the temporary file.
fn bare(error: io::Error) -> io::Error {
    error.raw_os_error().map_or(error, io::Error::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_written_is_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        check_folder(folder.path(), None).unwrap();
        check_folder(&folder.path().join("runs/mine"), None).unwrap();
        check_folder(Path::new("some/folder/here"), None).unwrap();
        check_file(&folder.path().join("cases.jsonl")).unwrap();
        check_file(Path::new("cases.jsonl")).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        std::fs::write(folder.path().join("old"), "content").unwrap();
        check_file(&folder.path().join("old")).unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("old")).unwrap(), "content");
    }

    #[test]
    fn what_cannot_be_written_is_named_with_its_cause() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let message = check_folder(&file.join("runs"), None).unwrap_err().error.to_string();
        assert!(message.contains("file/runs`") && message.contains("file` is not a folder"), "{message}");
        let message = check_file(&folder.path().join("none/cases.jsonl")).unwrap_err().error.to_string();
        assert!(message.contains("none/cases.jsonl") && message.contains("folder not found"), "{message}");
        assert!(check_file(folder.path()).is_err(), "a folder is not a file");
        // A file system that accepts no files, not even from root.
        if cfg!(target_os = "linux") {
            let message = check_folder(Path::new("/proc/runs"), None).unwrap_err().error.to_string();
            assert!(message.starts_with("cannot write to `/proc/runs`: "), "{message}");
        }
    }
}
