//! Reads and resolves run files in TOML. Their lists are expanded in a folder that does not exist.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use lumos_coordinator::spec::RunSpec;

fuzz_target!(|text: &str| {
    // Lists with an absolute path would read the file system. The last three write a slash as an escape.
    let may_be_absolute = ["/", "\\u", "\\U", "\\x"].iter().any(|part| text.contains(*part));
    let folder = (!may_be_absolute).then(|| Path::new("missing"));
    match RunSpec::from_toml(text, "run.toml", folder) {
        Ok(spec) => drop(RunSpec::default().merge(spec).resolve()),
        Err(error) => assert!(error.to_string().contains("run.toml"), "{error}"),
    }
});
