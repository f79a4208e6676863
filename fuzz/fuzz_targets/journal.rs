//! Opens the journal of a checkpoint as a reader, intact or damaged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lumos_coordinator::CheckpointReader;
use lumos_coordinator::fuzzing::{journal_checksums, reader};
use lumos_fuzz::allow_caught_panics_of_dependencies;

fuzz_target!(init: allow_caught_panics_of_dependencies(), |input: (bool, &[u8])| {
    let (has_valid_checksums, bytes) = input;
    let mut journal = bytes.to_vec();
    if has_valid_checksums {
        journal_checksums(&mut journal);
    }
    let run = tempfile::tempdir().expect("failed to create a folder");
    let folder = run.path().join("checkpoint");
    std::fs::create_dir(&folder).expect("failed to create a folder");
    std::fs::write(folder.join("journal"), journal).expect("failed to write the file");
    let Ok(opened) = CheckpointReader::open(&folder) else { return };
    reader(&opened);
});
