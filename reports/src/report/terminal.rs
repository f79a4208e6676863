//! Terminal format: tables that fit the terminal's width, wrapped between words.

use std::collections::BTreeSet;
use std::io::{self, Write};

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, TableComponent, Width};
use unicode_width::UnicodeWidthStr;

use crate::display::thousands;
use crate::results::Matrix;
use crate::trajectory::harmless;

use super::model::Report;
use super::numbers::{dash, distance, figure, interval, items};
use super::rows::{
    self, ATTRIBUTIONS, GROUPS, LEDGERS, SPLITS, USAGES, attributions, faults, groups, labelled_once,
    ledgers, lines, metrics, splits, usages,
};

/// Minimum width of tables.
const NARROWEST: u16 = 40;
/// Minimum width of columns including one space on each side.
const NARROWEST_COLUMN: usize = 6;
/// Words up to this length are not broken.
const LONGEST_WORD: usize = 28;
/// Maximum length of a metric name used as a column header.
const LONGEST_HEADER: usize = 12;

/// Renders tables of a given width.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terminal {
    /// Width of the terminal in columns.
    pub(crate) width: u16,
}

/// A table before layout.
pub(crate) struct Rows<'a> {
    pub(crate) header: Vec<&'a str>,
    /// Index of the first right-aligned column.
    pub(crate) numbers: usize,
    /// Names of columns that may be omitted if the table is too wide; the first is omitted first.
    pub(crate) spare: &'a [&'a str],
    /// Name of the numeric column that may be wrapped if the table is still too wide.
    pub(crate) wrapped: Option<&'a str>,
    pub(crate) rows: Vec<Vec<String>>,
    /// Whether to omit columns rather than wrap names of configurations.
    pub(crate) whole_names: bool,
    /// Whether the table is too wide even without the omitted columns.
    pub(crate) tight: bool,
}

impl<'a> Rows<'a> {
    /// Creates a table whose columns from `numbers` on are right-aligned.
    pub(crate) fn new(header: Vec<&'a str>, numbers: usize, rows: Vec<Vec<String>>) -> Self {
        Self { header, numbers, spare: &[], wrapped: None, rows, whole_names: false, tight: false }
    }
}

impl Rows<'_> {
    /// Whether every word fits.
    fn fits(&self, width: u16) -> bool {
        let longest = |column| match column {
            0 if self.whole_names => self.longest_cell(column),
            _ => self.longest_word(column),
        };
        let needed: usize = (0..self.header.len()).map(|column| longest(column) + 2).sum();
        needed <= usize::from(width)
    }

    /// Omits columns until every word of the others fits.
    fn fit(&mut self, width: u16) {
        for spare in self.spare {
            if self.fits(width) {
                return;
            }
            if let Some(column) = self.header.iter().position(|name| name == spare) {
                self.header.remove(column);
                self.rows.iter_mut().for_each(|row| drop(row.remove(column)));
                self.numbers -= usize::from(column < self.numbers);
            }
        }
        self.tight = !self.fits(width);
    }

    /// Returns the texts of a column, with its name last.
    fn cells(&self, column: usize) -> impl Iterator<Item = &str> {
        self.rows.iter().map(move |row| row[column].as_str()).chain([self.header[column]])
    }

    /// Width of a column's longest text.
    fn longest_cell(&self, column: usize) -> usize {
        self.cells(column).map(UnicodeWidthStr::width).max().unwrap_or(0)
    }

    /// Width of a column's longest unbreakable word.
    fn longest_word(&self, column: usize) -> usize {
        let name = self.header[column];
        // A number stays on the same line as its unit.
        let is_whole = column >= self.numbers && !(self.tight && self.wrapped == Some(name));
        let length = |text: &str| text.width().min(LONGEST_WORD);
        let longest = |text: &str| text.split_whitespace().map(length).max().unwrap_or(0);
        let cells = self.rows.iter().map(|row| &row[column]);
        let cells = cells.map(|cell| if is_whole { length(cell) } else { longest(cell) });
        cells.chain([longest(name)]).max().unwrap_or(0)
    }

    /// Computes the column widths including one space on each side: as wide as their texts, or narrower if
    /// the table is too wide. Configuration names are wrapped first, then the last columns. Words are broken
    /// only if the table is still too wide.
    fn widths(&self, width: u16) -> Vec<u16> {
        let columns = self.header.len();
        let mut widths: Vec<usize> = (0..columns).map(|column| self.longest_cell(column) + 2).collect();
        for column in std::iter::once(0).chain((1..columns).rev()) {
            let excess = widths.iter().sum::<usize>().saturating_sub(usize::from(width));
            widths[column] -= excess.min(widths[column].saturating_sub(self.longest_word(column) + 2));
        }
        while widths.iter().sum::<usize>() > usize::from(width) {
            let widest = widths.iter_mut().max().filter(|widest| **widest > NARROWEST_COLUMN);
            let Some(widest) = widest else { break };
            *widest -= 1;
        }
        widths.into_iter().map(|width| u16::try_from(width).unwrap_or(u16::MAX)).collect()
    }
}

impl Terminal {
    /// Writes a table.
    pub(crate) fn table(self, out: &mut dyn Write, mut rows: Rows<'_>) -> io::Result<()> {
        let width = self.width.max(NARROWEST);
        for cell in rows.rows.iter_mut().flatten() {
            *cell = harmless(cell);
        }
        rows.fit(width);
        let widths = rows.widths(width);
        let mut table = Table::new();
        table
            .load_preset(NOTHING)
            .set_style(TableComponent::HeaderLines, '─')
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(width)
            .set_header(rows.header);
        for row in rows.rows {
            table.add_row(row);
        }
        for (column, width) in table.column_iter_mut().zip(widths) {
            if column.index >= rows.numbers {
                column.set_cell_alignment(CellAlignment::Right);
            }
            column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
        }
        for line in table.lines() {
            writeln!(out, "{}", line.trim_end())?;
        }
        writeln!(out)
    }

    /// Writes an indented text, wrapped between words. Lines after the first are indented further.
    pub(crate) fn text(self, out: &mut dyn Write, text: &str) -> io::Result<()> {
        let width = usize::from(self.width.max(NARROWEST));
        let mut line = String::new();
        for word in text.split_whitespace().map(harmless) {
            let length = line.width();
            if length > 3 && length + 1 + word.width() > width {
                writeln!(out, "{line}")?;
                line = "  ".to_owned();
            }
            line.push(' ');
            line.push_str(&word);
        }
        writeln!(out, "{line}")
    }

    /// Writes the figures in few columns. A metric other than the main one is named next to its scoring.
    fn figures(self, report: &Report, out: &mut dyn Write) -> io::Result<()> {
        let mut rows = Vec::new();
        let mut systems = BTreeSet::new();
        let mains: BTreeSet<&str> =
            report.configurations.iter().filter_map(|one| Some(one.main()?.metric.as_str())).collect();
        // The header is the main metric's name if all configurations share it and it is short.
        let main = mains.first().filter(|main| mains.len() == 1 && main.len() <= LONGEST_HEADER).copied();
        for (configuration, scores, metric) in metrics(report) {
            let is_main = scores.metrics.first().is_some_and(|first| std::ptr::eq(first, metric));
            let named = if is_main && main.is_some() {
                scores.scoring.to_string()
            } else {
                format!("{} {}", scores.scoring, metric.metric)
            };
            let compared = metric.published.first();
            if let Some(figure) = compared {
                let (system, source) = (&figure.system, &figure.source);
                systems.insert(format!("{system} {:.1} % ({source})", figure.percent));
            }
            let estimate = metric.estimate.as_ref();
            let row = vec![
                named,
                figure(estimate, metric.unit),
                interval(estimate, metric.unit).replace(" to ", "–"),
                thousands(items(estimate)),
                compared.map_or_else(dash, |figure| format!("{:.1} %", figure.percent)),
                compared.map_or_else(dash, distance),
            ];
            rows.push((configuration, row));
        }
        let rows = labelled_once(rows.into_iter());
        let main = main.unwrap_or("value");
        let header = vec!["configuration", "scoring", main, "95%", "items", "published", "points"];
        self.table(
            out,
            Rows { spare: &["items", "published"], wrapped: Some("points"), ..Rows::new(header, 2, rows) },
        )?;
        if !systems.is_empty() {
            let systems: Vec<_> = systems.into_iter().collect();
            self.text(out, &format!("published: {}", systems.join(", ")))?;
        }
        writeln!(out)
    }

    /// Writes the table of models and benchmarks. If it is too wide, writes several tables, each with as many
    /// of the benchmarks as fit.
    fn matrix(self, matrix: &Matrix, out: &mut dyn Write) -> io::Result<()> {
        let (header, rows) = rows::matrix(matrix);
        // Figures of many benchmarks wrap within their cells.
        let is_wrapped = header.len() > 3;
        let part = |start: usize, end: usize| {
            let columns = || std::iter::once(0).chain(start..end);
            let names: Vec<&str> = columns().map(|column| header[column].as_str()).collect();
            let cells = |row: &Vec<String>| columns().map(|column| row[column].clone()).collect::<Vec<_>>();
            let numbers = if is_wrapped { names.len() } else { 1 };
            Rows::new(names, numbers, rows.iter().map(cells).collect())
        };
        let width = self.width.max(NARROWEST);
        let mut start = 1;
        while start < header.len() {
            let fitting = (start + 1..=header.len()).rev().find(|&end| part(start, end).fits(width));
            let end = fitting.unwrap_or(start + 1);
            self.table(out, part(start, end))?;
            start = end;
        }
        Ok(())
    }

    /// Writes the whole report.
    pub(super) fn full(self, report: &Report, out: &mut dyn Write) -> io::Result<()> {
        let manifest = &report.manifest;
        self.text(out, &format!("run {} ({})", manifest.spec.name, manifest.identity.short()))?;
        writeln!(out)?;
        if let Some(matrix) = &report.matrix {
            self.matrix(matrix, out)?;
            for note in rows::matrix_notes(matrix) {
                self.text(out, &note)?;
            }
            writeln!(out)?;
        }
        self.figures(report, out)?;
        self.table(out, Rows::new(LEDGERS.to_vec(), 1, ledgers(report)))?;
        self.table(out, Rows { spare: &["answered"], ..Rows::new(SPLITS.to_vec(), 3, splits(report)) })?;
        for configuration in &report.configurations {
            if let Err(error) = configuration.ledger.check() {
                let label = &configuration.label;
                self.text(out, &format!("THE LEDGER OF {label} DOES NOT BALANCE: {error}"))?;
                writeln!(out)?;
            }
        }
        let rows = attributions(report);
        if !rows.is_empty() {
            self.table(out, Rows::new(ATTRIBUTIONS.to_vec(), 2, rows))?;
        }
        let rows = groups(report);
        if !rows.is_empty() {
            self.table(out, Rows::new(GROUPS.to_vec(), 3, rows))?;
        }
        self.table(out, Rows::new(USAGES.to_vec(), 1, usages(report)))?;
        for line in faults(report).iter().chain(&lines(report)) {
            self.text(out, line)?;
        }
        if report.duplicates > 0 {
            self.text(out, &format!("{} duplicate outcomes dropped", thousands(report.duplicates)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_texts_do_not_reach_the_terminal() {
        let (mut out, terminal) = (Vec::new(), Terminal { width: 80 });
        terminal.text(&mut out, "item 1: \u{1b}[2JGold\r\nA: \u{7}").unwrap();
        let rows = vec![vec!["\u{1b}]0;title\u{7}".to_owned(), "1".to_owned()]];
        terminal.table(&mut out, Rows::new(vec!["group", "value"], 1, rows)).unwrap();
        let shown = String::from_utf8(out).unwrap();
        assert!(shown.starts_with(" item 1: \u{fffd}[2JGold A: \u{fffd}\n"), "{shown:?}");
        assert!(shown.chars().all(|character| character == '\n' || !character.is_control()), "{shown:?}");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let (mut out, terminal) = (Vec::new(), Terminal { width: 40 });
        terminal.text(&mut out, &"한국어 문제 ".repeat(8)).unwrap();
        let rows = vec![vec!["한국어문제".to_owned(), "한국어 문제 ".repeat(4)]];
        terminal.table(&mut out, Rows::new(vec!["task", "text"], 2, rows)).unwrap();
        let shown = String::from_utf8(out).unwrap();
        assert!(shown.lines().all(|line| line.width() <= 40), "{shown}");
        assert!(shown.contains(" 한국어문제 "), "a word is broken:\n{shown}");
    }
}
