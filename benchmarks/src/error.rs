//! What can be wrong with a data file.

use thiserror::Error;

/// What is wrong with a data file, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LoadError {
    /// There is no such file.
    #[error("{file}: file not found; {remedy}")]
    Missing {
        /// The file.
        file: String,
        /// What to do about it.
        remedy: String,
    },
    /// A folder stands where the file should be.
    #[error("{file}: expected a file, found a folder; {remedy}")]
    Folder {
        /// The folder.
        file: String,
        /// What to do about it.
        remedy: String,
    },
    /// The file cannot be read.
    #[error("failed to read {file}: {reason}; {remedy}")]
    Unreadable {
        /// The file.
        file: String,
        /// What the operating system said.
        reason: String,
        /// What to do about it.
        remedy: String,
    },
    /// The file holds no record.
    #[error("{file}: no records found; {remedy}")]
    Empty {
        /// The file.
        file: String,
        /// What to do about it.
        remedy: String,
    },
    /// One record is malformed; those behind it can still be read.
    #[error("{file}:{line}: {}expected {expected}, found {found}", field_prefix(.field.as_ref()))]
    Record {
        /// The file.
        file: String,
        /// The line the record starts in, counted from 1 (the line of the mistake, for invalid JSON).
        line: u64,
        /// The field, where the record is JSON.
        field: Option<&'static str>,
        /// What was expected.
        expected: String,
        /// What stood there.
        found: String,
    },
    /// The file's structure is broken: nothing behind this can be read.
    #[error("{file}:{line}: expected {expected}, found {found}; the rest of the file cannot be read")]
    Broken {
        /// The file.
        file: String,
        /// The line, counted from 1.
        line: u64,
        /// What was expected.
        expected: String,
        /// What stood there.
        found: String,
    },
}

impl LoadError {
    /// Whether only this record is lost and the stream goes on behind it (`--skip-invalid`).
    pub fn is_skippable(&self) -> bool {
        matches!(self, Self::Record { .. })
    }
}

impl LoadError {
    /// The same error with another way to mend it.
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
