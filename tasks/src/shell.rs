//! Quoting of words in shell commands.
//!
//! Messages, reports and Markdown suggest commands that can be pasted. [`quoted`] quotes the paths and addresses in
//! them. It is in this crate because the crates that suggest commands depend on it.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_for_a_shell() {
        let shown = ["runs/a_1", "my run", "", "it's", "$(x)"].map(quoted);
        assert_eq!(shown, ["runs/a_1", "'my run'", "''", r"'it'\''s'", "'$(x)'"]);
    }
}
