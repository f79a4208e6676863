use std::fs::{self, File};
use std::sync::Arc;

use arrow_array::builder::{Int32Builder, ListBuilder, MapBuilder, StringBuilder};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array,
    Int64Array, LargeStringArray, RecordBatch, StringArray, StructArray, TimestampMillisecondArray,
    UInt8Array,
};
use arrow_schema::{DataType, Field, Fields, Schema};
use lumos_capabilities::seed;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, GzipLevel, ZstdLevel};
use parquet::file::properties::WriterProperties;
use rand_mt::Mt64;
use serde_json::{Value, json};

use super::limits::{Limits, checked};
use super::rows::Rows;
use crate::loading::{Flaw, Located};

/// Writes columns to a file.
fn written(columns: Vec<(&str, ArrayRef)>, properties: WriterProperties) -> tempfile::NamedTempFile {
    let field = |(name, column): &(&str, ArrayRef)| Field::new(*name, column.data_type().clone(), true);
    let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = ArrowWriter::try_new(file.reopen().unwrap(), schema, Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    file
}

fn read(file: &tempfile::NamedTempFile) -> Vec<(u64, Result<Value, Flaw>)> {
    let rows = Rows::new(file.reopen().unwrap()).unwrap();
    rows.map(|Located { line, content }| (line, content)).collect()
}

fn refused(file: &tempfile::NamedTempFile) -> String {
    Rows::new(file.reopen().unwrap()).map(drop).unwrap_err()
}

fn texts(texts: &[Option<&str>]) -> ArrayRef {
    Arc::new(texts.iter().copied().collect::<StringArray>())
}

#[test]
fn rows_are_the_objects_that_other_formats_give() {
    let mut lists = ListBuilder::new(StringBuilder::new());
    lists.append_value([Some("red"), None]);
    lists.append_null();
    let mut maps = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    maps.keys().append_value("level");
    maps.values().append_value(3);
    maps.append(true).unwrap();
    maps.append(true).unwrap();
    let inner: ArrayRef = Arc::new(UInt8Array::from(vec![Some(1), None]));
    let fields = Fields::from(vec![
        Field::new("text", DataType::Utf8, true),
        Field::new("number", DataType::UInt8, true),
    ]);
    let nested = StructArray::new(fields, vec![texts(&[Some("Ada"), None]), inner], None);
    let decimals = Decimal128Array::from(vec![Some(1250), None]).with_precision_and_scale(9, 2).unwrap();
    let times = TimestampMillisecondArray::from(vec![1_764_028_800_000, -1]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("question", texts(&[Some("One and one?"), Some("é")])),
        ("long", Arc::new(LargeStringArray::from(vec!["a text of more than twelve bytes", "b"]))),
        ("answer", Arc::new(Int64Array::from(vec![Some(2), None]))),
        ("share", Arc::new(Float32Array::from(vec![0.1, f32::NAN]))),
        ("score", Arc::new(Float64Array::from(vec![0.1, -2.5]))),
        ("known", Arc::new(BooleanArray::from(vec![true, false]))),
        ("bytes", Arc::new(BinaryArray::from(vec![&b"\x00\xff"[..], b""]))),
        ("day", Arc::new(Date32Array::from(vec![0, 20_417]))),
        ("time", Arc::new(times.clone())),
        ("zoned", Arc::new(times.with_timezone("UTC"))),
        ("price", Arc::new(decimals)),
        ("colours", Arc::new(lists.finish())),
        ("meta", Arc::new(maps.finish())),
        ("gold", Arc::new(nested)),
    ];
    let zstd = Compression::ZSTD(ZstdLevel::default());
    let gzip = Compression::GZIP(GzipLevel::default());
    for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, zstd, gzip] {
        let properties = WriterProperties::builder().set_compression(compression).build();
        let rows = read(&written(columns.clone(), properties));
        let first = json!({
            "question": "One and one?", "long": "a text of more than twelve bytes", "answer": 2, "share": 0.1,
            "score": 0.1, "known": true, "bytes": "00ff", "day": "1970-01-01", "time": "2025-11-25T00:00:00",
            "zoned": "2025-11-25T00:00:00Z", "price": "12.50", "colours": ["red", null],
            "meta": {"level": 3}, "gold": {"text": "Ada", "number": 1},
        });
        let second = json!({
            "question": "é", "long": "b", "answer": null, "share": null, "score": -2.5, "known": false,
            "bytes": "", "day": "2025-11-25", "time": "1969-12-31T23:59:59.999",
            "zoned": "1969-12-31T23:59:59.999Z", "price": null, "colours": null, "meta": {},
            "gold": {"text": null, "number": null},
        });
        assert_eq!(rows, [(1, Ok(first)), (2, Ok(second))], "{compression:?}");
    }
}

#[test]
fn all_row_groups_are_read_in_order() {
    let numbers: ArrayRef = Arc::new((0..5000).collect::<Int64Array>());
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(1700)).build();
    let rows = read(&written(vec![("n", numbers)], properties));
    assert_eq!(rows.len(), 5000);
    for (index, (line, row)) in rows.into_iter().enumerate() {
        assert_eq!((line, row), (index as u64 + 1, Ok(json!({"n": index}))));
    }
}

#[test]
fn other_files_are_refused() {
    let file = |bytes: &[u8]| {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), bytes).unwrap();
        refused(&file)
    };
    assert_eq!(file(b""), "not a Parquet file: it ends early");
    let other = "not a Parquet file, or an encrypted or incomplete one";
    assert_eq!(file(b"{\"question\": \"a\"}"), other);
    assert_eq!(file(b"PAR1 cut"), other);
    let size = file(b"PAR1\xff\xff\xff\xffPAR1");
    assert!(size.starts_with("its description has 4294967295 bytes: expected at most 67108864"), "{size}");
    let column = texts(&[Some("a")]);
    let twice = written(vec![("a", Arc::clone(&column)), ("a", column)], WriterProperties::default());
    assert_eq!(refused(&twice), "two columns have the name `a`");
}

#[test]
fn announced_sizes_are_checked_before_data_is_read() {
    let column: ArrayRef =
        Arc::new(std::iter::repeat_n(Some("x".repeat(100)), 1000).collect::<StringArray>());
    let properties = WriterProperties::builder().set_dictionary_enabled(false).build();
    let file = written(vec![("text", column)], properties).into_temp_path();
    let refused = |limits| checked(&File::open(&file).unwrap(), limits).map(drop);
    assert_eq!(refused(Limits::DATA), Ok(()));
    let small = refused(Limits { page: 1000, ..Limits::DATA }).unwrap_err();
    assert!(
        small.starts_with("column `text`: expected pages of at most 1000 bytes, found one of 104"),
        "{small}"
    );
    let few = refused(Limits { values: 999, ..Limits::DATA }).unwrap_err();
    assert!(few.starts_with("column `text`: expected at most 999 values in a row group"), "{few}");
}

#[test]
fn deep_schemas_are_refused_before_they_are_read_by_recursion() {
    let nested = |levels: usize| {
        let mut column = texts(&[Some("a")]);
        for _ in 0..levels {
            let field = Field::new("in", column.data_type().clone(), true);
            column = Arc::new(StructArray::new(vec![field].into(), vec![column], None));
        }
        written(vec![("out", column)], WriterProperties::default())
    };
    assert_eq!(read(&nested(20)).len(), 1);
    assert_eq!(refused(&nested(40)), "its schema has more than 32 levels");
}

#[test]
fn a_row_longer_than_the_limit_is_refused() {
    // A list repeats a text of 1 MiB, which the file has once.
    let mut lists = ListBuilder::new(StringBuilder::new());
    let text = "x".repeat(1 << 20);
    lists.append_value(std::iter::repeat_n(Some(&text), 70));
    let file = written(vec![("texts", Arc::new(lists.finish()))], WriterProperties::default());
    assert!(file.path().metadata().unwrap().len() < 4 << 20);
    let rows = read(&file);
    assert!(
        matches!(&rows[..], [(1, Err(Flaw::Broken { found, .. }))] if found == "a longer record"),
        "{rows:?}"
    );
}

#[test]
fn damaged_files_end_with_an_error_or_rows() {
    let numbers: ArrayRef = Arc::new((0..50).collect::<Int64Array>());
    let words: Vec<_> =
        ["one", "two", "a text of more than twelve bytes"].into_iter().map(Some).cycle().take(50).collect();
    let mut lists = ListBuilder::new(StringBuilder::new());
    (0..50).for_each(|count| lists.append_value((0..count % 4).map(|n| Some(n.to_string()))));
    let columns = || {
        vec![
            ("n", Arc::clone(&numbers)),
            ("text", texts(&words)),
            ("list", Arc::new(lists.finish_cloned()) as ArrayRef),
        ]
    };
    let mut random = Mt64::new(seed(1));
    let mut below = |limit: usize| usize::try_from(random.next_u64() % limit as u64).unwrap();
    for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY] {
        let properties = WriterProperties::builder().set_compression(compression).build();
        let bytes = fs::read(written(columns(), properties).path()).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        for _ in 0..300 {
            let mut damaged = bytes.clone();
            for _ in 0..=below(4) {
                let place = below(damaged.len());
                damaged[place] = u8::try_from(below(256)).unwrap();
            }
            if below(8) == 0 {
                damaged.truncate(below(damaged.len()));
            }
            fs::write(file.path(), damaged).unwrap();
            if let Ok(rows) = Rows::new(file.reopen().unwrap()) {
                assert!(rows.count() < 1 << 20);
            }
        }
    }
}
