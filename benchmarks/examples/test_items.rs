//! Writes the fingerprints of the official test sets, from which no training data is made.
//!
//! `cargo run -p lumos-benchmarks --example test_items -- DATA` reads the files of `lumos fetch` in the folder `DATA`
//! and replaces `benchmarks/src/test_items/*.bin`. Records that cannot be read are skipped and counted.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};

use lumos_benchmarks::{get, test_item_fingerprint};

fn main() -> Result<(), Box<dyn Error>> {
    let data: PathBuf = std::env::args_os().nth(1).ok_or("pass the data folder")?.into();
    for name in ["gsm8k", "svamp", "hotpotqa", "strategyqa", "intercode_sql"] {
        let benchmark = get(name)?;
        let (mut fingerprints, mut read, mut invalid) = (BTreeSet::new(), 0, 0);
        for item in benchmark.open(benchmark.source(Some(&data)))? {
            match item {
                Ok(item) => {
                    read += 1;
                    fingerprints.extend(test_item_fingerprint(&item.task));
                }
                Err(error) if error.is_skippable() => invalid += 1,
                Err(error) => return Err(error.into()),
            }
        }
        let bytes: Vec<u8> =
            fingerprints.iter().flat_map(|fingerprint: &u64| fingerprint.to_be_bytes()).collect();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/test_items");
        std::fs::write(folder.join(format!("{name}.bin")), bytes)?;
        println!(
            "{name}: {read} items, {} fingerprints, {invalid} malformed records left out",
            fingerprints.len()
        );
    }
    Ok(())
}
