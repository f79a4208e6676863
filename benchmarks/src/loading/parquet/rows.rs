//! Iterates over the rows of a Parquet file.

use std::collections::HashSet;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::{Array, StructArray};
use arrow_schema::Schema;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::file::metadata::ParquetMetaData;

use super::limits::{self, Limits};
use super::values::{Refusal, as_views, object};
use crate::loading::{Flaw, Located, MAX_RECORD, too_long};

/// Size of the rows that are decoded together, in bytes, if the file describes them correctly.
const BATCH: u64 = 16 << 20;
/// Maximum number of rows that are decoded together.
const MOST_ROWS: u64 = 1024;

/// Iterator over the rows of a file.
pub(super) struct Rows {
    batches: ParquetRecordBatchReader,
    /// Decoded rows, and the position of the next one.
    decoded: Option<(StructArray, usize)>,
    /// Number of rows returned so far.
    row: u64,
    ended: bool,
}

impl Rows {
    /// Checks a file. The error is a message.
    pub(super) fn new(file: File) -> Result<Self, String> {
        let batches = guarded(|| {
            let metadata = limits::checked(&file, Limits::DATA)?;
            // The schema that other programs add is ignored: it is not needed, and one thing less to trust.
            let plain = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
            let described = ArrowReaderMetadata::try_new(Arc::clone(&metadata), plain.clone())
                .map_err(|error| error.to_string())?;
            let fields = described.schema().fields();
            let mut names = HashSet::new();
            if let Some(field) = fields.iter().find(|field| !names.insert(field.name())) {
                return Err(format!("two columns have the name `{}`", field.name()));
            }
            let views = Arc::new(Schema::new(as_views(fields)));
            let size = batch_size(&metadata);
            let metadata = ArrowReaderMetadata::try_new(metadata, plain.with_schema(views))
                .map_err(|error| error.to_string())?;
            ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
                .with_batch_size(size)
                .build()
                .map_err(|error| error.to_string())
        })?;
        Ok(Self { batches, decoded: None, row: 0, ended: false })
    }

    /// Decodes the next rows. Returns `None` at the end.
    fn decode(&mut self) -> Option<Result<StructArray, String>> {
        let batches = AssertUnwindSafe(&mut self.batches);
        let batch = guarded(move || {
            let AssertUnwindSafe(batches) = batches;
            let batch = batches.next().transpose().map_err(|error| error.to_string())?;
            Ok(batch.map(StructArray::from))
        });
        batch.transpose()
    }
}

/// Calls the library, which panics at some malformed files, and returns a message then.
fn guarded<T>(call: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err("malformed Parquet file".to_owned()))
}

/// Number of rows that are decoded together.
fn batch_size(metadata: &ParquetMetaData) -> usize {
    let row_bytes = metadata.row_groups().iter().map(|group| {
        let unpacked = group.columns().iter().map(|column| u64::try_from(column.uncompressed_size()));
        let bytes = unpacked.map(|bytes| bytes.unwrap_or(u64::MAX)).fold(0, u64::saturating_add);
        bytes / u64::try_from(group.num_rows()).unwrap_or(0).max(1)
    });
    let rows = (BATCH / row_bytes.max().unwrap_or(0).max(1)).clamp(1, MOST_ROWS);
    usize::try_from(rows).unwrap_or(1)
}

impl Iterator for Rows {
    type Item = Located;

    fn next(&mut self) -> Option<Located> {
        loop {
            if self.ended {
                return None;
            }
            if let Some((rows, index)) = &mut self.decoded
                && *index < rows.len()
            {
                self.row += 1;
                let line = self.row;
                let content = object(rows, *index, &mut { MAX_RECORD }).map_err(|refusal| match refusal {
                    Refusal::TooLong => too_long(MAX_RECORD),
                    Refusal::Unsupported(kind) => Flaw::Row {
                        line,
                        expected: "values that JSON has".to_owned(),
                        found: format!("a value of type {kind}"),
                    },
                });
                *index += 1;
                self.ended = matches!(content, Err(Flaw::Broken { .. }));
                return Some(Located { line, content });
            }
            match self.decode() {
                Some(Ok(rows)) => self.decoded = Some((rows, 0)),
                Some(Err(message)) => {
                    self.ended = true;
                    return Some(Located { line: self.row + 1, content: Err(Flaw::Unreadable(message)) });
                }
                None => self.ended = true,
            }
        }
    }
}
