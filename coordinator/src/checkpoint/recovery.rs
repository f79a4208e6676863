//! What was found damaged when a checkpoint was opened, and what became of it.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};

/// How many items are named.
const NAMED: usize = 20;

/// What was damaged, restored and lost. Empty for a checkpoint that is as it was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// What the database lacked, restored from the journal.
    pub database: Option<Restored>,
    /// What the journal lacked, restored from the database.
    pub journal: Option<Restored>,
    /// What neither has.
    pub lost: Lost,
    /// Where the damaged files are kept.
    pub kept: Option<PathBuf>,
}

/// What one copy lacked and the other had.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restored {
    /// What was wrong.
    pub cause: String,
    /// Items.
    pub items: u64,
    /// Outcomes, faults included.
    pub outcomes: u64,
    /// Notes about sessions and workers.
    pub notes: u64,
    /// Which items and outcomes.
    pub named: Named,
}

/// What is in neither copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lost {
    /// Items: planning again stores them.
    pub items: u64,
    /// Outcomes: their units are outstanding again.
    pub outcomes: u64,
    /// Notes about sessions and workers.
    pub notes: u64,
    /// Which items and outcomes, as far as that is known.
    pub named: Named,
}

/// Items and outcomes by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Named {
    /// Items by benchmark.
    pub items: BTreeMap<String, Vec<u64>>,
    /// Items of outcomes, by the position of their configuration.
    pub outcomes: BTreeMap<u32, Vec<u64>>,
    /// Units whose items are not known.
    pub units: Vec<String>,
}

impl Recovery {
    /// Whether the checkpoint was as it was written.
    pub fn is_empty(&self) -> bool {
        self.database.is_none() && self.journal.is_none() && self.lost == Lost::default()
    }

    /// Whether something is in neither copy.
    pub fn has_lost(&self) -> bool {
        self.lost != Lost::default()
    }

    /// Logs each finding: losses as errors, which are shown with `--quiet` too.
    pub(super) fn log(&self, folder: &Path) {
        for line in self.lines(folder) {
            if self.has_lost() { tracing::error!("{line}") } else { tracing::warn!("{line}") }
        }
    }

    /// One line for each finding.
    pub fn lines(&self, folder: &Path) -> Vec<String> {
        let mut lines = Vec::new();
        let run = folder.parent().unwrap_or(folder).display();
        let copies = [(&self.database, "database", "journal"), (&self.journal, "journal", "database")];
        for (restored, copy, other) in copies {
            let Some(restored) = restored else { continue };
            let Restored { cause, items, outcomes, notes, named } = restored;
            let what = counted(*items, *outcomes, *notes);
            let what = if what.is_empty() {
                "nothing was lost".to_owned()
            } else {
                format!("{what} restored from the {other}{named}")
            };
            lines.push(format!("the {copy} of the checkpoint in {run} was damaged ({cause}): {what}"));
        }
        let Lost { items, outcomes, notes, named } = &self.lost;
        if self.has_lost() {
            lines.push(format!(
                "lost in both copies of the checkpoint in {run}: {}{named}; run them again with `lumos resume {run}`",
                counted(*items, *outcomes, *notes)
            ));
        }
        if let Some(kept) = &self.kept {
            lines.push(format!("the damaged files are kept in {}", kept.display()));
        }
        lines
    }
}

fn counted(items: u64, outcomes: u64, notes: u64) -> String {
    let counted = [(items, "item"), (outcomes, "outcome"), (notes, "note")];
    let counted: Vec<_> = counted
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}{}", if count == 1 { "" } else { "s" }))
        .collect();
    counted.join(", ")
}

impl Named {
    fn len(&self) -> usize {
        let lists = self.items.values().chain(self.outcomes.values());
        lists.map(Vec::len).sum::<usize>() + self.units.len()
    }
}

impl Display for Named {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let mut left = NAMED;
        let mut parts = Vec::new();
        let mut part = |name: String, numbers: Vec<String>| {
            let shown = numbers.len().min(left);
            left -= shown;
            if shown > 0 {
                parts.push(format!("{name} {}", numbers[..shown].join(", ")));
            }
        };
        let texts = |numbers: &[u64]| numbers.iter().map(ToString::to_string).collect();
        for (benchmark, items) in &self.items {
            part(format!("items of {benchmark}"), texts(items));
        }
        for (configuration, items) in &self.outcomes {
            part(format!("outcomes of configuration {configuration}: items"), texts(items));
        }
        part("outcomes of units".to_owned(), self.units.clone());
        if parts.is_empty() {
            return Ok(());
        }
        write!(formatter, " ({}", parts.join("; "))?;
        match self.len().saturating_sub(NAMED) {
            0 => write!(formatter, ")"),
            more => write!(formatter, " and {more} more)"),
        }
    }
}
