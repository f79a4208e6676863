//! Values of the database: compressed JSON.

use std::cell::RefCell;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::CheckpointError;

/// Fast, and four times smaller than the JSON of a usual record.
const LEVEL: i32 = 1;

thread_local! {
    /// Making a compressor costs more than compressing a record.
    static COMPRESSOR: RefCell<Option<zstd::bulk::Compressor<'static>>> = const { RefCell::new(None) };
    /// The same holds for a decompressor.
    static DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
    /// A value on its way, so that no buffer has to grow for each.
    static JSON: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What a buffer keeps once its value is written.
const KEPT: usize = 1 << 16;

/// A value that says it is larger is read piece by piece instead of into memory set aside for all of it.
const LARGEST_AT_ONCE: u64 = 64 << 20;

/// A value that cannot be written or read.
#[derive(Debug)]
pub(super) struct CodecError(String);

impl CodecError {
    /// The error, with the folder it happened in.
    pub(super) fn at(self, folder: &Path) -> CheckpointError {
        CheckpointError::Corrupt { folder: folder.to_owned(), detail: self.0 }
    }
}

/// Packs a value.
pub(super) fn encode(value: &impl Serialize) -> Result<Vec<u8>, CodecError> {
    JSON.with_borrow_mut(|json| {
        json.clear();
        serde_json::to_writer(&mut *json, value).map_err(|error| CodecError(error.to_string()))?;
        let compressed = compress(json).map_err(|error| CodecError(error.to_string()));
        json.shrink_to(KEPT);
        compressed
    })
}

fn compress(json: &[u8]) -> std::io::Result<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|kept| match kept {
        Some(compressor) => compressor.compress(json),
        None => kept.insert(zstd::bulk::Compressor::new(LEVEL)?).compress(json),
    })
}

/// Unpacks a value.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let json = decompress(bytes).map_err(|error| CodecError(error.to_string()))?;
    serde_json::from_slice(&json).map_err(|error| CodecError(error.to_string()))
}

fn decompress(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let length = match zstd::zstd_safe::get_frame_content_size(bytes) {
        Ok(Some(length)) if length <= LARGEST_AT_ONCE => usize::try_from(length).unwrap_or(usize::MAX),
        _ => return zstd::stream::decode_all(bytes),
    };
    DECOMPRESSOR.with_borrow_mut(|kept| match kept {
        Some(decompressor) => decompressor.decompress(bytes, length),
        None => kept.insert(zstd::bulk::Decompressor::new()?).decompress(bytes, length),
    })
}
