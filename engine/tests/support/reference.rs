//! The reference cases, computed with transformers.
#![allow(dead_code, unreachable_pub)] // each test target uses a part of this

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde::Deserialize;
use serde::de::DeserializeOwned;

#[derive(Deserialize)]
pub struct Case {
    pub prompt: String,
    pub ids: Vec<u32>,
    pub greedy: Vec<u32>,
    pub text: String,
    pub first_top8: Vec<(u32, f32)>,
    pub safe_tokens: usize,
}

/// A reference model, if there are any on this machine.
pub fn folder(name: &str) -> Option<PathBuf> {
    Some(lumos_capabilities::shared("golden/engine")?.join(name))
}

/// Its cases.
pub fn cases(folder: &Path) -> Vec<Case> {
    rows(folder)
}

/// Its cases in another form.
pub fn rows<T: DeserializeOwned>(folder: &Path) -> Vec<T> {
    let mut text = String::new();
    let file = std::fs::File::open(folder.join("cases.jsonl.gz")).unwrap();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
