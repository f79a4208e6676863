//! Output formats of a comparison.

mod html;
mod rows;
mod text;

use std::io::{self, Write};
use std::str::FromStr;

use serde_json::json;

use crate::report::format_named;

use super::model::Comparison;

pub(crate) use html::page as comparison_page;

/// Output formats of comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompareFormat {
    /// Tables for a terminal.
    Terminal {
        /// Width of the terminal in columns.
        width: u16,
    },
    /// Markdown.
    Markdown,
    /// One JSON document.
    Json,
}

impl CompareFormat {
    const ALL: [Self; 3] = [Self::Terminal { width: 80 }, Self::Markdown, Self::Json];

    fn name(self) -> &'static str {
        match self {
            Self::Terminal { .. } => "table",
            Self::Markdown => "markdown",
            Self::Json => "json",
        }
    }
}

impl FromStr for CompareFormat {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        format_named(&Self::ALL, Self::name, word)
    }
}

impl Comparison {
    /// Writes the comparison. Tables and Markdown list the changed items whose texts were read;
    /// JSON has all of them. Equal comparisons yield equal bytes.
    ///
    /// # Errors
    /// If writing to `out` fails.
    pub fn render(&self, format: CompareFormat, out: &mut dyn Write) -> io::Result<()> {
        match format {
            CompareFormat::Terminal { width } => text::terminal(self, width, out),
            CompareFormat::Markdown => text::markdown(self, out),
            CompareFormat::Json => {
                let mut document = json!(self);
                if let Some(pairs) = document["comparisons"].as_array_mut() {
                    for pair in pairs {
                        let names = pair["pair"].take();
                        pair["pair"] = json!({"a": names[0], "b": names[1]});
                        let usage = pair["usage"].take();
                        pair["usage"] = json!({"a": usage[0], "b": usage[1]});
                        pair["difference_of"] = json!("b - a");
                    }
                }
                serde_json::to_writer_pretty(&mut *out, &document)?;
                writeln!(out)
            }
        }
    }
}
