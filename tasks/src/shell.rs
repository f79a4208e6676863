//! Quoting of words in shell commands.
//!
//! Messages, reports and Markdown suggest commands that can be pasted. [`quoted_path`] quotes the paths in them, and
//! [`quoted`] other words, such as addresses. They are in this crate because the crates that suggest commands depend on
//! it.

use std::path::Path;

/// Quotes a word for a shell where necessary.
///
/// ```
/// assert_eq!(lumos_tasks::shell::quoted("my run"), "'my run'");
/// ```
pub fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./:=@%+,".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Quotes a path for a shell where necessary. If it is not UTF-8, its bytes are escaped as in bash and zsh.
///
/// ```
/// use std::path::Path;
///
/// assert_eq!(lumos_tasks::shell::quoted_path(Path::new("runs/my run")), "'runs/my run'");
/// ```
pub fn quoted_path(path: &Path) -> String {
    match path.to_str() {
        Some(word) => quoted(word),
        None => format!("$'{}'", path.as_os_str().as_encoded_bytes().escape_ascii()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_for_a_shell() {
        let shown = ["runs/a_1", "my run", "", "it's", "$(x)"].map(quoted);
        assert_eq!(shown, ["runs/a_1", "'my run'", "''", r"'it'\''s'", "'$(x)'"]);
    }

    #[cfg(unix)]
    #[test]
    fn paths_that_are_not_utf_8_keep_their_bytes() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;

        let quoted = |bytes: &[u8]| quoted_path(Path::new(OsStr::from_bytes(bytes)));
        assert_eq!(quoted("runs/über".as_bytes()), "'runs/über'");
        assert_eq!(quoted(b"runs/it's \xfc\n"), r"$'runs/it\'s \xfc\n'");
    }
}
