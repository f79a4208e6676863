//! Output formats of reports.

use std::io::{self, Write};
use std::str::FromStr;

use super::{Csv, Html, Json, Markdown, Report, Terminal};

/// Writes a report in one format. Equal reports yield equal bytes.
pub trait Render {
    /// Writes the report.
    ///
    /// # Errors
    /// If writing to `out` fails.
    fn render(&self, report: &Report, out: &mut dyn Write) -> io::Result<()>;
}

/// Output formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Tables for a terminal.
    Terminal,
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
    /// All formats.
    pub const ALL: [Self; 5] = [Self::Terminal, Self::Markdown, Self::Json, Self::Csv, Self::Html];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Terminal => "table",
            Self::Markdown => "markdown",
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Html => "html",
        }
    }

    /// Returns the renderer.
    pub fn renderer(self) -> Box<dyn Render> {
        match self {
            Self::Terminal => Box::new(Terminal::default()),
            Self::Markdown => Box::new(Markdown),
            Self::Json => Box::new(Json),
            Self::Csv => Box::new(Csv),
            Self::Html => Box::new(Html),
        }
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let word = if word == "md" { "markdown" } else { word };
        Self::ALL.into_iter().find(|format| format.name() == word).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("unknown format `{word}`: expected one of {known}")
        })
    }
}
