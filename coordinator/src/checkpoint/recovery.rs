//! Report of the damage that was found when a checkpoint was opened, and of what was restored.
//!
//! [`Recovery`] is filled by the module `recover` and summarized by `CheckpointReader::damage`. Its lines are
//! logged when a checkpoint is opened; those about lost data before a repair that hides the loss from later readers.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};

use lumos_tasks::shell::quoted_path;

use super::error::run_in_shell;
use crate::manifest;

/// Maximum number of items listed in a message.
const NAMED: usize = 20;

/// Damage of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// Both copies are intact.
    None,
    /// Everything that one copy lacked was restored from the other.
    Repaired,
    /// Some entries are lost in both copies.
    Lost,
}

/// Damaged, restored and lost data. Empty for an undamaged checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Recovery {
    /// Data missing from the database and restored from the journal.
    pub(crate) database: Option<Entries>,
    /// Data missing from the journal and restored from the database.
    pub(crate) journal: Option<Entries>,
    /// Data missing from both.
    pub(crate) lost: Entries,
    /// Folder with the damaged files.
    pub(crate) kept: Option<PathBuf>,
}

/// Numbers of entries that were restored or lost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Entries {
    /// Description of the damage; empty for lost entries.
    pub(crate) cause: String,
    /// Number of items. Planning stores lost ones again.
    pub(crate) items: u64,
    /// Number of outcomes, including faults. Units of lost ones are outstanding again.
    pub(crate) outcomes: u64,
    /// Number of notes about sessions and workers.
    pub(crate) notes: u64,
    /// The items and outcomes, as far as they are known.
    pub(crate) named: Named,
}

/// Items and outcomes, by identifier.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Named {
    /// Item positions, by benchmark.
    pub(crate) items: BTreeMap<String, Vec<u64>>,
    /// Item positions of outcomes, by the position of their configuration.
    pub(crate) outcomes: BTreeMap<u32, Vec<u64>>,
    /// Units whose items are unknown.
    pub(crate) units: Vec<String>,
}

impl Recovery {
    /// Whether the checkpoint was undamaged.
    pub(crate) fn is_empty(&self) -> bool {
        self.database.is_none() && self.journal.is_none() && !self.has_lost()
    }

    /// Whether data is missing from both copies.
    pub(crate) fn has_lost(&self) -> bool {
        self.lost != Entries::default()
    }

    /// Logs what both copies lost as an error, which `--quiet` does not suppress.
    pub(super) fn log_lost(&self, folder: &Path) {
        if let Some(line) = self.lost_line(folder) {
            tracing::error!("{line}");
        }
    }

    /// Logs the other findings. They are errors, too, if data was lost; otherwise warnings.
    pub(super) fn log(&self, folder: &Path) {
        for line in self.restored_lines(folder) {
            if self.has_lost() { tracing::error!("{line}") } else { tracing::warn!("{line}") }
        }
    }

    /// Formats one line per damaged copy, and the folder of the damaged files.
    fn restored_lines(&self, folder: &Path) -> Vec<String> {
        let mut lines = Vec::new();
        let run = folder.parent().unwrap_or(folder).display();
        let copies = [(&self.database, "database", "journal"), (&self.journal, "journal", "database")];
        for (restored, copy, other) in copies {
            let Some(restored) = restored else { continue };
            let Entries { cause, items, outcomes, notes, named } = restored;
            let what = counted(*items, *outcomes, *notes);
            let what = if what.is_empty() {
                "nothing was lost".to_owned()
            } else {
                format!("{what} restored from the {other}{named}")
            };
            lines.push(format!("the {copy} of the checkpoint in {run} was damaged ({cause}): {what}"));
        }
        if let Some(kept) = &self.kept {
            lines.push(format!("the damaged files are kept in {}", kept.display()));
        }
        lines
    }

    /// Formats what both copies lost, if there is anything.
    fn lost_line(&self, folder: &Path) -> Option<String> {
        if !self.has_lost() {
            return None;
        }
        let again = match judged_run(folder) {
            Some(judged) => {
                let judged = quoted_path(judged);
                format!("repeat `lumos score {judged} --judge` with the same model")
            }
            None => format!("run them again with `lumos resume {}`", run_in_shell(folder)),
        };
        let run = folder.parent().unwrap_or(folder).display();
        let Entries { items, outcomes, notes, named, .. } = &self.lost;
        let lost = counted(*items, *outcomes, *notes);
        Some(format!("lost in both copies of the checkpoint in {run}: {lost}{named}; {again}"))
    }
}

/// Returns the run that a judge's pass belongs to, whose checkpoint is `RUN/judge/PASS/checkpoint`; `None` for a run's
/// checkpoint.
fn judged_run(checkpoint: &Path) -> Option<&Path> {
    let passes = checkpoint.ancestors().nth(2)?;
    let run = passes.parent().filter(|_| passes.file_name().is_some_and(|name| name == "judge"))?;
    let run = if run.as_os_str().is_empty() { Path::new(".") } else { run };
    run.join(manifest::FILE_NAME).is_file().then_some(run)
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

#[cfg(test)]
mod tests {
    use super::*;

    impl Recovery {
        /// Formats one line per finding.
        pub(crate) fn lines(&self, folder: &Path) -> Vec<String> {
            self.lost_line(folder).into_iter().chain(self.restored_lines(folder)).collect()
        }
    }

    #[test]
    fn lost_replies_of_a_judge_are_asked_for_again_with_score() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("judge").join("my first");
        let pass = run.join("judge").join("0123456789ab");
        std::fs::create_dir_all(&pass).unwrap();
        for folder in [&run, &pass] {
            std::fs::write(folder.join(manifest::FILE_NAME), "{}").unwrap();
        }
        let recovery =
            Recovery { lost: Entries { outcomes: 2, ..Entries::default() }, ..Recovery::default() };
        let line = |folder: &Path| recovery.lines(&folder.join("checkpoint")).concat();
        let expected = format!("repeat `lumos score '{}' --judge` with the same model", run.display());
        assert!(line(&pass).contains("2 outcomes") && line(&pass).ends_with(&expected), "{}", line(&pass));
        assert_eq!(recovery.restored_lines(&pass.join("checkpoint")), Vec::<String>::new());
        // Runs may be in a folder of that name.
        let expected = format!("run them again with `lumos resume '{}'`", run.display());
        assert!(line(&run).ends_with(&expected), "{}", line(&run));
    }
}
