//! Checks and interprets the pickle of a PyTorch checkpoint.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lumos_engine::fuzzing::pickle;
use lumos_fuzz::allow_caught_panics_of_dependencies;

fuzz_target!(init: allow_caught_panics_of_dependencies(), |bytes: &[u8]| {
    let _ = pickle(bytes);
});
