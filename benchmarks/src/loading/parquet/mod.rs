//! Reads Parquet files: each row is a record, with the same JSON as in the other formats.
//!
//! `limits` checks the sizes that a file announces (with `thrift`), the library decodes a few rows at a time, and
//! `values` converts a row. A build without the feature `parquet` has only [`open`], which says so.

#[cfg(feature = "parquet")]
mod limits;
#[cfg(feature = "parquet")]
mod rows;
#[cfg(all(test, feature = "parquet"))]
mod tests;
#[cfg(feature = "parquet")]
mod thrift;
#[cfg(feature = "parquet")]
mod values;

use std::fs::File;

use super::items::Records;

/// Opens a file as a stream of records, whose lines are the numbers of their rows. The error is a message.
#[cfg(feature = "parquet")]
pub(super) fn open(file: File) -> Result<Records, String> {
    Ok(Box::new(rows::Rows::new(file)?))
}

/// Reports that this build cannot read Parquet.
#[cfg(not(feature = "parquet"))]
pub(super) fn open(_: File) -> Result<Records, String> {
    Err("this program was built without `parquet`; build it with `cargo build --release --features parquet`"
        .to_owned())
}
