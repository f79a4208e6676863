//! Baseline files: the item scores of a run in one file, to be kept in version control.
//!
//! JSON with one line per item, in the order of items, so that differences are readable:
//!
//! ```json
//! {"format":"lumos-baseline/1","run":"…","name":"nightly","created":"2026-11-22T03:00:00Z","lumos":"0.1.0",
//! "scoring_version":1,"groups":[
//! {"benchmark":"svamp","formulation":"iterative",…,"metrics":["exact_match"],"items":[
//! ["<hash of the record>",0,[[1.0,1.0]]],
//! …
//! ]}
//! ]}
//! ```

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use lumos_coordinator::manifest::RunIdentity;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::scored::{GroupHead, ItemScores, scored};
use crate::compare::{CompareError, Side};
use crate::report::SCORING_VERSION;
use crate::results::SettingsAxis;

/// The format's name and version.
const FORMAT: &str = "lumos-baseline/1";
/// Longest accepted file: about two million items.
const LONGEST: u64 = 256 << 20;

/// Item scores of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BaselineFile {
    format: String,
    run: RunIdentity,
    /// The run's name.
    pub(crate) name: String,
    created: Timestamp,
    lumos: String,
    /// Version of the scoring; baselines of another version are refused.
    pub(crate) scoring_version: f64,
    pub(crate) groups: Vec<BaselineGroup>,
}

/// Scores of one group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct BaselineGroup {
    #[serde(flatten)]
    pub(crate) head: GroupHead,
    pub(crate) items: Vec<ItemScores>,
}

/// A baseline file that cannot be used.
#[derive(Debug, Error)]
#[error("failed to read baseline {}: {reason}", path.display())]
pub struct BaselineError {
    path: PathBuf,
    reason: String,
}

impl BaselineFile {
    /// Takes the scores of a run's settled units, of the configurations with the values of `only`.
    ///
    /// # Errors
    /// If no configuration has a value.
    pub fn of(side: &Side, only: &[(SettingsAxis, String)]) -> Result<Self, CompareError> {
        let manifest = &side.table.manifest;
        Ok(Self {
            format: FORMAT.to_owned(),
            run: manifest.identity.clone(),
            name: manifest.spec.name.clone(),
            created: manifest.created,
            lumos: manifest.versions.get("lumos").cloned().unwrap_or_default(),
            scoring_version: SCORING_VERSION,
            groups: scored(side, only)?
                .into_iter()
                .map(|group| BaselineGroup { head: group.head, items: group.items })
                .collect(),
        })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, is longer than 256 MiB, or is not a baseline of a known format.
    pub fn read(path: &Path) -> Result<Self, BaselineError> {
        let failed = |reason: String| BaselineError { path: path.to_owned(), reason };
        let file = File::open(path).map_err(|error| failed(error.to_string()))?;
        let mut bytes = Vec::new();
        file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(|error| failed(error.to_string()))?;
        if bytes.len() as u64 > LONGEST {
            return Err(failed(format!("longer than {} MiB", LONGEST >> 20)));
        }
        Self::parse(&bytes).map_err(failed)
    }

    /// Parses the content of a file.
    ///
    /// # Errors
    /// A description of the first invalid part.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Head {
            format: String,
        }
        let invalid = |error: serde_json::Error| format!("not a baseline file: {error}");
        let head: Head = serde_json::from_slice(bytes).map_err(invalid)?;
        if head.format != FORMAT {
            return Err(format!("unknown format `{}`: expected {FORMAT}", head.format));
        }
        let baseline: Self = serde_json::from_slice(bytes).map_err(invalid)?;
        for group in &baseline.groups {
            group
                .check()
                .map_err(|reason| format!("{} {}: {reason}", group.head.benchmark, group.head.label))?;
        }
        Ok(baseline)
    }

    /// Writes the file with one line per item.
    ///
    /// # Errors
    /// If writing to `out` fails.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let without = Self { groups: Vec::new(), ..self.clone() };
        let head = serde_json::to_string(&without)?;
        let head = head.strip_suffix("[]}").unwrap_or(&head);
        writeln!(out, "{head}[")?;
        for (at, group) in self.groups.iter().enumerate() {
            let without =
                serde_json::to_string(&BaselineGroup { head: group.head.clone(), items: Vec::new() })?;
            writeln!(out, "{}[", without.strip_suffix("[]}").unwrap_or(&without))?;
            for (at, item) in group.items.iter().enumerate() {
                let comma = if at + 1 < group.items.len() { "," } else { "" };
                writeln!(out, "{}{comma}", serde_json::to_string(item)?)?;
            }
            writeln!(out, "]}}{}", if at + 1 < self.groups.len() { "," } else { "" })?;
        }
        writeln!(out, "]}}")
    }
}

impl BaselineGroup {
    fn check(&self) -> Result<(), String> {
        let metrics = self.head.metrics.len();
        let mut seen = HashSet::with_capacity(self.items.len());
        for (at, item) in self.items.iter().enumerate() {
            if item.2.len() != metrics {
                return Err(format!("item {at}: {} values for {metrics} metrics", item.2.len()));
            }
            let is_valid = |(numerator, denominator): &(f64, f64)| {
                numerator.is_finite() && denominator.is_finite() && *denominator >= 0.0
            };
            if !item.2.iter().flatten().all(is_valid) {
                return Err(format!("item {at}: invalid value"));
            }
            if !seen.insert((&item.0, item.1)) {
                return Err(format!("item {at}: listed twice"));
            }
        }
        Ok(())
    }
}
