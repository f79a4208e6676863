//! A Parquet file with a row per recorded unit: the columns of CSV, the steps and the record.
//!
//! There are no map columns, because `datasets` cannot read them. Values without a fixed structure (a step's call, the
//! item's record) are JSON strings.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, Float64Builder, Int64Builder, ListBuilder, StringBuilder, StructBuilder,
    TimestampMillisecondBuilder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema, TimeUnit};
use lumos_tasks::Step;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use serde_json::json;

use crate::display::observation_text;
use crate::model_id::ModelNames;

use super::ExportError;
use super::convert::{ExportFormat, ExportSummary};
use super::csv::{Cell, ColumnKind, Columns};
use super::source::{RecordedUnit, RunSource};

/// Rows in a row group, which are in memory at once.
const ROWS: usize = 1000;

const UTC: &str = "UTC";

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "parquet",
    about: "a row per unit",
    rows: "units",
    write: |folder, source, options, _| {
        let file = folder.join("units.parquet");
        let rows = write(&file, source, &options.names)?;
        Ok(ExportSummary::new(vec![file], rows, source))
    },
};

/// Writes all recorded units to a file. Returns their number.
fn write(file: &Path, source: &RunSource<'_>, names: &ModelNames) -> Result<u64, ExportError> {
    let fail = |error: ParquetError| ExportError::at(file)(std::io::Error::other(error));
    let columns = Columns::of(source, names)?;
    let schema = Arc::new(schema(&columns));
    let out = File::create(file).map_err(ExportError::at(file))?;
    let level = ZstdLevel::try_new(3).map_err(fail)?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_max_row_group_row_count(Some(ROWS))
        .build();
    let mut writer = ArrowWriter::try_new(out, Arc::clone(&schema), Some(properties)).map_err(fail)?;
    let mut rows = RowGroup::new(&columns);
    let mut count = 0;
    for (position, ..) in source.cells() {
        source.for_each_recorded(position, |unit| {
            rows.add(&columns, unit);
            count += 1;
            if rows.length < ROWS {
                return Ok(());
            }
            let batch = rows.finish(&schema).map_err(|error| fail(error.into()))?;
            writer.write(&batch).map_err(fail)
        })?;
    }
    if rows.length > 0 {
        let batch = rows.finish(&schema).map_err(|error| fail(error.into()))?;
        writer.write(&batch).map_err(fail)?;
    }
    let out = writer.into_inner().map_err(fail)?;
    out.sync_all().map_err(ExportError::at(file))?;
    Ok(count)
}

fn schema(columns: &Columns) -> Schema {
    let kind = |kind: ColumnKind| match kind {
        ColumnKind::Text => DataType::Utf8,
        ColumnKind::Integer => DataType::Int64,
        ColumnKind::Float => DataType::Float64,
        ColumnKind::Time => DataType::Timestamp(TimeUnit::Millisecond, Some(UTC.into())),
    };
    let flat = columns.list.iter().map(|(name, column)| Field::new(name, kind(*column), true));
    let item = Field::new("item", DataType::Struct(step_fields()), true);
    let steps = Field::new("steps", DataType::List(Arc::new(item)), true);
    Schema::new(flat.chain([steps, Field::new("record", DataType::Utf8, true)]).collect::<Vec<_>>())
}

/// Fields of a step: those of a reply, or `call` and `reply` of a tool call or an action.
fn step_fields() -> Fields {
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    let count = |name: &str| Field::new(name, DataType::Int64, true);
    Fields::from(vec![
        text("step"),
        count("turn"),
        text("role"),
        text("prompt"),
        text("reply"),
        count("prompt_tokens"),
        count("completion_tokens"),
        text("call"),
    ])
}

/// A column under construction.
enum ColumnBuilder {
    Text(StringBuilder),
    Integer(Int64Builder),
    Float(Float64Builder),
    Time(TimestampMillisecondBuilder),
}

impl ColumnBuilder {
    fn new(kind: ColumnKind) -> Self {
        match kind {
            ColumnKind::Text => Self::Text(StringBuilder::new()),
            ColumnKind::Integer => Self::Integer(Int64Builder::new()),
            ColumnKind::Float => Self::Float(Float64Builder::new()),
            ColumnKind::Time => Self::Time(TimestampMillisecondBuilder::new().with_timezone(UTC)),
        }
    }

    /// Appends a value of the column's type.
    fn add(&mut self, cell: Cell) {
        match (self, cell) {
            (Self::Text(column), Cell::Text(value)) => column.append_option(value),
            (Self::Integer(column), Cell::Integer(value)) => column.append_option(value),
            (Self::Float(column), Cell::Float(value)) => column.append_option(value),
            (Self::Time(column), Cell::Time(value)) => column.append_option(value),
            (column, _) => column.add_missing(),
        }
    }

    fn add_missing(&mut self) {
        match self {
            Self::Text(column) => column.append_null(),
            Self::Integer(column) => column.append_null(),
            Self::Float(column) => column.append_null(),
            Self::Time(column) => column.append_null(),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Text(column) => Arc::new(column.finish()),
            Self::Integer(column) => Arc::new(column.finish()),
            Self::Float(column) => Arc::new(column.finish()),
            Self::Time(column) => Arc::new(column.finish()),
        }
    }
}

/// Rows that are not written yet.
struct RowGroup {
    flat: Vec<ColumnBuilder>,
    steps: ListBuilder<StructBuilder>,
    records: StringBuilder,
    length: usize,
}

impl RowGroup {
    fn new(columns: &Columns) -> Self {
        let fields = step_fields();
        let builders = fields.iter().map(|field| match field.data_type() {
            DataType::Int64 => Box::new(Int64Builder::new()) as Box<dyn ArrayBuilder>,
            _ => Box::new(StringBuilder::new()) as Box<dyn ArrayBuilder>,
        });
        let builders = builders.collect();
        Self {
            flat: columns.list.iter().map(|(_, kind)| ColumnBuilder::new(*kind)).collect(),
            steps: ListBuilder::new(StructBuilder::new(fields, builders)),
            records: StringBuilder::new(),
            length: 0,
        }
    }

    fn add(&mut self, columns: &Columns, unit: &RecordedUnit<'_>) {
        for (builder, cell) in self.flat.iter_mut().zip(columns.row(unit)) {
            builder.add(cell);
        }
        for step in &unit.outcome().steps {
            add_step(self.steps.values(), step);
        }
        self.steps.append(true);
        self.records.append_value(unit.item.record.to_string());
        self.length += 1;
    }

    fn finish(&mut self, schema: &Arc<Schema>) -> Result<RecordBatch, ArrowError> {
        self.length = 0;
        let mut arrays: Vec<ArrayRef> = self.flat.iter_mut().map(ColumnBuilder::finish).collect();
        arrays.push(Arc::new(self.steps.finish()));
        arrays.push(Arc::new(self.records.finish()));
        RecordBatch::try_new(Arc::clone(schema), arrays)
    }
}

fn add_step(builder: &mut StructBuilder, step: &Step) {
    let mut texts: [Option<String>; 5] = Default::default();
    let mut tokens = [None, None];
    let turn = match step {
        Step::Generate { turn, role, prompt, reply, prompt_tokens, completion_tokens, .. } => {
            texts = [
                Some("generate".to_owned()),
                Some(role.name().to_owned()),
                Some(prompt.clone()),
                Some(reply.clone()),
                None,
            ];
            tokens = [*prompt_tokens, *completion_tokens];
            turn
        }
        Step::Call { turn, call, reply } => {
            texts[0] = Some("call".to_owned());
            texts[3] = Some(json!(reply).to_string());
            texts[4] = Some(json!(call).to_string());
            turn
        }
        Step::Action { turn, action, observation } => {
            texts[0] = Some("action".to_owned());
            texts[3] = Some(observation_text(observation));
            texts[4] = Some(json!({"action": action}).to_string());
            turn
        }
    };
    // Columns of `step_fields`.
    for (column, text) in [0, 2, 3, 4, 7].into_iter().zip(texts) {
        if let Some(field) = builder.field_builder::<StringBuilder>(column) {
            field.append_option(text);
        }
    }
    let counts = [Some(*turn), tokens[0], tokens[1]].map(|count| count.map(i64::from));
    for (column, count) in [1, 5, 6].into_iter().zip(counts) {
        if let Some(field) = builder.field_builder::<Int64Builder>(column) {
            field.append_option(count);
        }
    }
    builder.append(true);
}
