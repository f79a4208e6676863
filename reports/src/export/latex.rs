//! A LaTeX table of models and benchmarks, for `booktabs`.
//!
//! A row is a set of models with formulation, behaviour and seed, as far as they vary; a column is a benchmark's main
//! metric under the main scoring. A figure is bold only if it is better than all others in its column and its 95 %
//! interval overlaps none of theirs.

use std::io::{self, Write};

use lumos_benchmarks::{Estimate, Unit};

use crate::model_id::ModelNames;
use crate::report::model::MetricReport;

use super::source::RunSource;

/// Writes the table.
pub(super) fn write(source: &RunSource<'_>, names: &ModelNames, out: &mut dyn Write) -> io::Result<()> {
    let cells: Vec<_> = source.cells().collect();
    let mut columns: Vec<&str> = Vec::new();
    for (.., planned, _) in &cells {
        let benchmark = planned.configuration.benchmark.as_str();
        if !columns.contains(&benchmark) {
            columns.push(benchmark);
        }
    }
    let settings: Vec<[String; 4]> = cells
        .iter()
        .map(|(.., planned, _)| {
            let cell = &planned.configuration;
            let models = names.aliases(cell);
            [models, cell.formulation.to_string(), cell.behaviour.to_string(), format!("seed {}", cell.seed)]
        })
        .collect();
    let varies = |axis: usize| settings.iter().any(|one| one[axis] != settings[0][axis]);
    let shown: Vec<usize> = (0..4).filter(|&axis| axis == 0 || varies(axis)).collect();
    let label =
        |one: &[String; 4]| shown.iter().map(|&axis| one[axis].as_str()).collect::<Vec<_>>().join(", ");
    let mut rows: Vec<String> = Vec::new();
    for one in settings.iter().map(label) {
        if !rows.contains(&one) {
            rows.push(one);
        }
    }
    let find = |row: &str, column: &str| -> Option<&MetricReport> {
        let mut found = cells
            .iter()
            .zip(&settings)
            .filter(|((.., planned, _), one)| planned.configuration.benchmark == column && label(one) == row);
        found.next().and_then(|((.., report), _)| report.main())
    };
    let figures =
        |column: &str| -> Vec<Option<&MetricReport>> { rows.iter().map(|row| find(row, column)).collect() };
    let by_column: Vec<Vec<Option<&MetricReport>>> = columns.iter().map(|column| figures(column)).collect();

    writeln!(out, "% Needs \\usepackage{{booktabs}}.")?;
    writeln!(out, "\\begin{{tabular}}{{l{}}}", "r".repeat(columns.len()))?;
    writeln!(out, "\\toprule")?;
    let heads = columns.iter().zip(&by_column).map(|(column, figures)| {
        let metric = figures.iter().flatten().next();
        let title = lumos_benchmarks::find(column).map_or(*column, |benchmark| benchmark.title());
        let of = metric.map(|metric| format!(" ({})", metric.metric)).unwrap_or_default();
        escaped(&format!("{title}{of}"))
    });
    writeln!(out, "model & {} \\\\", heads.collect::<Vec<_>>().join(" & "))?;
    writeln!(out, "\\midrule")?;
    for (index, row) in rows.iter().enumerate() {
        let figures = by_column.iter().map(|column| figure(column, index));
        writeln!(out, "{} & {} \\\\", escaped(row), figures.collect::<Vec<_>>().join(" & "))?;
    }
    writeln!(out, "\\bottomrule")?;
    let width = columns.len() + 1;
    let counts = columns.iter().zip(&by_column).map(|(column, figures)| {
        let items = figures.iter().flatten().filter_map(|metric| metric.estimate.as_ref());
        let mut counts: Vec<u64> = items.map(|estimate| estimate.items).collect();
        counts.sort_unstable();
        counts.dedup();
        let counts: Vec<String> = counts.iter().map(ToString::to_string).collect();
        format!("{column} n = {}", if counts.is_empty() { "0".to_owned() } else { counts.join(", ") })
    });
    let scoring = source.scorings.first().map_or("paper", |scoring| scoring.name());
    let note = format!(
        "{}. {scoring} scoring; \u{b1}: half of the 95 % interval. Bold: better than all others, and the 95 % intervals do \
         not overlap.",
        counts.collect::<Vec<_>>().join("; ")
    );
    writeln!(out, "\\multicolumn{{{width}}}{{l}}{{\\footnotesize {}}} \\\\", escaped(&note))?;
    writeln!(out, "\\end{{tabular}}")
}

/// Formats the figure of a row in a column.
fn figure(column: &[Option<&MetricReport>], row: usize) -> String {
    let Some((metric, estimate)) = estimated(column[row]) else { return "--".to_owned() };
    let number = |value: f64| match metric.unit {
        Unit::Percent => format!("{:.1}", value * 100.0),
        Unit::Count(_) => format!("{value:.2}"),
    };
    let value = number(estimate.value);
    let value = if is_best(column, row) { format!("\\textbf{{{value}}}") } else { value };
    match estimate.interval {
        Some((low, high)) => format!("{value}\\,$\\pm$\\,{}", number((high - low) / 2.0)),
        None => value,
    }
}

fn estimated(metric: Option<&MetricReport>) -> Option<(&MetricReport, &Estimate)> {
    metric.and_then(|metric| Some((metric, metric.estimate.as_ref()?)))
}

/// Whether a figure is better than every other one in its column, with intervals that do not overlap. A figure alone in
/// its column is not marked.
fn is_best(column: &[Option<&MetricReport>], row: usize) -> bool {
    let Some((metric, Estimate { interval: Some((low, high)), .. })) = estimated(column[row]) else {
        return false;
    };
    let others = column.iter().enumerate().filter(|(index, metric)| *index != row && metric.is_some());
    let mut others = others.map(|(_, metric)| estimated(*metric).and_then(|(_, estimate)| estimate.interval));
    let is_beaten = |other: Option<(f64, f64)>| match other {
        Some((_, most)) if metric.higher_is_better => most < *low,
        Some((least, _)) => least > *high,
        None => false,
    };
    let alone = column.iter().flatten().count() < 2;
    !alone && others.all(is_beaten)
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
            '\u{b1}' => escaped.push_str("$\\pm$"),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use lumos_benchmarks::MetricKind;

    use super::*;

    fn metric(value: f64, interval: Option<(f64, f64)>, higher_is_better: bool) -> MetricReport {
        let estimate = Estimate {
            value,
            numerator: value * 10.0,
            denominator: 10.0,
            items: 10,
            standard_error: None,
            interval,
            method: None,
        };
        MetricReport {
            metric: "exact_match".to_owned(),
            kind: MetricKind::Proportion,
            unit: Unit::Percent,
            higher_is_better,
            estimate: Some(estimate),
            bounds: None,
            published: Vec::new(),
            groups: Vec::new(),
        }
    }

    #[test]
    fn only_a_figure_with_a_separate_interval_is_bold() {
        let (low, middle) = (metric(0.2, Some((0.1, 0.3)), true), metric(0.5, Some((0.35, 0.65)), true));
        let (high, close) = (metric(0.9, Some((0.8, 0.95)), true), metric(0.85, Some((0.7, 0.92)), true));
        let best = |column: &[&MetricReport]| -> Vec<bool> {
            let column: Vec<_> = column.iter().map(|metric| Some(*metric)).collect();
            (0..column.len()).map(|row| is_best(&column, row)).collect()
        };
        assert_eq!(best(&[&low, &middle, &high]), [false, false, true]);
        assert_eq!(best(&[&low, &high, &close]), [false; 3]);
        assert_eq!(best(&[&high]), [false], "nothing to compare with");
        let without = metric(0.1, None, true);
        assert_eq!(best(&[&high, &without]), [false; 2]);
        let (few, many) = (metric(2.0, Some((1.0, 3.0)), false), metric(8.0, Some((7.0, 9.0)), false));
        assert_eq!(best(&[&few, &many]), [true, false], "lower is better");
        assert_eq!(figure(&[Some(&high), Some(&low)], 0), "\\textbf{90.0}\\,$\\pm$\\,7.5");
        assert_eq!(figure(&[None], 0), "--");
    }

    #[test]
    fn special_characters_are_escaped() {
        assert_eq!(
            escaped("a_b & 5 % {x} ~ ^ \\ # $"),
            "a\\_b \\& 5 \\% \\{x\\} \\textasciitilde{} \\textasciicircum{} \\textbackslash{} \\# \\$"
        );
    }
}
