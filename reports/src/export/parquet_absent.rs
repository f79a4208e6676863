//! The Parquet format in a build without the feature `parquet`.

use super::ExportError;
use super::formats::ExportFormat;

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "parquet",
    about: "a row per unit",
    rows: "units",
    write: |_, _, _, _| Err(ExportError::NotBuilt("parquet")),
};
