//! Output formats of reports.

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

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
    /// A document.
    Document(DocumentFormat),
}

/// The formats of documents. One is a module with a [`DocumentFormat`], and a line here.
static DOCUMENTS: [DocumentFormat; 4] = [markdown::FORMAT, json::FORMAT, csv::FORMAT, html::FORMAT];

/// Format of a document.
#[derive(Clone, Copy)]
pub struct DocumentFormat {
    /// Name on the command line.
    pub name: &'static str,
    /// Writes a report.
    pub(super) write: fn(&Report, &mut dyn Write) -> io::Result<()>,
}

impl PartialEq for DocumentFormat {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for DocumentFormat {}

impl fmt::Debug for DocumentFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

impl Format {
    /// Markdown.
    pub const MARKDOWN: Self = Self::Document(markdown::FORMAT);
    /// JSON in lm-eval's layout.
    pub const JSON: Self = Self::Document(json::FORMAT);
    /// A self-contained page.
    pub const HTML: Self = Self::Document(html::FORMAT);

    /// All formats. Tables that are not written to a terminal have 80 columns.
    pub(crate) fn all() -> Vec<Self> {
        let table = Self::Terminal { width: 80, detail: ReportDetail::Summary };
        std::iter::once(table).chain(DOCUMENTS.map(Self::Document)).collect()
    }

    /// Returns the name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Terminal { .. } => "table",
            Self::Document(document) => document.name,
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
            Format::Document(document) => (document.write)(self, out),
        }
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        format_named(&Self::all(), Self::name, word)
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
