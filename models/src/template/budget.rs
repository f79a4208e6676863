//! The budgets of a rendering: bytes that it may build, and bytes that it may read.

use std::cell::Cell;

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

/// Bytes that a rendering may build regardless of its input.
const FREE_BYTES: u64 = 8 << 20;
/// Additional bytes that it may build for each byte of input.
const BYTES_PER_INPUT: u64 = 32;
/// Bytes that a rendering may read for each byte that it may build.
const READS_PER_BYTE: u64 = 32;
/// Bytes charged for a value in addition to its text.
pub(super) const VALUE_BYTES: u64 = 16;
/// Bytes charged for a value that is shared with another one.
const SHARED_BYTES: u64 = 4;
/// Maximum nesting depth of values.
pub(super) const DEEPEST: usize = 64;

thread_local! {
    /// Budget of the rendering on this thread, and the remaining part of it.
    static BUDGET: Cell<u64> = const { Cell::new(0) };
    static LEFT: Cell<u64> = const { Cell::new(0) };
    /// Bytes that it may still read.
    static READABLE: Cell<u64> = const { Cell::new(0) };
}

/// Starts the budgets of a rendering on this thread.
pub(super) fn start(input_bytes: usize) {
    let budget = FREE_BYTES.saturating_add(BYTES_PER_INPUT.saturating_mul(input_bytes as u64));
    BUDGET.set(budget);
    LEFT.set(budget);
    READABLE.set(budget.saturating_mul(READS_PER_BYTE));
}

fn too_much() -> Error {
    Error::new(
        ErrorKind::OutOfFuel,
        format!("it builds more than {} MiB of text and values", FREE_BYTES >> 20),
    )
}

/// Subtracts bytes from the remaining budget.
fn spend(bytes: u64) -> Result<(), Error> {
    LEFT.set(LEFT.get().checked_sub(bytes).ok_or_else(too_much)?);
    Ok(())
}

/// Subtracts bytes that are about to be read.
pub(super) fn read(bytes: u64) -> Result<(), Error> {
    let too_much = || {
        let limit = (FREE_BYTES * READS_PER_BYTE) >> 20;
        Error::new(ErrorKind::OutOfFuel, format!("it reads more than {limit} MiB of text and values"))
    };
    READABLE.set(READABLE.get().checked_sub(bytes).ok_or_else(too_much)?);
    Ok(())
}

/// Charges a value including everything in it.
pub(super) fn charge(value: &Value) -> Result<(), Error> {
    spend(weight(value)?)
}

/// Charges a string in full, and a list or map without its strings, which were charged when they were built.
pub(super) fn charge_shared(value: &Value) -> Result<(), Error> {
    let size = Size::of(value)?;
    spend(if value.as_bytes().is_some() { size.bytes } else { SHARED_BYTES * size.values })
}

/// Returns the size in bytes of a value including everything in it. Fails if it exceeds the whole budget.
pub(super) fn weight(value: &Value) -> Result<u64, Error> {
    Ok(Size::of(value)?.bytes)
}

/// Returns the size in bytes of a string, or of a list without the contents of its items.
pub(super) fn shallow_weight(value: &Value) -> Result<u64, Error> {
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => match value.len() {
            Some(count) => Ok(VALUE_BYTES.saturating_mul(count as u64)),
            None => weight(value),
        },
        _ => Ok(VALUE_BYTES + value.as_bytes().map_or(0, <[u8]>::len) as u64),
    }
}

/// Number of values and bytes in a value.
#[derive(Default)]
pub(super) struct Size {
    pub(super) values: u64,
    pub(super) bytes: u64,
}

impl Size {
    pub(super) fn of(value: &Value) -> Result<Self, Error> {
        let mut size = Self::default();
        size.add(value, 0)?;
        Ok(size)
    }

    fn add(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > DEEPEST {
            return Err(Error::new(ErrorKind::InvalidOperation, "values are nested too deeply"));
        }
        self.values += 1;
        self.bytes += VALUE_BYTES + value.as_bytes().map_or(0, <[u8]>::len) as u64;
        if self.bytes > BUDGET.get() {
            return Err(too_much());
        }
        match value.kind() {
            ValueKind::Seq | ValueKind::Iterable => {
                for item in value.try_iter()? {
                    self.add(&item, depth + 1)?;
                }
            }
            ValueKind::Map => {
                for key in value.try_iter()? {
                    self.add(&value.get_item(&key)?, depth + 1)?;
                    self.add(&key, depth + 1)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Fails if a result would exceed the remaining budget.
pub(super) fn fits(estimate: u64) -> Result<(), Error> {
    if estimate > LEFT.get() { Err(too_much()) } else { Ok(()) }
}

/// Returns the size in bytes of all values.
pub(super) fn weights(values: &[Value]) -> Result<u64, Error> {
    values.iter().try_fold(0, |sum: u64, value| Ok::<_, Error>(sum.saturating_add(weight(value)?)))
}

/// Returns the size in bytes of the first value, times that of the others if there are any.
pub(super) fn product(values: &[Value]) -> Result<u64, Error> {
    let [value, others @ ..] = values else { return Ok(0) };
    Ok(weight(value)?.saturating_mul(weights(others)?.max(1)))
}
