//! Serves the report of a run: the files that `lumos run` writes below `<run>/report/`, or else `<run>/report.html`.
//!
//! ```text
//! /runs/KEY/report/                 <run>/report/index.html, or <run>/report.html
//! /runs/KEY/report/data/0000.js     <run>/report/data/0000.js
//! ```
//! A path has at most four plain names, and leads to a file below `<run>/report/` even through links. A `report` or
//! `report.html` that is a link itself is not served.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Maximum size of a file in bytes.
const LARGEST: u64 = 16 << 20;
/// Maximum number of names in a path.
const DEEPEST: usize = 4;

/// A file of a report.
#[derive(Debug)]
pub(super) struct ReportFile {
    pub(super) content_type: &'static str,
    pub(super) bytes: Vec<u8>,
}

/// Reads a file of a run's report; the page for an empty path. Returns `None` if it is not a file of the report.
pub(super) fn read(run: &Path, path: &str) -> Option<ReportFile> {
    let run = run.canonicalize().ok()?;
    let (report, page) = (run.join("report"), run.join("report.html"));
    match path {
        "" => open(&report, &report.join("index.html")).or_else(|| open(&page, &page)),
        path => open(&report, &report.join(relative(path)?)),
    }
}

/// Returns the path if it has only plain names.
fn relative(path: &str) -> Option<PathBuf> {
    let is_plain = |name: &str| {
        let characters = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
        !name.is_empty() && name.len() <= 100 && !name.starts_with('.') && name.chars().all(characters)
    };
    let names: Vec<&str> = path.split('/').collect();
    (names.len() <= DEEPEST && names.iter().all(|name| is_plain(name))).then(|| names.iter().collect())
}

/// Reads a file that must be at or below a place without links.
fn open(place: &Path, path: &Path) -> Option<ReportFile> {
    let content_type = match path.extension()?.to_str()? {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" => "application/json",
        "md" => "text/plain; charset=utf-8",
        "png" => "image/png",
        _ => return None,
    };
    let found = path.canonicalize().ok()?;
    if !found.starts_with(place) {
        return None;
    }
    let bytes = content(&found).ok()?;
    Some(ReportFile { content_type, bytes })
}

fn content(path: &Path) -> io::Result<Vec<u8>> {
    let found = std::fs::metadata(path)?;
    if !found.is_file() || found.len() > LARGEST {
        return Err(io::Error::other("not a file of a report"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(LARGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_files_of_the_report_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path();
        assert!(read(run, "").is_none());
        fs::write(run.join("report.html"), "single").unwrap();
        let text = |path: &str| read(run, path).map(|file| String::from_utf8(file.bytes).unwrap());
        assert_eq!(text("").as_deref(), Some("single"));
        fs::create_dir_all(run.join("report/data")).unwrap();
        fs::create_dir_all(run.join("checkpoint")).unwrap();
        for (path, content) in [
            ("report/index.html", "page"),
            ("report/data/0000.js", "chunk"),
            ("report/data/key.pem", "secret"),
            ("report/.hidden.js", "secret"),
            ("manifest.json", "secret"),
            ("checkpoint/x.json", "secret"),
        ] {
            fs::write(run.join(path), content).unwrap();
        }
        assert_eq!(text("").as_deref(), Some("page"));
        assert_eq!(text("data/0000.js").as_deref(), Some("chunk"));
        assert_eq!(read(run, "data/0000.js").unwrap().content_type, "text/javascript; charset=utf-8");
        for path in [
            "data/key.pem",
            ".hidden.js",
            "../manifest.json",
            "data/../../manifest.json",
            "/etc/hosts.json",
            "data//0000.js",
            "data",
            "data/",
            "data\\0000.js",
            "a/b/c/d/e.js",
            "0001.js",
        ] {
            assert_eq!(text(path), None, "{path}");
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::symlink;

            symlink(run.join("manifest.json"), run.join("report/data/0001.json")).unwrap();
            symlink(run.join("checkpoint"), run.join("report/linked")).unwrap();
            for path in ["data/0001.json", "linked/x.json"] {
                assert_eq!(text(path), None, "{path} leads out of the report");
            }
            let other = tempfile::tempdir().unwrap();
            symlink(run, other.path().join("run")).unwrap();
            assert!(read(&other.path().join("run"), "data/0000.js").is_some(), "the run may be a link");
            for name in ["index.html", "config.json"] {
                fs::write(other.path().join(name), "secret").unwrap();
            }
            fs::remove_dir_all(run.join("report")).unwrap();
            symlink(other.path(), run.join("report")).unwrap();
            assert_eq!(text("").as_deref(), Some("single"));
            fs::remove_file(run.join("report.html")).unwrap();
            symlink(run.join("manifest.json"), run.join("report.html")).unwrap();
            for path in ["", "config.json"] {
                assert_eq!(text(path), None, "the report itself is a link: {path}");
            }
        }
    }
}
