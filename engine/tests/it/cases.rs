//! Reference cases, computed with transformers.

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde::Deserialize;
use serde::de::DeserializeOwned;

#[derive(Deserialize)]
pub(crate) struct Case {
    pub(crate) prompt: String,
    pub(crate) ids: Vec<u32>,
    pub(crate) greedy: Vec<u32>,
    pub(crate) text: String,
    pub(crate) first_top8: Vec<(u32, f32)>,
    pub(crate) safe_tokens: usize,
}

/// Returns the folder of a reference model, if the reference data is available.
pub(crate) fn folder(name: &str) -> Option<PathBuf> {
    Some(lumos_capabilities::shared("golden/engine")?.join(name))
}

/// Returns the folder of a reference model of another family, if the reference data is available.
pub(crate) fn family(name: &str) -> Option<PathBuf> {
    Some(lumos_capabilities::shared("golden/families")?.join(name))
}

/// Reads the cases of a reference model.
pub(crate) fn cases(folder: &Path) -> Vec<Case> {
    rows(folder)
}

/// Reads the cases of a reference model as values of any type.
pub(crate) fn rows<T: DeserializeOwned>(folder: &Path) -> Vec<T> {
    let mut text = String::new();
    let file = std::fs::File::open(folder.join("cases.jsonl.gz")).unwrap();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
