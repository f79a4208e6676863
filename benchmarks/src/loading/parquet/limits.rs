//! Checks the sizes that a Parquet file announces, before the library allocates memory for them.
//!
//! A file ends with a description of its schema and its row groups. A row group has a chunk of pages per column, and
//! every page has a header with its sizes. The library trusts these headers, so all of them are read here first: their
//! number is bounded by the file's length, and reading them skips the data.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::sync::Arc;

use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader};

use super::thrift::{Kind, Walker};
use crate::loading::MAX_RECORD;

/// Start and end of a file.
const MAGIC: &[u8; 4] = b"PAR1";
/// Length of the end of a file: the length of the description, and the magic.
const TAIL: u64 = 8;
/// Maximum length of the description of a file in bytes.
const LONGEST_DESCRIPTION: u64 = 64 << 20;
/// Maximum nesting of the schema. The library reads it by recursion.
const DEEPEST: usize = 32;
/// Maximum length of a page header in bytes; it may contain the least and the greatest value.
const LONGEST_HEADER: u64 = 1 << 20;

/// Limits of a column in a row group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Maximum size of a page in bytes.
    pub(super) page: u64,
    /// Maximum number of values. A few bytes can stand for any number of equal values.
    pub(super) values: u64,
}

impl Limits {
    /// Limits of data files.
    pub(super) const DATA: Self = Self { page: MAX_RECORD, values: 1 << 25 };
}

/// Reads the description of a file and checks it and all page headers. The error is a message.
pub(super) fn checked(file: &File, limits: Limits) -> Result<Arc<ParquetMetaData>, String> {
    let failed = |error: io::Error| match error.kind() {
        ErrorKind::UnexpectedEof => "not a Parquet file: it ends early".to_owned(),
        _ => error.to_string(),
    };
    let length = file.metadata().map_err(failed)?.len();
    let description = description(file, length).map_err(failed)??;
    check_schema(&description).map_err(failed)??;
    let metadata = ParquetMetaDataReader::decode_metadata(&description).map_err(|error| error.to_string())?;
    let mut pages = BufReader::new(file);
    for group in metadata.row_groups() {
        for column in group.columns() {
            let name = column.column_path().string();
            let checked = check_pages(&mut pages, column, length, limits).map_err(failed)?;
            checked.map_err(|message| format!("column `{name}`: {message}"))?;
        }
    }
    Ok(Arc::new(metadata))
}

/// Reads the description at the end of the file.
fn description(mut file: &File, length: u64) -> io::Result<Result<Vec<u8>, String>> {
    let mut start = [0; 4];
    file.seek(SeekFrom::Start(0))?;
    file.read_exact(&mut start)?;
    let mut tail = [0; TAIL as usize];
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    file.read_exact(&mut tail)?;
    let (size, magic) = tail.split_at(4);
    if start != *MAGIC || magic != MAGIC {
        return Ok(Err("not a Parquet file, or an encrypted or incomplete one".to_owned()));
    }
    let size = u64::from(size.iter().rev().fold(0u32, |sum, byte| sum << 8 | u32::from(*byte)));
    if size > LONGEST_DESCRIPTION || size + TAIL > length {
        return Ok(Err(format!(
            "its description has {size} bytes: expected at most {LONGEST_DESCRIPTION}, within the file"
        )));
    }
    file.seek(SeekFrom::Start(length - TAIL - size))?;
    let mut description = Vec::new();
    file.take(size).read_to_end(&mut description)?;
    Ok(Ok(description))
}

/// Checks the nesting of the schema: field 2 of the description is a list of its nodes in depth-first order, and
/// field 5 of a node is the number of its children.
fn check_schema(description: &[u8]) -> io::Result<Result<(), String>> {
    // Children that are still to come, of each node above the current one.
    let mut open: Vec<i64> = Vec::new();
    let mut deepest = 0;
    Walker::new(description).fields(|walker, field, kind| {
        if (field, kind) != (2, Kind::List) {
            return Ok(false);
        }
        let (kind, count) = walker.list()?;
        if kind != Kind::Struct {
            return Err(io::Error::new(ErrorKind::InvalidData, "invalid schema"));
        }
        for _ in 0..count {
            let mut children = 0;
            walker.fields(|walker, field, kind| {
                let is_count = (field, kind) == (5, Kind::Integer);
                if is_count {
                    children = walker.integer()?;
                }
                Ok(is_count)
            })?;
            if let Some(left) = open.last_mut() {
                *left -= 1;
            }
            if children > 0 && open.len() <= DEEPEST {
                open.push(children);
            }
            deepest = deepest.max(open.len());
            while open.last().is_some_and(|left| *left <= 0) {
                open.pop();
            }
        }
        Ok(true)
    })?;
    if deepest > DEEPEST {
        return Ok(Err(format!("its schema has more than {DEEPEST} levels")));
    }
    Ok(Ok(()))
}

/// Checks all page headers of a column in a row group.
fn check_pages(
    file: &mut BufReader<&File>,
    column: &ColumnChunkMetaData,
    length: u64,
    limits: Limits,
) -> io::Result<Result<(), String>> {
    let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
    let (Ok(start), Ok(size)) = (u64::try_from(start), u64::try_from(column.compressed_size())) else {
        return Ok(Err("negative position in the file".to_owned()));
    };
    let end = start.saturating_add(size);
    if end > length {
        return Ok(Err(format!("its pages end at byte {end} of a file of {length} bytes")));
    }
    let (mut position, mut values) = (start, 0u64);
    while position < end {
        file.seek(SeekFrom::Start(position))?;
        let header = read_header(file)?;
        let (Ok(unpacked), Ok(packed)) = (u64::try_from(header.unpacked), u64::try_from(header.packed))
        else {
            return Ok(Err("a page has a negative size".to_owned()));
        };
        if unpacked.max(packed) > limits.page {
            return Ok(Err(format!(
                "expected pages of at most {} bytes, found one of {}; write the file with smaller pages",
                limits.page,
                unpacked.max(packed)
            )));
        }
        values = values.saturating_add(u64::try_from(header.values).unwrap_or(u64::MAX));
        if values > limits.values {
            return Ok(Err(format!(
                "expected at most {} values in a row group; write the file with smaller row groups",
                limits.values
            )));
        }
        position = position.saturating_add(header.length).saturating_add(packed);
    }
    Ok(Ok(()))
}

/// What a page header announces.
#[derive(Debug, Default)]
struct PageSizes {
    /// Length of the header itself.
    length: u64,
    unpacked: i64,
    packed: i64,
    values: i64,
}

fn read_header(file: &mut BufReader<&File>) -> io::Result<PageSizes> {
    let mut sizes = PageSizes::default();
    let mut walker = Walker::new(file.take(LONGEST_HEADER));
    walker.fields(|walker, field, kind| {
        match (field, kind) {
            (2, Kind::Integer) => sizes.unpacked = walker.integer()?,
            (3, Kind::Integer) => sizes.packed = walker.integer()?,
            // The headers of data pages and of the dictionary; field 1 of each is the number of values.
            (5 | 7 | 8, Kind::Struct) => walker.fields(|walker, field, kind| {
                let is_count = (field, kind) == (1, Kind::Integer);
                if is_count {
                    sizes.values = sizes.values.max(walker.integer()?);
                }
                Ok(is_count)
            })?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    sizes.length = walker.length();
    Ok(sizes)
}
