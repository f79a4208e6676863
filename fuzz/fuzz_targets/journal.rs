//! Opens the journal of a checkpoint as a reader, intact or damaged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lumos_coordinator::CheckpointReader;
use lumos_coordinator::fuzzing::reader;
use lumos_fuzz::allow_caught_panics_of_dependencies;

fuzz_target!(init: allow_caught_panics_of_dependencies(), |input: (bool, &[u8])| {
    let (has_valid_checksums, bytes) = input;
    let mut journal = bytes.to_vec();
    if has_valid_checksums {
        write_checksums(&mut journal);
    }
    let run = tempfile::tempdir().expect("failed to create a folder");
    let folder = run.path().join("checkpoint");
    std::fs::create_dir(&folder).expect("failed to create a folder");
    std::fs::write(folder.join("journal"), journal).expect("failed to write the file");
    let Ok(opened) = CheckpointReader::open(&folder) else { return };
    reader(&opened);
});

/// Lengths in bytes of the header and of an entry before its key (`coordinator/src/checkpoint/frame.rs`).
const HEADER: usize = 64;
const PREFIX: usize = 28;
/// The first bytes of every entry.
const MARKER: [u8; 4] = [0xAB, b'L', b'J', 0x0A];

/// Writes valid checksums into the header and every entry of a journal, so that the fuzzer
/// reaches the code behind the checksum tests.
fn write_checksums(journal: &mut [u8]) {
    if let Some(header) = journal.first_chunk_mut::<HEADER>() {
        let checksum = crc32fast::hash(&header[..60]);
        header[60..].copy_from_slice(&checksum.to_be_bytes());
    }
    let mut at = HEADER;
    while let Some(prefix) = journal.get(at..).and_then(|rest| rest.first_chunk::<PREFIX>()) {
        let key_length = usize::from(u16::from_be_bytes([prefix[6], prefix[7]]));
        let length = u32::from_be_bytes([prefix[8], prefix[9], prefix[10], prefix[11]]) as usize;
        let key = at + PREFIX;
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
