//! Reads and resolves run files in TOML.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lumos_coordinator::spec::RunSpec;

fuzz_target!(|text: &str| {
    match RunSpec::from_toml(text, "run.toml") {
        Ok(spec) => drop(RunSpec::default().merge(spec).resolve()),
        Err(error) => assert!(error.to_string().contains("run.toml"), "{error}"),
    }
});
