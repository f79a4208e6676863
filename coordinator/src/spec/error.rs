//! What can be wrong with a specification.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

/// A specification file that cannot be used.
#[derive(Debug, Error)]
pub enum SpecError {
    /// It cannot be read.
    #[error("failed to read settings file `{}`: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It holds something that is no specification.
    #[error("{file}:{line}:{column}: {}{message}{hint}", key_text(key.as_deref()))]
    Malformed {
        /// The file's name.
        file: String,
        /// The line, counted from 1.
        line: usize,
        /// The column, counted from 1.
        column: usize,
        /// The key, with the tables it lies in: `limits.time_limit`.
        key: Option<String>,
        /// What is wrong.
        message: String,
        /// What was probably meant; empty where there is no guess.
        hint: String,
    },
}

fn key_text(key: Option<&str>) -> String {
    key.map(|key| format!("`{key}`: ")).unwrap_or_default()
}

/// Something that is wrong with a whole specification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecProblem {
    /// The field it stands in.
    pub field: &'static str,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// All that is wrong with a specification.
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
