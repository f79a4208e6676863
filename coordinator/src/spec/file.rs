//! Reads specification files (TOML).

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;
use toml::de::{DeTable, DeValue, Deserializer};

use super::lists::{self, ListError};
use super::names::nearest;
use super::run_spec::{RulePlaces, RunSpec};

/// Largest size of a settings file in bytes.
const MOST_BYTES: u64 = 1 << 20;

/// Error of a specification.
#[derive(Debug, Error)]
pub enum SpecError {
    /// The file cannot be read.
    #[error("failed to read {what} `{}`: {source}{}", file.display(), hint(what, source))]
    Unreadable {
        /// What kind of file it is.
        what: &'static str,
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
        /// Suggested correction, or an empty text.
        hint: String,
    },
    /// A task file has invalid values.
    #[error("{}", problems.join("\n"))]
    TaskFile {
        /// The problems, each with file, line and key.
        problems: Vec<String>,
    },
    /// The specification is complete and invalid. Lists all errors.
    #[error("{}", problems.iter().map(|(field, text)| problem_text(field, text)).collect::<Vec<_>>().join("\n"))]
    Invalid {
        /// The affected fields, each with the error and the expected value. The field is empty if the error names its
        /// place in a file.
        problems: Vec<(&'static str, String)>,
    },
}

fn hint(what: &str, source: &std::io::Error) -> &'static str {
    let is_missing = what == "settings file" && source.kind() == std::io::ErrorKind::NotFound;
    if is_missing { "; hint: pass the path of a settings file, or --tasks and --model instead" } else { "" }
}

fn problem_text(field: &str, text: &str) -> String {
    if field.is_empty() { text.to_owned() } else { format!("{field}: {text}") }
}

fn key_text(key: Option<&str>) -> String {
    key.map(|key| format!("`{key}`: ")).unwrap_or_default()
}

impl RunSpec {
    /// Reads a file, and expands the path patterns and list files in its lists. They are relative to the file.
    ///
    /// # Errors
    /// If it cannot be read or is invalid, or a pattern matches nothing. The error contains file, line, key and, for an
    /// unknown key, the most similar one.
    pub fn from_file(file: &Path) -> Result<Self, SpecError> {
        let failed = |source| SpecError::Unreadable { what: "settings file", file: file.to_owned(), source };
        let mut text = String::new();
        File::open(file)
            .and_then(|opened| opened.take(MOST_BYTES + 1).read_to_string(&mut text))
            .map_err(failed)?;
        if text.len() as u64 > MOST_BYTES {
            let message = format!("longer than {MOST_BYTES} bytes");
            return Err(failed(std::io::Error::new(std::io::ErrorKind::FileTooLarge, message)));
        }
        let folder = file.parent().unwrap_or(Path::new(""));
        Self::from_toml(&text, &file.display().to_string(), Some(folder))
    }

    /// Parses the text of a file. `file` is its name in messages. Path patterns and list files are expanded if its folder
    /// is given.
    ///
    /// # Errors
    /// If it is not a valid specification, or a pattern matches nothing.
    pub fn from_toml(text: &str, file: &str, folder: Option<&Path>) -> Result<Self, SpecError> {
        let malformed = |error: toml::de::Error| malformed(&error, text, file);
        let mut table = DeTable::parse(text).map_err(malformed)?;
        if let Some(folder) = folder {
            lists::expand(table.get_mut(), folder).map_err(|error| unlisted(error, text, file))?;
        }
        let places = RulePlaces {
            file: file.to_owned(),
            exclude: lines_of(table.get_ref(), "exclude", text),
            overrides: lines_of(table.get_ref(), "override", text),
        };
        let spec = Self::deserialize(Deserializer::from(table)).map_err(malformed)?;
        let has_rules = spec.exclude.is_some() || spec.overrides.is_some();
        Ok(Self { places: if has_rules { places } else { RulePlaces::default() }, ..spec })
    }
}

/// Returns the lines of the tables of an array.
fn lines_of(table: &DeTable<'_>, key: &str, text: &str) -> Vec<usize> {
    match table.get(key).map(toml::Spanned::get_ref) {
        Some(DeValue::Array(tables)) => {
            tables.iter().map(|table| position(text, table.span().start).0).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns line and column of an offset, counted from 1.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at.min(text.len())).unwrap_or_default();
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (before.matches('\n').count() + 1, column)
}

/// Converts the error of a list.
fn unlisted(error: ListError, text: &str, file: &str) -> SpecError {
    let ListError { span, key, message, hint } = error;
    let (line, column) = position(text, span.start);
    let hint = if hint.is_empty() { hint } else { format!("; {hint}") };
    SpecError::Malformed { file: file.to_owned(), line, column, key: Some(key.to_owned()), message, hint }
}

pub(super) fn malformed(error: &toml::de::Error, text: &str, file: &str) -> SpecError {
    let (line, column) = position(text, error.span().map_or(0, |span| span.start));
    let (message, hint) = explained(error.message());
    SpecError::Malformed { file: file.to_owned(), line, column, key: key_at(text, line), message, hint }
}

/// Returns the key set in a line, with its tables.
fn key_at(text: &str, line: usize) -> Option<String> {
    let lines: Vec<&str> = text.lines().take(line).collect();
    let key_of = |line: &str| {
        let key = line.split_once('=')?.0.trim();
        let plain = |character: char| character.is_alphanumeric() || "_-.\"'".contains(character);
        (!key.is_empty() && key.chars().all(plain)).then(|| key.replace(['"', '\''], ""))
    };
    // A list may span several lines; the key is in the first of them.
    let (index, key) = lines.iter().enumerate().rev().find_map(|(index, line)| {
        let header =
            line.trim_start().starts_with('[') && line.trim_end().ends_with(']') && !line.contains(',');
        if header { Some((index, None)) } else { key_of(line).map(|key| (index, Some(key))) }
    })?;
    let table = lines[..=index].iter().rev().find_map(|line| {
        let name = line.trim().strip_prefix('[')?.split(']').next()?;
        let name = name.trim_start_matches('[').trim();
        (!name.is_empty() && !name.contains(',')).then(|| name.to_owned())
    });
    match (table, key) {
        (Some(table), Some(key)) => Some(format!("{table}.{key}")),
        (table, key) => key.or(table),
    }
}

/// Rewords a message of serde: lists each known name once and suggests the most similar one.
fn explained(message: &str) -> (String, String) {
    let unknown = ["unknown field", "unknown variant"]
        .into_iter()
        .find_map(|start| Some((start, message.strip_prefix(start)?)));
    let Some((start, rest)) = unknown else {
        return (message.trim_end().to_owned(), String::new());
    };
    let mut names = rest.split('`').skip(1).step_by(2);
    let word = names.next().unwrap_or_default();
    let known: Vec<&str> = names.filter(|name| !name.contains('-')).collect();
    let what = if start == "unknown field" { "unknown key" } else { "unknown value" };
    let hint = match nearest(word, known.iter().copied()) {
        Some(near) => format!("; did you mean `{near}`?"),
        None => {
            // If a key has a singular and a plural form, the plural is listed.
            let listed = known.iter().filter(|name| !known.contains(&format!("{name}s").as_str()));
            format!(": expected one of {}", listed.copied().collect::<Vec<_>>().join(", "))
        }
    };
    (format!("{what} `{word}`"), hint)
}

#[cfg(test)]
mod tests {
    use lumos_tasks::Formulation;

    use super::*;
    use crate::spec::{BatchSize, FailOnError, ModelSet, Selection};

    fn refused(text: &str) -> String {
        RunSpec::from_toml(text, "run.toml", None).unwrap_err().to_string()
    }

    #[test]
    fn a_whole_file_reads() {
        let spec = RunSpec::from_toml(
            r#"
            name = "first"
            tasks = ["gsm8k", "svamp"]
            formulation = "iterative,onetime"
            seed = [0, 1]
            batch-size = 8
            samples = { gsm8k = "0-9,15", svamp = [1, 2] }
            models = ["builtin:tiny", { planner = "candle:p", grounder = "candle:g" }]
            [generation]
            temperature = 0.7
            max-new-tokens = 128
            [limits]
            time-limit = 60
            fail_on_error = true
            [tools]
            maths = "native"
            "#,
            "run.toml",
            None,
        )
        .unwrap();
        assert_eq!(spec.formulation, Some(vec![Formulation::Iterative, Formulation::OneTime]));
        assert_eq!(spec.batch_size, Some(BatchSize::Fixed(8)));
        assert_eq!(spec.samples.unwrap()["svamp"], Selection::of([1, 2]));
        assert_eq!(spec.models.unwrap()[0], ModelSet::of("builtin:tiny"));
        assert_eq!(spec.limits.time_limit, Some(60.0));
        assert_eq!(spec.limits.fail_on_error, Some(FailOnError::First));
        let one = RunSpec::from_toml("seed = 3\n[[models]]\nmodel = \"m\"", "", None).unwrap();
        assert_eq!(one.seed, Some(vec![3]));
        assert_eq!(one.models, Some(vec![ModelSet::of("m")]));
    }

    #[test]
    fn mistakes_are_named_with_file_line_and_key() {
        assert_eq!(
            refused("tasks = 'gsm8k'\nformulatoin = 'cot'"),
            "run.toml:2:1: `formulatoin`: unknown key `formulatoin`; did you mean `formulation`?"
        );
        assert_eq!(
            refused("[limits]\ntime_limits = 3"),
            "run.toml:2:1: `limits.time_limits`: unknown key `time_limits`; did you mean `time_limit`?"
        );
        let value = refused("formulation = [\n  'iterative',\n  'onetim',\n]");
        assert!(value.starts_with("run.toml:"), "{value}");
        assert!(value.contains("`formulation`") && value.contains("did you mean `onetime`?"), "{value}");
        let kind = refused("limit = 'ten'");
        assert!(kind.starts_with("run.toml:1:9: `limit`: invalid type"), "{kind}");
        let syntax = refused("limit = ");
        assert!(syntax.starts_with("run.toml:1:"), "{syntax}");
        let far = refused("colour = 1");
        assert!(far.contains("expected one of name, preset, tasks"), "{far}");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = RunSpec::from_file(Path::new("missing/run.toml")).unwrap_err();
        assert!(error.to_string().starts_with("failed to read settings file `missing/run.toml`"), "{error}");
    }
}
