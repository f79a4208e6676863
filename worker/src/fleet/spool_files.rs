//! The files of a spool folder: one per result, written completely or not at all. The first line is the SHA-256 of the
//! second, which is the result as JSON. Files of earlier versions do not have the first line.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use lumos_tasks::ContentHash;
use lumos_tasks::fleet::ResultMessage;

const ENDING: &str = "result.json";
const DAMAGED: &str = "damaged";

/// Creates the folder and its missing parents. Other users cannot read a new folder, because results contain prompts and
/// replies; parents get the default mode.
pub(super) fn create_folder(folder: &Path) -> io::Result<()> {
    if let Some(above) = folder.parent() {
        fs::create_dir_all(above)?;
    }
    let mut builder = fs::DirBuilder::new();
    // Not an error if the folder exists, whatever its mode.
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Writes a result. Returns its path.
pub(super) fn write(folder: &Path, id: &str, message: &ResultMessage) -> io::Result<PathBuf> {
    let path = folder.join(format!("{id}.{ENDING}"));
    let unfinished = folder.join(format!(".{id}.unfinished"));
    if let Err(error) = write_file(&unfinished, message).and_then(|()| fs::rename(&unfinished, &path)) {
        // The disk may be full.
        let _ = fs::remove_file(&unfinished);
        return Err(error);
    }
    // A rename is durable only once its folder is synced.
    File::open(folder)?.sync_all()?;
    Ok(path)
}

fn write_file(path: &Path, message: &ResultMessage) -> io::Result<()> {
    let mut file = File::create(path)?;
    let text = serde_json::to_vec(message)?;
    file.write_all(format!("{}\n", ContentHash::of_bytes(&text)).as_bytes())?;
    file.write_all(&text)?;
    file.flush()?;
    file.sync_all()
}

/// Lists the results in the folder.
pub(super) fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_result =
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.ends_with(ENDING));
        if is_result {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Reads a result. Returns `None` if it is corrupt (the file is renamed), or was sent by another process in
/// the meantime.
pub(super) fn read(path: &Path) -> io::Result<Option<ResultMessage>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match parse(&bytes) {
        Ok(message) => Ok(Some(message)),
        Err(error) => {
            let aside = path.with_extension(DAMAGED);
            tracing::warn!(
                file = %path.display(),
                "corrupt spooled result ({error}); renamed it to {}; its unit is executed again",
                aside.display()
            );
            fs::rename(path, aside)?;
            Ok(None)
        }
    }
}

fn parse(bytes: &[u8]) -> Result<ResultMessage, String> {
    let text = match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) if bytes.first() != Some(&b'{') => {
            let (claimed, text) = (&bytes[..end], &bytes[end + 1..]);
            if claimed != ContentHash::of_bytes(text).as_str().as_bytes() {
                return Err("checksum mismatch".to_owned());
            }
            text
        }
        _ => bytes,
    };
    serde_json::from_slice(text).map_err(|error| error.to_string())
}

/// Removes a result that was sent.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use lumos_tasks::{Ending, Finished, Outcome, RunToken, Telemetry, UnitId};

    use super::*;

    #[test]
    fn a_write_that_fails_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let message = ResultMessage::pack(Finished {
            unit: UnitId::new(ContentHash::of_bytes(b"unit")),
            attempt: 1,
            outcome: Outcome { ending: Ending::Answered, evidence: None, steps: Vec::new() },
            telemetry: Telemetry::default(),
            run: Some(RunToken::of(&ContentHash::of_bytes(b"run"))),
        });
        // The rename fails.
        let path = folder.path().join("a.result.json");
        fs::create_dir(&path).unwrap();
        assert!(write(folder.path(), "a", &message.unwrap()).is_err());
        let left = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        assert_eq!(left.collect::<Vec<_>>(), [path]);
    }
}
