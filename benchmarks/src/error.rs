//! Errors of data files.
//!
//! A [`DataError`] contains the file and the line. Only an error in a single record can be skipped
//! ([`DataError::is_skippable`]).

use thiserror::Error;

/// Error of reading a data file, with a hint.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DataError {
    /// The file does not exist.
    #[error("{file}: file not found; {remedy}")]
    Missing {
        /// The file.
        file: String,
        /// Hint for the user.
        remedy: String,
    },
    /// The path is a folder instead of a file.
    #[error("{file}: expected a file, found a folder; {remedy}")]
    Folder {
        /// The folder.
        file: String,
        /// Hint for the user.
        remedy: String,
    },
    /// The file cannot be read.
    #[error("failed to read {file}: {reason}; {remedy}")]
    Unreadable {
        /// The file.
        file: String,
        /// Error message of the operating system.
        reason: String,
        /// Hint for the user.
        remedy: String,
    },
    /// The file contains no records.
    #[error("{file}: no records found; {remedy}")]
    Empty {
        /// The file.
        file: String,
        /// Hint for the user.
        remedy: String,
    },
    /// A record is malformed; later records can still be read.
    #[error("{file}:{line}: {}expected {expected}, found {found}", field_prefix(.field.as_ref()))]
    Record {
        /// The file.
        file: String,
        /// Line where the record starts, counted from 1. For invalid JSON, the line of the error.
        line: u64,
        /// The field, if the record is valid JSON.
        field: Option<&'static str>,
        /// What was expected.
        expected: String,
        /// What was found.
        found: String,
    },
    /// The file is malformed; nothing after this line can be read.
    #[error("{file}:{line}: expected {expected}, found {found}; the rest of the file cannot be read")]
    Broken {
        /// The file.
        file: String,
        /// The line, counted from 1.
        line: u64,
        /// What was expected.
        expected: String,
        /// What was found.
        found: String,
    },
}

impl DataError {
    /// Whether only this record is affected and the stream continues (`--skip-invalid`).
    pub fn is_skippable(&self) -> bool {
        matches!(self, Self::Record { .. })
    }
}

impl DataError {
    /// Returns the same error with a different hint.
    pub(crate) fn with_remedy(mut self, other: &str) -> Self {
        if let Self::Missing { remedy, .. }
        | Self::Folder { remedy, .. }
        | Self::Unreadable { remedy, .. }
        | Self::Empty { remedy, .. } = &mut self
        {
            other.clone_into(remedy);
        }
        self
    }
}

fn field_prefix(field: Option<&&'static str>) -> String {
    field.map_or_else(String::new, |field| format!("field `{field}`: "))
}
