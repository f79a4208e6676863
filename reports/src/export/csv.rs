//! A CSV file with a line per recorded unit.

use std::path::Path;

use csv::Writer;

use crate::model_id::ModelNames;

use super::columns::{Cell, Columns};
use super::convert::ExportSummary;
use super::formats::ExportFormat;
use super::source::RunSource;
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
