//! The table of export formats. A format is a module with an [`ExportFormat`], and a line of [`EXPORT_FORMATS`].

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use jiff::Timestamp;

use crate::report::format_named;

use super::convert::{ExportOptions, ExportSummary};
use super::source::RunSource;
use super::{ExportError, annotations, csv, every_eval_ever, inspect, latex, lm_eval, parquet};

/// All formats, in the order of messages.
pub static EXPORT_FORMATS: [ExportFormat; 7] = [
    inspect::FORMAT,
    lm_eval::FORMAT,
    every_eval_ever::FORMAT,
    parquet::FORMAT,
    csv::FORMAT,
    latex::FORMAT,
    annotations::FORMAT,
];

/// Target of an export.
#[derive(Clone, Copy)]
pub struct ExportFormat {
    /// Name on the command line.
    pub name: &'static str,
    /// What it is, for help texts.
    pub about: &'static str,
    /// What [`ExportSummary::rows`] counts.
    pub rows: &'static str,
    /// Writes the files to an empty folder.
    pub(super) write: Write,
}

pub(super) type Write =
    fn(&Path, &RunSource<'_>, &ExportOptions, Timestamp) -> Result<ExportSummary, ExportError>;

impl fmt::Debug for ExportFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

impl FromStr for ExportFormat {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        format_named(&EXPORT_FORMATS, |format| format.name, word)
    }
}
