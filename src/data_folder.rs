//! Data sets that consist of a folder of files: computes their hash and verifies their checksums.

use std::collections::BTreeMap;
use std::path::Path;

use lumos_models::hash_file;
use lumos_tasks::ContentHash;

use crate::exit::Failure;

/// File with the checksums of the other files, as written by `sha256sum *.json`.
const SUMS: &str = "SHA256SUMS";

/// Computes the hash of the names and contents of a folder's JSON files. If the folder contains `SHA256SUMS`,
/// the files must match it.
pub(crate) fn hash(folder: &Path) -> Result<ContentHash, Failure> {
    let failed = |error: std::io::Error| Failure::input(format!("{}: {error}", folder.display()));
    let mut hashes: BTreeMap<String, ContentHash> = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            hashes.insert(name, hash_file(&path).map_err(failed)?);
        }
    }
    match std::fs::read_to_string(folder.join(SUMS)) {
        Ok(sums) => check(&sums, &hashes)
            .map_err(|why| Failure::input(format!("{}: {why}", folder.join(SUMS).display())))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    Ok(ContentHash::of_json(&hashes))
}

/// Compares hashes with a list of checksums. The error names the file that differs.
fn check(sums: &str, hashes: &BTreeMap<String, ContentHash>) -> Result<(), String> {
    let mut listed = 0;
    for line in sums.lines().filter(|line| !line.trim().is_empty()) {
        let (sum, name) = line
            .split_once(char::is_whitespace)
            .ok_or_else(|| format!("invalid line `{line}`: expected a checksum and a file name"))?;
        let name = name.trim_start().trim_start_matches('*');
        match hashes.get(name) {
            None => return Err(format!("listed file `{name}` not found")),
            Some(hash) if !hash.as_str().eq_ignore_ascii_case(sum) => {
                return Err(format!(
                    "file `{name}` has SHA-256 {hash}, not the listed one: unpack the archive again"
                ));
            }
            Some(_) => listed += 1,
        }
    }
    if listed == hashes.len() {
        Ok(())
    } else {
        Err("not all JSON files in the folder are listed".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_not_those_listed_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("a.json", "[]");
        write("README.md", "not data");
        let plain = hash(folder.path()).unwrap();
        let sum = ContentHash::of_bytes(b"[]");
        write(SUMS, &format!("{sum}  a.json\n"));
        assert_eq!(hash(folder.path()).unwrap(), plain);
        write("b.json", "[]");
        let refused = || hash(folder.path()).unwrap_err().error.to_string();
        assert!(refused().contains("not all JSON files"), "{}", refused());
        write(SUMS, &format!("{sum}  a.json\n{sum} *b.json\n"));
        assert_ne!(hash(folder.path()).unwrap(), plain);
        write("b.json", "[1]");
        assert!(refused().contains("file `b.json` has SHA-256"), "{}", refused());
    }
}
