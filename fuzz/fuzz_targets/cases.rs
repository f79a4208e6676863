//! Reads and replays files of recorded cases.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use lumos_benchmarks::replay::RecordedRow;

fuzz_target!(|line: &[u8]| {
    let Ok(value) = serde_json::from_slice(line) else { return };
    // Other files in the folder of the cases are not part of the input.
    if let Ok(recorded) = RecordedRow::of(value, Path::new("/nonexistent"), 1) {
        let _ = recorded.replay();
    }
});
