//! Reports of runs: one [`Report`] and several output formats.
//!
//! [`report()`] builds the report from a checkpoint, using a [`ReportBuilder`]. A [`Format`] selects the
//! [`Render`] implementation: terminal tables, Markdown, JSON with lm-eval's layout, CSV or a self-contained
//! HTML page.

mod attribution;
mod build;
mod comparison;
mod csv;
mod html;
mod json;
mod markdown;
mod model;
mod numbers;
mod render;
mod rows;
mod svg;
mod terminal;
mod usage;
mod workers;

pub use attribution::{Attribution, Cause};
pub use build::{ReportBuilder, report};
pub use csv::Csv;
pub use html::Html;
pub use json::Json;
pub use markdown::Markdown;
pub use model::{
    ConfigurationReport, Example, FaultMessage, GroupReport, MetricReport, PublishedComparison, Report,
    ScoringReport,
};
pub use render::{Format, Render};
pub use terminal::Terminal;
pub use usage::{Times, TokenTotals};

#[cfg(test)]
mod tests;
