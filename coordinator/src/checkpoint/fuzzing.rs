//! Entry points of fuzz targets. Not part of the public interface.

use std::path::Path;

use lumos_tasks::Item;

use super::codec::{compress, decode, encode};
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
