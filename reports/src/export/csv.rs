//! A CSV file with a line per recorded unit, and the flat columns that Parquet has, too.

use std::path::Path;

use csv::Writer;
use jiff::Timestamp;
use lumos_benchmarks::{Scoring, Share};
use lumos_tasks::{Ending, NanoDollars, Step};

use crate::display::{prediction_text, task_text};
use crate::model_id::ModelNames;
use crate::results::{Cause, ScoreError};

use super::convert::{ExportFormat, ExportSummary};
use super::source::{RecordedUnit, RunSource};
use super::{ExportError, write_file};

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "csv",
    about: "a row per unit",
    rows: "units",
    write: |folder, source, options, _| {
        let file = folder.join("units.csv");
        let rows = write(&file, source, &options.names)?;
        Ok(ExportSummary::new(vec![file], rows, source))
    },
};

/// Writes all recorded units to a file. Returns their number.
fn write(file: &Path, source: &RunSource<'_>, names: &ModelNames) -> Result<u64, ExportError> {
    let columns = Columns::of(source, names)?;
    let fail = |error: csv::Error| ExportError::at(file)(error.into());
    let mut rows = 0;
    write_file(file, |out| {
        let mut writer = Writer::from_writer(out);
        writer.write_record(columns.list.iter().map(|(name, _)| name)).map_err(fail)?;
        for (position, ..) in source.cells() {
            source.for_each_recorded(position, |unit| {
                rows += 1;
                writer.write_record(columns.row(unit).into_iter().map(Cell::text)).map_err(fail)
            })?;
        }
        writer.flush().map_err(ExportError::at(file))
    })?;
    Ok(rows)
}

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnKind {
    Text,
    Integer,
    Float,
    /// Milliseconds since 1970, UTC.
    Time,
}

/// Value of a column; `None` if it is missing.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    Text(Option<String>),
    Integer(Option<i64>),
    Float(Option<f64>),
    Time(Option<i64>),
}

/// The columns of an export.
pub(super) struct Columns {
    /// Names and types, in order.
    pub(super) list: Vec<(String, ColumnKind)>,
    run: String,
    names: ModelNames,
    /// Metrics of all benchmarks under every scoring; each has a column of values and one of weights.
    metrics: Vec<(Scoring, &'static str)>,
}

/// Columns before the metrics.
const LEADING: [(&str, ColumnKind); 18] = [
    ("run", ColumnKind::Text),
    ("benchmark", ColumnKind::Text),
    ("formulation", ColumnKind::Text),
    ("behaviour", ColumnKind::Text),
    ("seed", ColumnKind::Integer),
    ("models", ColumnKind::Text),
    ("configuration", ColumnKind::Text),
    ("unit", ColumnKind::Text),
    ("item", ColumnKind::Integer),
    ("item_name", ColumnKind::Text),
    ("group", ColumnKind::Text),
    ("task", ColumnKind::Text),
    ("gold", ColumnKind::Text),
    ("prediction", ColumnKind::Text),
    ("status", ColumnKind::Text),
    ("cause", ColumnKind::Text),
    ("turn", ColumnKind::Integer),
    ("error", ColumnKind::Text),
];

/// Columns after the metrics.
const TRAILING: [(&str, ColumnKind); 6] = [
    ("prompt_tokens", ColumnKind::Integer),
    ("completion_tokens", ColumnKind::Integer),
    ("seconds", ColumnKind::Float),
    ("cost", ColumnKind::Float),
    ("started", ColumnKind::Time),
    ("worker", ColumnKind::Text),
];

impl Columns {
    /// Returns the columns of a run: those of the metrics of all its benchmarks.
    pub(super) fn of(source: &RunSource<'_>, names: &ModelNames) -> Result<Self, ScoreError> {
        let mut metrics: Vec<(Scoring, &'static str)> = Vec::new();
        for planned in &source.manifest.configurations {
            for metric in source.metrics(planned)? {
                for scoring in &source.scorings {
                    if !metrics.contains(&(*scoring, metric.name)) {
                        metrics.push((*scoring, metric.name));
                    }
                }
            }
        }
        let owned = |(name, kind): &(&str, ColumnKind)| ((*name).to_owned(), *kind);
        let figures = metrics.iter().flat_map(|(scoring, metric)| {
            let name = format!("{metric}_{scoring}");
            [(name.clone(), ColumnKind::Float), (format!("{name}_weight"), ColumnKind::Float)]
        });
        let list = LEADING.iter().map(owned).chain(figures).chain(TRAILING.iter().map(owned)).collect();
        let run = source.manifest.spec.name.clone();
        Ok(Self { list, run, names: names.clone(), metrics })
    }

    /// Returns the values of a unit, in the order of the columns.
    pub(super) fn row(&self, unit: &RecordedUnit<'_>) -> Vec<Cell> {
        let (item, outcome, telemetry) = (unit.item, unit.outcome(), &unit.record.telemetry);
        let configuration = &unit.planned.configuration;
        let text = |text: &str| Cell::Text(Some(text.to_owned()));
        let count = |count: u64| Cell::Integer(i64::try_from(count).ok());
        let last_turn = outcome.steps.last().map(Step::turn);
        let (turn, error) = match &outcome.ending {
            Ending::Answered => (last_turn, None),
            Ending::GaveUp(reason) => (Some(reason.turn), Some(reason.detail.clone())),
            Ending::Faulted(fault) => (last_turn, Some(fault.to_string())),
        };
        let mut row = vec![
            text(&self.run),
            text(&configuration.benchmark),
            Cell::Text(Some(configuration.formulation.to_string())),
            Cell::Text(Some(configuration.behaviour.to_string())),
            count(configuration.seed),
            Cell::Text(Some(self.names.aliases(configuration))),
            text(unit.planned.identity.as_str()),
            text(unit.unit.as_str()),
            count(item.index),
            Cell::Text(item.name.clone()),
            Cell::Text(item.group.clone()),
            text(task_text(&item.task)),
            text(item.target.text()),
            Cell::Text(prediction_text(outcome)),
            text(outcome.ending.status()),
            text(Cause::of(outcome, unit.is_correct()).name()),
            Cell::Integer(turn.map(i64::from)),
            Cell::Text(error),
        ];
        for (scoring, metric) in &self.metrics {
            let mut shares = unit.shares();
            let share =
                shares.find(|(by, one, _)| by == scoring && one.name == *metric).map(|(.., share)| share);
            row.push(Cell::Float(share.map(Share::value)));
            row.push(Cell::Float(share.map(|share| share.denominator)));
        }
        let (read, written) = outcome.tokens();
        row.extend([
            count(read),
            count(written),
            Cell::Float(Some(telemetry.seconds)),
            Cell::Float(telemetry.cost.map(NanoDollars::dollars)),
            Cell::Time(Some(telemetry.started_ms)),
            text(&telemetry.worker),
        ]);
        row
    }
}

impl Cell {
    /// Formats the value for a text file; a missing value is empty.
    pub(super) fn text(self) -> String {
        match self {
            Self::Text(value) => value.unwrap_or_default(),
            Self::Integer(value) => value.map(|value| value.to_string()).unwrap_or_default(),
            Self::Float(value) => value.map(|value| value.to_string()).unwrap_or_default(),
            Self::Time(value) => {
                let time = value.and_then(|ms| Timestamp::from_millisecond(ms).ok());
                time.map(|time| time.to_string()).unwrap_or_default()
            }
        }
    }
}
