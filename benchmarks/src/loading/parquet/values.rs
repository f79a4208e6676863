//! Converts rows of Parquet files to JSON.
//!
//! Lists become arrays; structures, and maps with texts or numbers as keys, become objects. Dates and times become
//! texts in ISO 8601, decimals texts with all their digits, bytes hexadecimal texts, and numbers that JSON does not
//! have null.

use std::fmt::Write;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Time32MillisecondType,
    Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, PrimitiveArray, StructArray};
use arrow_schema::{DataType, Field, Fields, TimeUnit};
use serde_json::{Map, Value};

/// Why a row cannot be converted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is longer than the limit.
    TooLong,
    /// A value has a type without an equivalent in JSON.
    Unsupported(String),
}

/// Returns the type under which values are read: texts and bytes as views of their pages, which are not copied, because
/// a file may repeat a long text in a few bytes.
pub(super) fn as_views(fields: &Fields) -> Fields {
    let field = |field: &Arc<Field>| Arc::new(Field::clone(field).with_data_type(as_view(field.data_type())));
    fields.iter().map(field).collect()
}

fn as_view(kind: &DataType) -> DataType {
    let inner = |field: &Arc<Field>| Arc::new(Field::clone(field).with_data_type(as_view(field.data_type())));
    match kind {
        DataType::Utf8 => DataType::Utf8View,
        DataType::Binary => DataType::BinaryView,
        DataType::List(field) => DataType::List(inner(field)),
        DataType::Struct(fields) => DataType::Struct(as_views(fields)),
        DataType::Map(field, sorted) => DataType::Map(inner(field), *sorted),
        other => other.clone(),
    }
}

/// Converts the structure at a position to an object. `left` is the number of bytes that the row may still have.
pub(super) fn object(row: &StructArray, index: usize, left: &mut u64) -> Result<Value, Refusal> {
    let mut fields = Map::new();
    for (field, column) in row.fields().iter().zip(row.columns()) {
        spend(left, field.name().len())?;
        fields.insert(field.name().clone(), value(column, index, left)?);
    }
    Ok(Value::Object(fields))
}

/// Counts bytes of a row.
fn spend(left: &mut u64, length: usize) -> Result<(), Refusal> {
    // Quotes, or a digit, and a comma.
    let rest = left.checked_sub(length as u64 + 2).ok_or(Refusal::TooLong)?;
    *left = rest;
    Ok(())
}

fn value(array: &ArrayRef, index: usize, left: &mut u64) -> Result<Value, Refusal> {
    if array.is_null(index) {
        spend(left, 4)?;
        return Ok(Value::Null);
    }
    let text = match array.data_type() {
        DataType::Null => return Ok(Value::Null),
        DataType::List(_) => return list(&array.as_list::<i32>().value(index), left).map(Value::Array),
        DataType::Struct(_) => return object(array.as_struct(), index, left),
        DataType::Map(_, _) => return map(&array.as_map().value(index), left),
        DataType::Utf8View => {
            let text = array.as_string_view().value(index);
            spend(left, text.len())?;
            return Ok(Value::from(text));
        }
        DataType::BinaryView => return hexadecimal(array.as_binary_view().value(index), left),
        DataType::FixedSizeBinary(_) => {
            return hexadecimal(array.as_fixed_size_binary().value(index), left);
        }
        DataType::Boolean => {
            spend(left, 5)?;
            return Ok(Value::from(array.as_boolean().value(index)));
        }
        kind => match number(array, kind, index) {
            Some(number) => {
                spend(left, 8)?;
                return Ok(number);
            }
            None => text(array, kind, index).ok_or_else(|| Refusal::Unsupported(kind.to_string()))?,
        },
    };
    spend(left, text.len())?;
    Ok(Value::from(text))
}

fn list(values: &ArrayRef, left: &mut u64) -> Result<Vec<Value>, Refusal> {
    (0..values.len()).map(|index| value(values, index, left)).collect()
}

/// Returns an object, or a list of entries if the keys have no plain text.
fn map(entries: &StructArray, left: &mut u64) -> Result<Value, Refusal> {
    let (keys, values) = (list(entries.column(0), left)?, list(entries.column(1), left)?);
    let plain = |key: &Value| match key {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        _ => None,
    };
    Ok(match keys.iter().map(plain).collect::<Option<Vec<_>>>() {
        Some(names) => Value::Object(names.into_iter().zip(values).collect()),
        None => keys.into_iter().zip(values).map(|(key, value)| Value::from(vec![key, value])).collect(),
    })
}

fn hexadecimal(bytes: &[u8], left: &mut u64) -> Result<Value, Refusal> {
    spend(left, 2 * bytes.len())?;
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(Value::from(text))
}

/// Returns a number, or `None` if values of this type are not numbers.
fn number(array: &ArrayRef, kind: &DataType, index: usize) -> Option<Value> {
    fn at<T: ArrowPrimitiveType>(array: &ArrayRef, index: usize) -> T::Native {
        array.as_primitive::<T>().value(index)
    }
    Some(match kind {
        DataType::Int8 => at::<Int8Type>(array, index).into(),
        DataType::Int16 => at::<Int16Type>(array, index).into(),
        DataType::Int32 => at::<Int32Type>(array, index).into(),
        DataType::Int64 => at::<Int64Type>(array, index).into(),
        DataType::UInt8 => at::<UInt8Type>(array, index).into(),
        DataType::UInt16 => at::<UInt16Type>(array, index).into(),
        DataType::UInt32 => at::<UInt32Type>(array, index).into(),
        DataType::UInt64 => at::<UInt64Type>(array, index).into(),
        DataType::Float16 => short_float(&at::<Float16Type>(array, index)),
        DataType::Float32 => short_float(&at::<Float32Type>(array, index)),
        DataType::Float64 => at::<Float64Type>(array, index).into(),
        _ => return None,
    })
}

/// Returns the shortest number that stands for a value: 0.1, not 0.10000000149011612.
fn short_float(value: &impl ToString) -> Value {
    value.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

/// Returns a date, a time or a decimal as text; `None` if the type is unsupported or the value out of range.
fn text(array: &ArrayRef, kind: &DataType, index: usize) -> Option<String> {
    fn at<T: ArrowPrimitiveType>(array: &ArrayRef) -> &PrimitiveArray<T> {
        array.as_primitive::<T>()
    }
    let date = match kind {
        DataType::Date32 => return Some(at::<Date32Type>(array).value_as_date(index)?.to_string()),
        DataType::Time32(TimeUnit::Millisecond) => {
            return Some(at::<Time32MillisecondType>(array).value_as_time(index)?.to_string());
        }
        DataType::Time64(TimeUnit::Microsecond) => {
            return Some(at::<Time64MicrosecondType>(array).value_as_time(index)?.to_string());
        }
        DataType::Time64(TimeUnit::Nanosecond) => {
            return Some(at::<Time64NanosecondType>(array).value_as_time(index)?.to_string());
        }
        DataType::Decimal32(_, _) => return Some(at::<Decimal32Type>(array).value_as_string(index)),
        DataType::Decimal64(_, _) => return Some(at::<Decimal64Type>(array).value_as_string(index)),
        DataType::Decimal128(_, _) => return Some(at::<Decimal128Type>(array).value_as_string(index)),
        DataType::Decimal256(_, _) => return Some(at::<Decimal256Type>(array).value_as_string(index)),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            at::<TimestampMillisecondType>(array).value_as_datetime(index)?
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            at::<TimestampMicrosecondType>(array).value_as_datetime(index)?
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            at::<TimestampNanosecondType>(array).value_as_datetime(index)?
        }
        _ => return None,
    };
    // A time zone means that the value is in UTC.
    let zone = if matches!(kind, DataType::Timestamp(_, Some(_))) { "Z" } else { "" };
    Some(format!("{date:?}{zone}"))
}
