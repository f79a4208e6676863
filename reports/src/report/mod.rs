//! Reports of runs: one [`Report`] and several output formats.
//!
//! [`report()`] builds the report from a checkpoint. [`Report::render`] writes it in a [`Format`]: terminal
//! tables, Markdown, JSON with lm-eval's layout, CSV or a self-contained HTML page.

mod build;
mod comparison;
mod csv;
mod html;
pub(crate) mod json;
pub(crate) mod markdown;
pub(crate) mod model;
pub(crate) mod numbers;
mod render;
mod rows;
mod summary;
pub(crate) mod svg;
pub(crate) mod terminal;
mod usage;
mod workers;

pub(crate) use json::TASK_VERSION as SCORING_VERSION;
pub use {
    crate::ledger::{Ledger, LedgerError},
    crate::results::ScoreError,
    build::{labelled_report, report},
    model::{ConfigurationReport, Report},
    render::{DocumentFormat, Format, ReportDetail},
};
pub(crate) use {
    html::page as report_page,
    numbers::{number, signed, with_unit},
    render::format_named,
    svg::class as cause_class,
};

#[cfg(test)]
mod tests;
