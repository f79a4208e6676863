//! Output formats of reports.

use std::io::{self, Write};
use std::str::FromStr;

use crate::model_id::ModelNames;

use super::model::Report;
use super::terminal::Terminal;
use super::{csv, html, json, markdown};

/// Extent of the tables for a terminal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReportDetail {
    /// Main figures on one screen.
    #[default]
    Summary,
    /// All figures, groups, ledgers and causes.
    Full,
}

/// Output formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Tables for a terminal.
    Terminal {
        /// Width of the terminal in columns.
        width: u16,
        /// Extent of the tables.
        detail: ReportDetail,
    },
    /// Markdown.
    Markdown,
    /// JSON in lm-eval's layout.
    Json,
    /// Comma-separated values.
    Csv,
    /// A self-contained page.
    Html,
}

impl Format {
    /// All formats. Tables that are not written to a terminal have 80 columns.
    pub(crate) const ALL: [Self; 5] = [
        Self::Terminal { width: 80, detail: ReportDetail::Summary },
        Self::Markdown,
        Self::Json,
        Self::Csv,
        Self::Html,
    ];

    /// Returns the name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Terminal { .. } => "table",
            Self::Markdown => "markdown",
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Html => "html",
        }
    }
}

impl Report {
    /// Writes the report in a format. Equal reports yield equal bytes.
    ///
    /// # Errors
    /// If writing to `out` fails.
    pub fn render(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        match format {
            Format::Terminal { width, detail: ReportDetail::Summary } => {
                Terminal { width }.summary(self, out)
            }
            Format::Terminal { width, detail: ReportDetail::Full } => Terminal { width }.full(self, out),
            Format::Markdown => markdown::render(self, out),
            Format::Json => json::render(self, &ModelNames::default(), out),
            Format::Csv => csv::render(self, out),
            Format::Html => html::render(self, out),
        }
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        format_named(&Self::ALL, Self::name, word)
    }
}

/// Finds a format by its name; `md` is Markdown.
///
/// # Errors
/// If no format has the name. The error is a message with all names.
pub(crate) fn format_named<F: Copy>(
    formats: &[F],
    name: impl Fn(F) -> &'static str,
    word: &str,
) -> Result<F, String> {
    let word = if word == "md" { "markdown" } else { word };
    formats.iter().copied().find(|format| name(*format) == word).ok_or_else(|| {
        let known: Vec<_> = formats.iter().map(|format| name(*format)).collect();
        format!("unknown format `{word}`: expected one of {}", known.join(", "))
    })
}
