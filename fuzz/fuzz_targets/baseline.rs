//! Parses baseline files of gates; what is accepted is written and parsed again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lumos_reports::gate::BaselineFile;

fuzz_target!(|bytes: &[u8]| {
    let Ok(baseline) = BaselineFile::parse(bytes) else { return };
    let mut written = Vec::new();
    baseline.write(&mut written).expect("writing to memory");
    assert_eq!(BaselineFile::parse(&written).as_ref(), Ok(&baseline));
});
