//! Entry points of fuzz targets. Not part of the public interface.

use std::path::Path;

use lumos_tasks::Item;

use super::codec::{compress, decode, encode};
use super::frame::{HEADER, MARKER, PREFIX, u32_at};
use super::{CheckpointReader, Record};
use crate::computing::{Computing, WorkerComputing};

/// Decodes a stored value. A value that can be decoded must encode and decode
/// again. With `is_json`, the bytes are JSON and are compressed first.
pub fn records(bytes: &[u8], is_json: bool) {
    let folder = Path::new("");
    let compressed = is_json.then(|| compress(bytes).expect("memory for a short value"));
    let bytes = compressed.as_deref().unwrap_or(bytes);
    if let Ok(record) = decode::<Record>(folder, bytes) {
        let again = encode(folder, &record).and_then(|written| decode::<Record>(folder, &written));
        assert!(again.is_ok(), "a record that was read cannot be read again");
    }
    let _ = decode::<Item>(folder, bytes);
    let _ = decode::<Computing>(folder, bytes);
    let _ = decode::<WorkerComputing>(folder, bytes);
}

/// Writes valid checksums into the header and every entry of a journal, so that the fuzzer
/// reaches the code behind the checksum tests.
pub fn journal_checksums(journal: &mut [u8]) {
    if let Some(header) = journal.first_chunk_mut::<{ HEADER as usize }>() {
        let checksum = crc32fast::hash(&header[..60]);
        header[60..].copy_from_slice(&checksum.to_be_bytes());
    }
    let mut at = HEADER as usize;
    while let Some(prefix) = journal.get(at..).and_then(|rest| rest.first_chunk::<PREFIX>()) {
        let key_length = usize::from(u16::from_be_bytes([prefix[6], prefix[7]]));
        let (key, length) = (at + PREFIX, u32_at(prefix, 8) as usize);
        let value = key + key_length;
        if prefix[..4] != MARKER || value > journal.len() {
            at += 1;
            continue;
        }
        let end = value.saturating_add(length).min(journal.len());
        let checksum = crc32fast::hash(&journal[value..end]);
        journal[at + 20..at + 24].copy_from_slice(&checksum.to_be_bytes());
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(&journal[at..at + 24]);
        checksum.update(&journal[key..value]);
        journal[at + 24..key].copy_from_slice(&checksum.finalize().to_be_bytes());
        at = end;
    }
}

/// Reads everything that a checkpoint contains.
pub fn reader(reader: &CheckpointReader) {
    let _ = (reader.plan(), reader.seconds(), reader.computing(), reader.workers());
    for record in reader.records().flatten() {
        let _ = (reader.status(&record.unit), reader.records_of(&record.unit));
    }
    for benchmark in ["gsm8k", "svamp"] {
        let items = reader.items(benchmark).filter(Result::is_ok).count();
        assert!(items <= reader.item_ids(benchmark).count());
    }
}
