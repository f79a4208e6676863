//! All models and settings of a run over its benchmarks.

use lumos_benchmarks::statistics::{ALPHA, Limits, holm};
use lumos_benchmarks::{MetricDefinition, Unit, main_metric};
use lumos_tasks::{Configuration, ModelIdentity, Role};
use serde::Serialize;

use super::alias::{Labels, aliases};
use super::difference::{ItemPair, MetricComparison, PairedItems, item_shares};
use super::pooled::pooled;
use super::seeds::{SeedGroup, SettingsAxis, seed_groups};
use super::table::RunTable;

/// Table of models and settings by benchmark, with the main metric pooled over seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Matrix {
    /// The benchmarks.
    pub(crate) columns: Vec<MatrixColumn>,
    /// The models and settings.
    pub(crate) rows: Vec<MatrixRow>,
}

/// A benchmark.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MatrixColumn {
    /// The benchmark.
    pub(crate) benchmark: String,
    /// Its main metric.
    pub(crate) metric: String,
    /// Unit of the figures.
    pub(crate) unit: Unit,
    /// Position of the row with the best figure, if there are several figures.
    pub(crate) best: Option<usize>,
    /// Whether the row with the best figure is better than every other one over the items that both have (p below 0.05
    /// after Holm's correction).
    pub(crate) is_distinguishable: bool,
    /// Why it is not distinguishable, with the row that is better, closest or not compared.
    pub(crate) note: Option<String>,
}

/// A model and its settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MatrixRow {
    /// The values of the axes that vary.
    pub(crate) label: String,
    /// Figures by column; `None` where the run has no such configuration or no settled unit.
    pub(crate) cells: Vec<Option<MatrixCell>>,
}

/// A pooled figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct MatrixCell {
    /// The figure.
    pub(crate) value: f64,
    /// Its 95 % interval.
    pub(crate) interval: Option<Limits>,
    /// Number of items.
    pub(crate) items: u64,
    /// Number of seeds.
    pub(crate) seeds: u64,
}

/// Returns the table of a run; `None` if it has one row and one seed.
pub(crate) fn matrix(table: &RunTable, labels: &Labels) -> Option<Matrix> {
    let matrix = whole_matrix(table, labels);
    let has_seeds = matrix.rows.iter().flat_map(|row| row.cells.iter().flatten()).any(|cell| cell.seeds > 1);
    (matrix.rows.len() > 1 || has_seeds).then_some(matrix)
}

/// Returns the table of a run, whatever its size.
pub(crate) fn whole_matrix(table: &RunTable, labels: &Labels) -> Matrix {
    let groups = seed_groups(table);
    let rows = rows(table, &groups, labels);
    let mut matrix = Matrix {
        columns: Vec::new(),
        rows: rows.iter().map(|(label, _)| MatrixRow { label: label.clone(), cells: Vec::new() }).collect(),
    };
    for (position, items) in table.benchmarks.iter().enumerate() {
        let benchmark = items.benchmark;
        let column: Vec<Option<&SeedGroup>> = rows.iter().map(|(_, groups)| groups[position]).collect();
        let has_value = |metric: &MetricDefinition| {
            column.iter().flatten().any(|group| position_of(table, group, metric).is_some())
        };
        let Some(metric) = main_metric(benchmark.metrics(), has_value) else { continue };
        for (row, group) in matrix.rows.iter_mut().zip(&column) {
            row.cells.push(group.and_then(|group| cell(table, group, metric)));
        }
        let values: Vec<Option<f64>> =
            matrix.rows.iter().map(|row| row.cells.last()?.as_ref().map(|cell| cell.value)).collect();
        let names: Vec<&str> = matrix.rows.iter().map(|row| row.label.as_str()).collect();
        matrix.columns.push(judged(table, metric, benchmark.name(), &column, &values, &names));
    }
    matrix
}

fn position_of(table: &RunTable, group: &SeedGroup, metric: &MetricDefinition) -> Option<usize> {
    group.first(table).metrics.iter().position(|measured| measured.name == metric.name)
}

fn cell(table: &RunTable, group: &SeedGroup, metric: &MetricDefinition) -> Option<MatrixCell> {
    let pooled = pooled(table, group, position_of(table, group, metric)?);
    let estimate = pooled.estimate?;
    Some(MatrixCell {
        value: estimate.value,
        interval: estimate.interval,
        items: pooled.items,
        seeds: pooled.seeds,
    })
}

/// Finds the best row of a column, and whether it is distinguishable from the others.
fn judged(
    table: &RunTable,
    metric: &MetricDefinition,
    benchmark: &str,
    groups: &[Option<&SeedGroup>],
    values: &[Option<f64>],
    names: &[&str],
) -> MatrixColumn {
    let sign = if metric.higher_is_better { 1.0 } else { -1.0 };
    let known = || values.iter().enumerate().filter_map(|(row, value)| Some((row, (*value)? * sign)));
    let best = known().reduce(|best, one| if one.1 > best.1 { one } else { best }).map(|(row, _)| row);
    let best = best.filter(|_| known().count() > 1);
    let mut column = MatrixColumn {
        benchmark: benchmark.to_owned(),
        metric: metric.name.to_owned(),
        unit: metric.unit,
        best,
        is_distinguishable: false,
        note: None,
    };
    let Some(best) = best else { return column };
    let shares = |row: usize| {
        let group = groups[row]?;
        Some((item_shares(table, group, position_of(table, group, metric)?), group.cells.len() as u64))
    };
    let Some((of_best, seeds)) = shares(best) else { return column };
    let items = table.items_of(benchmark);
    let compared = |row: usize| -> Option<MetricComparison> {
        let (of_row, other_seeds) = shares(row)?;
        // Configurations may have fewer items than the benchmark has in the run.
        let common = of_row.len().min(of_best.len());
        let paired = PairedItems {
            metric,
            items: of_row.iter().zip(&of_best).map(|(a, b)| ItemPair { a, b }).collect(),
            clusters: items
                .filter(|items| items.is_clustered)
                .map(|items| items.clusters.iter().take(common).copied().collect()),
            seeds: (other_seeds, seeds),
        };
        paired.compare()
    };
    let (mut others, mut uncompared) = (Vec::new(), None);
    for (row, _) in known().filter(|(row, _)| *row != best) {
        match compared(row) {
            Some(compared) => others.push((row, compared)),
            None => uncompared = uncompared.or(Some(row)),
        }
    }
    let p: Vec<f64> = others.iter().map(|(_, compared)| compared.p_value).collect();
    let adjusted = holm(&p);
    let tested = || adjusted.iter().copied().zip(&others);
    // Figures are of each row's own items, differences of the items of both, so that their signs can differ.
    let better = tested().find(|(p, (_, compared))| *p < ALPHA && sign * compared.difference <= 0.0);
    let worst = tested().reduce(|worst, one| if one.0 > worst.0 { one } else { worst });
    let difference = |compared: &MetricComparison| {
        let (scale, unit) = match metric.unit {
            Unit::Percent => (100.0, "points"),
            Unit::Count(counted) => (1.0, counted),
        };
        let half = (compared.interval.1 - compared.interval.0) / 2.0 * scale;
        format!("difference {:.1} ± {half:.1} {unit}", compared.difference.abs() * scale)
    };
    column.note = if let Some((_, (row, compared))) = better {
        Some(format!(
            "{} has the best figure, but is worse than {} over the items that both have ({})",
            names[best],
            names[*row],
            difference(compared)
        ))
    } else if let Some((_, (row, compared))) = worst.filter(|(p, _)| *p >= ALPHA) {
        Some(format!(
            "{}, the best, is not distinguishable from {} ({})",
            names[best],
            names[*row],
            difference(compared)
        ))
    } else {
        uncompared.map(|row| {
            format!(
                "{} has the best figure, but is not compared with {}: fewer than two items have a value in both",
                names[best], names[row]
            )
        })
    };
    column.is_distinguishable = column.note.is_none();
    column
}

/// Label of a row, and its group for each benchmark.
type Row<'a> = (String, Vec<Option<&'a SeedGroup>>);

/// Returns the rows in the order of their first groups. Groups of one benchmark that have the same label are in
/// different rows.
fn rows<'a>(table: &RunTable, groups: &'a [SeedGroup], labels: &Labels) -> Vec<Row<'a>> {
    let names: Vec<&str> = groups
        .iter()
        .flat_map(|group| group.configuration(table).models.values())
        .map(|model| model.name.as_str())
        .collect();
    let aliases = aliases(&names, labels);
    let shown = |model: &ModelIdentity| aliases.get(&model.name).unwrap_or(&model.name).clone();
    // Modules that only some benchmarks have do not separate rows.
    let modules = |group: &SeedGroup| {
        let mut configuration: Configuration = group.configuration(table).clone();
        configuration.models.retain(|role, _| *role != Role::Qa);
        configuration
    };
    let axes = [SettingsAxis::Model, SettingsAxis::Formulation, SettingsAxis::Behaviour];
    let value = |axis: SettingsAxis, group: &SeedGroup| axis.value(&modules(group), shown);
    let mut varying: Vec<SettingsAxis> = axes
        .into_iter()
        .filter(|&axis| groups.iter().any(|group| value(axis, group) != value(axis, &groups[0])))
        .collect();
    if varying.is_empty() {
        varying.push(SettingsAxis::Model);
    }
    let mut rows: Vec<Row<'a>> = Vec::new();
    for group in groups {
        let label = varying.iter().map(|&axis| value(axis, group)).collect::<Vec<_>>().join(" ");
        let benchmark = &group.configuration(table).benchmark;
        let Some(column) = table.benchmarks.iter().position(|items| items.benchmark.name() == benchmark)
        else {
            continue;
        };
        match rows.iter_mut().find(|(other, groups)| *other == label && groups[column].is_none()) {
            Some((_, groups)) => groups[column] = Some(group),
            None => {
                let mut of_row = vec![None; table.benchmarks.len()];
                of_row[column] = Some(group);
                rows.push((label, of_row));
            }
        }
    }
    rows
}
