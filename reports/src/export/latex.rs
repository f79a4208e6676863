//! A LaTeX table of models and benchmarks, for `booktabs`.
//!
//! A row is a set of models with formulation and behaviour, as far as they vary; a column is a benchmark's main metric
//! under the main scoring, pooled over seeds. A figure is bold only if it is the best of its column and differs from
//! every other one there, paired by item with Holm's correction: the same rule as in reports.

use std::collections::BTreeSet;
use std::io::{self, Write};

use crate::report::number;
use crate::results::{Matrix, MatrixCell, MatrixColumn};

use super::convert::{ExportFormat, ExportSummary};
use super::{ExportError, write_file};

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "latex",
    about: "a table of models and benchmarks",
    rows: "configurations",
    write: |folder, source, options, _| {
        let file = folder.join("table.tex");
        let matrix = source.matrix(&options.names)?;
        let scoring = source.main_scoring().name();
        write_file(&file, |out| write(&matrix, scoring, out).map_err(ExportError::at(&file)))?;
        Ok(ExportSummary::new(vec![file], matrix.rows.len() as u64, source))
    },
};

/// Writes the table of figures under a scoring.
pub(super) fn write(matrix: &Matrix, scoring: &str, out: &mut dyn Write) -> io::Result<()> {
    let Matrix { columns, rows } = matrix;
    writeln!(out, "% Needs \\usepackage{{booktabs}}.")?;
    writeln!(out, "\\begin{{tabular}}{{l{}}}", "r".repeat(columns.len()))?;
    writeln!(out, "\\toprule")?;
    let heads = columns.iter().map(|column| {
        let title = lumos_benchmarks::find(&column.benchmark)
            .map_or(column.benchmark.as_str(), |benchmark| benchmark.title());
        escaped(&format!("{title} ({})", column.metric))
    });
    writeln!(out, "model & {} \\\\", heads.collect::<Vec<_>>().join(" & "))?;
    writeln!(out, "\\midrule")?;
    for (index, row) in rows.iter().enumerate() {
        let figures = columns.iter().zip(&row.cells).map(|(column, cell)| figure(column, *cell, index));
        writeln!(out, "{} & {} \\\\", escaped(&row.label), figures.collect::<Vec<_>>().join(" & "))?;
    }
    writeln!(out, "\\bottomrule")?;
    let width = columns.len() + 1;
    let cells = |column: usize| rows.iter().filter_map(move |row| row.cells.get(column).copied().flatten());
    let counts = columns.iter().enumerate().map(|(position, column)| {
        let items = distinct(cells(position).map(|cell| cell.items));
        format!("{} n = {items}", column.benchmark)
    });
    let seeds = distinct((0..columns.len()).flat_map(cells).map(|cell| cell.seeds));
    let note = format!(
        "{}; seeds: {seeds}. {scoring} scoring; \u{b1}: half of the 95 % interval. Bold: differs from all others in its \
         column, paired by item (p < 0.05 after Holm's correction).",
        counts.collect::<Vec<_>>().join("; ")
    );
    writeln!(out, "\\multicolumn{{{width}}}{{l}}{{\\footnotesize {}}} \\\\", escaped(&note))?;
    writeln!(out, "\\end{{tabular}}")
}

/// Lists numbers once each, in order; 0 if there are none.
fn distinct(numbers: impl Iterator<Item = u64>) -> String {
    let numbers: BTreeSet<u64> = numbers.collect();
    let texts: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    if texts.is_empty() { "0".to_owned() } else { texts.join(", ") }
}

/// Formats the figure of a row in a column.
fn figure(column: &MatrixColumn, cell: Option<MatrixCell>, row: usize) -> String {
    let Some(cell) = cell else { return "--".to_owned() };
    let value = number(cell.value, column.unit);
    let is_marked = column.is_distinguishable && column.best == Some(row);
    let value = if is_marked { format!("\\textbf{{{value}}}") } else { value };
    match cell.interval {
        Some((low, high)) => format!("{value}\\,$\\pm$\\,{}", number((high - low) / 2.0, column.unit)),
        None => value,
    }
}

/// Escapes LaTeX's special characters.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => {
                escaped.push('\\');
                escaped.push(character);
            }
            '~' => escaped.push_str("\\textasciitilde{}"),
            '^' => escaped.push_str("\\textasciicircum{}"),
            '\\' => escaped.push_str("\\textbackslash{}"),
            // The default encoding has other characters at these positions.
            '<' => escaped.push_str("\\textless{}"),
            '>' => escaped.push_str("\\textgreater{}"),
            '|' => escaped.push_str("\\textbar{}"),
            '\u{b1}' => escaped.push_str("$\\pm$"),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use lumos_benchmarks::Unit;

    use super::*;

    #[test]
    fn only_a_distinguishable_best_figure_is_bold() {
        let column = |is_distinguishable| MatrixColumn {
            benchmark: "gsm8k".to_owned(),
            metric: "exact_match".to_owned(),
            unit: Unit::Percent,
            best: Some(1),
            is_distinguishable,
            note: None,
        };
        let cell = Some(MatrixCell { value: 0.9, interval: Some((0.8, 0.95)), items: 10, seeds: 1 });
        assert_eq!(figure(&column(true), cell, 1), "\\textbf{90.0}\\,$\\pm$\\,7.5");
        assert_eq!(figure(&column(true), cell, 0), "90.0\\,$\\pm$\\,7.5");
        assert_eq!(figure(&column(false), cell, 1), "90.0\\,$\\pm$\\,7.5");
        assert_eq!(figure(&column(true), None, 1), "--");
        assert_eq!(distinct([3, 1, 3].into_iter()), "1, 3");
    }

    #[test]
    fn special_characters_are_escaped() {
        assert_eq!(
            escaped("a_b & 5 % {x} ~ ^ \\ # $"),
            "a\\_b \\& 5 \\% \\{x\\} \\textasciitilde{} \\textasciicircum{} \\textbackslash{} \\# \\$"
        );
        assert_eq!(escaped("p < 0.05 > x | y"), "p \\textless{} 0.05 \\textgreater{} x \\textbar{} y");
    }
}
