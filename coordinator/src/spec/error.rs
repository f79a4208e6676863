//! Errors of specifications.

use std::path::PathBuf;

use thiserror::Error;

/// Error of a specification.
#[derive(Debug, Error)]
pub enum SpecError {
    /// The file cannot be read.
    #[error("failed to read settings file `{}`: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The file is not a valid specification.
    #[error("{file}:{line}:{column}: {}{message}{hint}", key_text(key.as_deref()))]
    Malformed {
        /// The file's name.
        file: String,
        /// The line, counted from 1.
        line: usize,
        /// The column, counted from 1.
        column: usize,
        /// The key with its tables: `limits.time_limit`.
        key: Option<String>,
        /// The error.
        message: String,
        /// Suggested correction; empty if there is none.
        hint: String,
    },
    /// The specification is complete and invalid. Lists all errors.
    #[error("{}", problems.iter().map(|(field, text)| format!("{field}: {text}")).collect::<Vec<_>>().join("\n"))]
    Invalid {
        /// The affected fields, each with the error and the expected value.
        problems: Vec<(&'static str, String)>,
    },
}

fn key_text(key: Option<&str>) -> String {
    key.map(|key| format!("`{key}`: ")).unwrap_or_default()
}
