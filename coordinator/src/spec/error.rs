//! Errors of specifications.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

/// Error of reading a specification file.
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
}

fn key_text(key: Option<&str>) -> String {
    key.map(|key| format!("`{key}`: ")).unwrap_or_default()
}

/// An error in a complete specification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecProblem {
    /// The affected field.
    pub field: &'static str,
    /// The error, and the expected value.
    pub message: String,
}

/// All errors in a specification.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct SpecProblems(pub Vec<SpecProblem>);

impl fmt::Display for SpecProblems {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                formatter.write_str("\n")?;
            }
            write!(formatter, "{}: {}", problem.field, problem.message)?;
        }
        Ok(())
    }
}
