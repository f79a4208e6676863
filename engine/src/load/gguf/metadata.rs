//! Typed access to GGUF metadata by key.

use std::collections::HashMap;
use std::path::Path;

use candle_core::quantized::gguf_file::Value;

use super::{invalid, unsupported};
use crate::error::LoadError;

/// The metadata of a file, with its path for error messages.
pub(super) struct Metadata<'a> {
    pub(super) file: &'a Path,
    pub(super) values: &'a HashMap<String, Value>,
}

/// The keys of one architecture: `block_count` is `qwen3.block_count`.
pub(super) struct ModelKeys<'a> {
    pub(super) metadata: &'a Metadata<'a>,
    pub(super) architecture: &'static str,
}

impl ModelKeys<'_> {
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    /// A non-negative integer, if the key exists.
    pub(super) fn number(&self, name: &str) -> Result<Option<usize>, LoadError> {
        self.metadata.number(&self.key(name))
    }

    /// A non-negative integer; fails if the key is missing.
    pub(super) fn size(&self, name: &str) -> Result<usize, LoadError> {
        self.metadata.required(&self.key(name), Metadata::number)
    }

    /// A number, if the key exists.
    pub(super) fn float(&self, name: &str) -> Result<Option<f64>, LoadError> {
        self.metadata.float(&self.key(name))
    }

    /// The error for a value that is not supported.
    pub(super) fn unsupported(&self, name: &str, reason: impl std::fmt::Display) -> LoadError {
        unsupported(self.metadata.file, format!("{} {reason}", self.key(name)))
    }
}

impl<'a> Metadata<'a> {
    /// A string, if the key exists.
    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, LoadError> {
        self.get(key, "a text", |value| match value {
            Value::String(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// A non-negative integer, if the key exists.
    pub(super) fn number(&self, key: &str) -> Result<Option<usize>, LoadError> {
        self.get(key, "a whole number", whole)
    }

    /// The value that `read` finds; fails if the key is missing.
    pub(super) fn required<T>(
        &self,
        key: &str,
        read: impl Fn(&Self, &str) -> Result<Option<T>, LoadError>,
    ) -> Result<T, LoadError> {
        read(self, key)?.ok_or_else(|| invalid(self.file, &format!("missing metadata {key}")))
    }

    /// A number, if the key exists.
    pub(super) fn float(&self, key: &str) -> Result<Option<f64>, LoadError> {
        self.get(key, "a number", |value| float(value).filter(|value| value.is_finite()))
    }

    /// A boolean, if the key exists.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, LoadError> {
        self.get(key, "true or false", |value| value.to_bool().ok())
    }

    /// A list of strings, if the key exists.
    pub(super) fn texts(&self, key: &str) -> Result<Option<Vec<&'a str>>, LoadError> {
        self.list(key, "a list of texts", |value| match value {
            Value::String(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// A list of numbers, if the key exists.
    pub(super) fn floats(&self, key: &str) -> Result<Option<Vec<f32>>, LoadError> {
        self.list(key, "a list of numbers", |value| float(value).map(|value| value as f32))
    }

    /// A list of booleans, if the key exists and is a list.
    pub(super) fn flags(&self, key: &str) -> Result<Option<Vec<bool>>, LoadError> {
        if !matches!(self.values.get(key), Some(Value::Array(_))) {
            return Ok(None);
        }
        self.list(key, "a list of true or false", |value| value.to_bool().ok())
    }

    /// A list of integers, if the key exists.
    pub(super) fn numbers(&self, key: &str) -> Result<Option<Vec<usize>>, LoadError> {
        self.list(key, "a list of whole numbers", whole)
    }

    fn get<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, LoadError> {
        let Some(value) = self.values.get(key) else { return Ok(None) };
        let wrong = || invalid(self.file, &format!("metadata {key} is not {expected}"));
        read(value).map(Some).ok_or_else(wrong)
    }

    fn list<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>, LoadError> {
        self.get(key, expected, |value| match value {
            Value::Array(values) => values.iter().map(&read).collect(),
            _ => None,
        })
    }
}

/// A non-negative integer of any integer type.
fn whole(value: &Value) -> Option<usize> {
    let signed = |value: i64| usize::try_from(value).ok();
    match value {
        Value::I8(value) => signed(i64::from(*value)),
        Value::I16(value) => signed(i64::from(*value)),
        Value::I32(value) => signed(i64::from(*value)),
        Value::I64(value) => signed(*value),
        Value::Bool(_) => None,
        other => other.to_u64().ok().and_then(|value| usize::try_from(value).ok()),
    }
}

fn float(value: &Value) -> Option<f64> {
    match value {
        Value::F32(value) => Some(f64::from(*value)),
        Value::F64(value) => Some(*value),
        other => whole(other).map(|value| value as f64),
    }
}
