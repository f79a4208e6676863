//! Reads files of recorded cases.

use std::path::Path;

use lumos_tasks::recorded::Case;
use serde_json::Value;
use thiserror::Error;

use super::shop::{self, ShopCase};
use super::sql::SqlRow;
use super::unit::{UnitRow, replay_unit};
use super::{ReplayResult, replay, unknown};
use crate::loading::{Flaw, Lines, Located};

/// A row of a file of recorded cases.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedRow(Row);

#[derive(Debug, Clone, PartialEq)]
enum Row {
    /// An episode.
    Case(Box<Case>),
    /// An episode on a database, recorded by the benchmark's own runner or in its published logs.
    Sql(Box<SqlRow>),
    /// A call of a single function.
    Unit {
        /// Function and line number.
        id: String,
        /// The row.
        row: Box<UnitRow>,
    },
    /// A shopping episode recorded by the original.
    Shop(Box<ShopCase>),
    /// A row of an unsupported kind or an unknown benchmark.
    Other {
        /// Name of the row, or its line number.
        id: String,
        /// Why it is not replayed.
        reason: String,
    },
}

impl RecordedRow {
    /// Parses the row in a line, counted from 1, of a file in `folder`.
    ///
    /// # Errors
    /// A description of the error in the row.
    pub fn of(value: Value, folder: &Path, line: u64) -> Result<Self, String> {
        let given = |field: &str| value.get(field).and_then(Value::as_str).map(str::to_owned);
        let other = |reason: String| {
            let id = given("id").unwrap_or_else(|| format!("line {line}"));
            Ok(Row::Other { id, reason })
        };
        let has = |field: &str| value.get(field).is_some();
        let row = match (given("fn"), given("benchmark")) {
            (Some(function), _) => serde_json::from_value(value)
                .map(|row| Row::Unit { id: format!("{function} line {line}"), row: Box::new(row) }),
            _ if has("gold_sql") && (has("replies") || has("run")) => {
                serde_json::from_value(value).map(|mut row: SqlRow| {
                    folder.clone_into(&mut row.folder);
                    Row::Sql(Box::new(row))
                })
            }
            (None, Some(benchmark)) if crate::registry::find(&benchmark).is_none() => {
                // It may be the benchmark of a task file, which the caller has.
                match serde_json::from_value(value.clone()) {
                    Ok(case) => Ok(Row::Case(Box::new(case))),
                    Err(_) => other(unknown(&benchmark)),
                }
            }
            (None, Some(_)) if has("catalogue") => serde_json::from_value(value)
                .map(|case: ShopCase| Row::Shop(Box::new(ShopCase { folder: folder.to_owned(), ..case }))),
            (None, Some(_)) => serde_json::from_value(value).map(|case| Row::Case(Box::new(case))),
            (None, None) if value.is_object() => other("neither an episode nor a function".to_owned()),
            (None, None) => return Err("expected a JSON object".to_owned()),
        };
        row.map(Self).map_err(|error: serde_json::Error| error.to_string())
    }

    /// Returns the episode, unless the row records something else.
    pub fn case(&self) -> Option<&Case> {
        match &self.0 {
            Row::Case(case) => Some(case),
            _ => None,
        }
    }

    /// Replays the row.
    pub fn replay(&self) -> ReplayResult {
        match &self.0 {
            Row::Case(case) => replay(case),
            Row::Sql(row) => ReplayResult::of(&row.id, row.check()),
            Row::Unit { id, row } => replay_unit(id, row),
            Row::Shop(case) => ReplayResult::of_either(&case.id, shop::replay(case)),
            Row::Other { id, reason } => ReplayResult::skip(id, reason.as_str()),
        }
    }
}

/// Error of reading a file of recorded cases.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CaseError {
    /// The file cannot be read.
    #[error("failed to read {file}: {reason}")]
    Unreadable {
        /// The file.
        file: String,
        /// Error message of the operating system.
        reason: String,
    },
    /// A line is not a recorded case.
    #[error("{file}:{line}: not a recorded case: {reason}")]
    Malformed {
        /// The file.
        file: String,
        /// The line, counted from 1.
        line: u64,
        /// The error.
        reason: String,
    },
}

/// Iterator over the rows of a file.
pub type Cases = Box<dyn Iterator<Item = Result<RecordedRow, CaseError>> + Send>;

/// Reads a file of recorded cases, `.jsonl` or `.jsonl.gz` (detected by content).
///
/// # Errors
/// If the file cannot be opened. A malformed line is an error in the stream, which continues after it.
pub fn read_cases(path: &Path) -> Result<Cases, CaseError> {
    let name = path.display().to_string();
    let unreadable =
        |error: std::io::Error| CaseError::Unreadable { file: name.clone(), reason: error.to_string() };
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    let lines = lumos_environments::lines::open(path).map_err(unreadable)?;
    Ok(Box::new(Lines::from(lines).map(move |record| row(&name, &folder, record))))
}

fn row(file: &str, folder: &Path, Located { line, content }: Located) -> Result<RecordedRow, CaseError> {
    let malformed = |reason: String| CaseError::Malformed { file: file.to_owned(), line, reason };
    let value = content.map_err(|flaw| match flaw {
        Flaw::Json { found, .. } => malformed(found),
        Flaw::Row { expected, found, .. } | Flaw::Broken { expected, found } => {
            malformed(format!("expected {expected}, found {found}"))
        }
        Flaw::Unreadable(reason) => CaseError::Unreadable { file: file.to_owned(), reason },
    })?;
    RecordedRow::of(value, folder, line).map_err(malformed)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn errors(content: &[u8]) -> Vec<String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        let path = file.path().display().to_string();
        let rows = read_cases(file.path()).unwrap();
        rows.map(|row| match row {
            Ok(row) => format!("{:?}", row.replay()),
            Err(error) => error.to_string().replace(&path, "FILE"),
        })
        .collect()
    }

    #[test]
    fn malformed_lines_are_named_and_passed_over() {
        let content = b"{\"id\": \"a\"}\n{\n[]\n{\"benchmark\": \"gsm8k\", \"id\": \"x\"}\n";
        insta::assert_snapshot!(errors(content).join("\n"), @r#"
        ReplayResult { id: "a", difference: None, skipped: Some("neither an episode nor a function") }
        FILE:2: not a recorded case: invalid JSON (EOF while parsing an object, column 1)
        FILE:3: not a recorded case: expected a JSON object
        FILE:4: not a recorded case: missing field `formulation`
        "#);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = read_cases(Path::new("/nowhere/cases.jsonl")).err().unwrap();
        insta::assert_snapshot!(error, @"failed to read /nowhere/cases.jsonl: No such file or directory (os error 2)");
    }

    #[test]
    fn packed_files_are_unpacked_and_cut_ones_are_reported() {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        let row = br#"{"fn": "math.isfunc", "args": ["R1(2)"], "out": true}"#;
        packer.write_all(row).unwrap();
        packer.write_all(b"\n").unwrap();
        let packed = packer.finish().unwrap();
        let passed = errors(&packed);
        assert!(passed.len() == 1 && passed[0].contains("difference: None, skipped: None"), "{passed:?}");
        let cut = errors(&packed[..packed.len() - 12]);
        assert!(cut.last().unwrap().starts_with("failed to read FILE"), "{cut:?}");
    }
}
