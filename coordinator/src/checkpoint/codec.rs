//! Encodes and decodes stored values: JSON compressed with zstd, limited in size.

use std::cell::RefCell;
use std::io::{self, Read};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use zstd::zstd_safe::zstd_sys::ZSTD_ErrorCode;

use super::error::CheckpointError;

/// The fastest level; it makes the JSON of a typical record four times smaller.
const LEVEL: i32 = 1;

thread_local! {
    /// Cached, because creating a compressor costs more than compressing a record.
    static COMPRESSOR: RefCell<Option<zstd::bulk::Compressor<'static>>> = const { RefCell::new(None) };
    /// Cached for the same reason.
    static DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
    /// Buffer for the JSON of one value, reused so that it does not grow again for each value.
    static JSON: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Capacity that a buffer keeps after its value is written.
const KEPT: usize = 1 << 16;

/// Values with a larger declared size are decompressed as a stream instead of into a preallocated buffer.
const LARGEST_AT_ONCE: u64 = 64 << 20;

/// Maximum size of a value in bytes of JSON, for writing and reading: four times the maximum message size of
/// the bus. A few kilobytes of zstd can expand to gigabytes.
const LARGEST: usize = 256 << 20;

/// Converts an error of zstd, which reports lack of memory in the error text only.
fn of_zstd(folder: &Path, error: &io::Error) -> CheckpointError {
    let detail = error.to_string();
    let code = ZSTD_ErrorCode::ZSTD_error_memory_allocation as usize;
    let is_memory = error.kind() == io::ErrorKind::OutOfMemory
        || detail == zstd::zstd_safe::get_error_name(0usize.wrapping_sub(code));
    if is_memory {
        CheckpointError::Memory { folder: folder.to_owned(), detail }
    } else {
        CheckpointError::corrupt(folder, detail)
    }
}

/// Encodes a value. `folder` is the checkpoint's, for errors.
pub(super) fn encode(folder: &Path, value: &impl Serialize) -> Result<Vec<u8>, CheckpointError> {
    encode_within(folder, value, LARGEST)
}

fn encode_within(folder: &Path, value: &impl Serialize, limit: usize) -> Result<Vec<u8>, CheckpointError> {
    JSON.with_borrow_mut(|json| {
        json.clear();
        serde_json::to_writer(&mut *json, value)
            .map_err(|error| CheckpointError::corrupt(folder, error.to_string()))?;
        let compressed = match json.len() {
            length if length > limit => {
                let detail = format!("a value of {length} bytes exceeds the maximum of {limit} bytes");
                Err(CheckpointError::Io { folder: folder.to_owned(), detail })
            }
            _ => compress(json).map_err(|error| of_zstd(folder, &error)),
        };
        json.shrink_to(KEPT);
        compressed
    })
}

pub(super) fn compress(json: &[u8]) -> io::Result<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|kept| match kept {
        Some(compressor) => compressor.compress(json),
        None => kept.insert(zstd::bulk::Compressor::new(LEVEL)?).compress(json),
    })
}

/// Decodes a value. `folder` is the checkpoint's, for errors.
pub(super) fn decode<T: DeserializeOwned>(folder: &Path, bytes: &[u8]) -> Result<T, CheckpointError> {
    decode_within(folder, bytes, LARGEST)
}

fn decode_within<T: DeserializeOwned>(
    folder: &Path,
    bytes: &[u8],
    limit: usize,
) -> Result<T, CheckpointError> {
    let json = decompress(bytes, limit).map_err(|error| of_zstd(folder, &error))?;
    if json.len() > limit {
        let length = bytes.len();
        let detail =
            format!("a compressed value of {length} bytes expands to more than the maximum of {limit} bytes");
        return Err(CheckpointError::corrupt(folder, detail));
    }
    serde_json::from_slice(&json).map_err(|error| CheckpointError::corrupt(folder, error.to_string()))
}

/// Decompresses at most `limit` + 1 bytes, so that the caller detects larger content without decompressing it.
fn decompress(bytes: &[u8], limit: usize) -> io::Result<Vec<u8>> {
    match zstd::zstd_safe::get_frame_content_size(bytes) {
        Ok(Some(length)) if length <= LARGEST_AT_ONCE.min(limit as u64) => {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            DECOMPRESSOR.with_borrow_mut(|kept| match kept {
                Some(decompressor) => decompressor.decompress(bytes, length),
                None => kept.insert(zstd::bulk::Decompressor::new()?).decompress(bytes, length),
            })
        }
        _ => {
            let mut json = Vec::new();
            let decoder = zstd::stream::read::Decoder::new(bytes)?;
            decoder.take((limit as u64).saturating_add(1)).read_to_end(&mut json)?;
            Ok(json)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> &'static Path {
        Path::new("runs/x/checkpoint")
    }

    #[test]
    fn a_lack_of_memory_is_not_damage() {
        let code = ZSTD_ErrorCode::ZSTD_error_memory_allocation as usize;
        // The error that zstd's functions return in that case, as formatted by the zstd crate.
        let name = zstd::zstd_safe::get_error_name(0usize.wrapping_sub(code));
        let error = of_zstd(folder(), &io::Error::other(name));
        assert!(matches!(error, CheckpointError::Memory { .. }), "{error:?}");
        assert!(error.to_string().contains("ulimit -v"), "{error}");
        let damaged = decode::<u64>(folder(), b"no frame").unwrap_err();
        assert!(matches!(damaged, CheckpointError::Corrupt { .. }), "{damaged:?}");
        assert!(damaged.to_string().contains("lumos repair runs/x`"), "{damaged}");
    }

    /// A zstd frame of `length` spaces, with or without a declared content size.
    fn frame_of_spaces(length: usize, states_length: bool) -> Vec<u8> {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), LEVEL).unwrap();
        encoder.set_pledged_src_size(states_length.then_some(length as u64)).unwrap();
        encoder.include_contentsize(states_length).unwrap();
        io::copy(&mut io::repeat(b' ').take(length as u64), &mut encoder).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn what_expands_beyond_the_maximum_is_not_held() {
        for states_length in [true, false] {
            let bomb = frame_of_spaces(LARGEST + 1, states_length);
            assert!(bomb.len() < 1 << 16, "{}", bomb.len());
            assert_eq!(decompress(&bomb, 1000).unwrap().len(), 1001);
            let error = decode::<u64>(folder(), &bomb).unwrap_err();
            assert!(matches!(error, CheckpointError::Corrupt { .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.contains("expands to more than the maximum of 268435456 bytes"), "{text}");
            assert!(!text.contains("delete") && !text.contains("remove"), "{text}");
        }
    }

    #[test]
    fn values_up_to_the_maximum_are_written_and_read() {
        let value = "x".repeat(998);
        let written = encode_within(folder(), &value, 1000).unwrap();
        assert_eq!(decode_within::<String>(folder(), &written, 1000).unwrap(), value);
        assert!(matches!(
            decode_within::<String>(folder(), &written, 999),
            Err(CheckpointError::Corrupt { .. })
        ));
        let refused = encode_within(folder(), &value, 999).unwrap_err();
        assert!(matches!(refused, CheckpointError::Io { .. }), "{refused:?}");
        assert!(refused.to_string().contains("exceeds the maximum of 999 bytes"), "{refused}");
    }
}
