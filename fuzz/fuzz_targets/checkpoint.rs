//! Decodes values of a checkpoint, as stored or as JSON that is compressed first.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, &[u8])| {
    let (is_json, bytes) = input;
    lumos_coordinator::fuzzing::records(bytes, is_json);
});
