//! Reconciles the journal and the database when a checkpoint is opened for writing.
//!
//! ```text
//! both intact and equal                → nothing to do
//! last batch of a killed process       → copied to the other copy silently: it was never acknowledged
//! one copy lacks entries or differs    → that copy is rewritten from both; the damaged files are kept
//! both lack the same entries           → the rest is rewritten; lost entries are counted and listed
//! no journal (earlier version)         → a journal is created
//! ```
//!
//! `compare` finds the differences, `merge` writes a new journal from both copies, and `fill` writes the
//! database from the journal.

mod compare;
mod fill;
mod merge;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use super::catalogue::{Catalogue, Loaded};
use super::codec::decode;
use super::database::{self, Database, JOURNAL_KEY};
use super::error::CheckpointError;
use super::journal::{FILE_NAME, Journal, JournalFile, new_path};
use super::lock::FolderLock;
use super::recovery::{Entries, Recovery};
use super::{Record, item_key};
use compare::Compared;
use fill::{fill, write_identities, write_records};
use merge::Merging;

/// Both copies after reconciliation, with equal content.
pub(super) struct Opened {
    pub(super) database: Database,
    pub(super) journal: Journal,
    pub(super) catalogue: Catalogue,
    pub(super) recovery: Recovery,
}

/// Opens both copies in a folder whose lock is held. Calls `report` if both copies lost data, before the files are repaired,
/// after which the loss cannot be detected: the process may be killed in between.
pub(super) fn open(folder: &Path, report: &dyn Fn(&Recovery)) -> Result<Opened, CheckpointError> {
    let file = JournalFile::open(folder)?;
    let had_database = ["conf", "db"].iter().any(|name| folder.join(name).is_file())
        || FolderLock::head(folder).is_some_and(|head| head.entries > 0);
    let database = match (Database::open(folder), &file) {
        (Ok(database), _) => Ok(database),
        (Err(CheckpointError::Corrupt { detail, .. }), Some(_)) => Err(detail),
        (Err(error), _) => return Err(error),
    };
    if let Ok(database) = &database {
        let ensured = guarded(|| database.ensure_layout());
        ensured.unwrap_or_else(|detail| Err(CheckpointError::corrupt(folder, detail)))?;
    }
    let loaded = file.as_ref().map(Loaded::read).transpose()?;
    let both = match (file, loaded, database) {
        (Some(file), Some(loaded), database) => Both { folder, file, loaded, database, report },
        (_, _, Ok(database)) => return make_journal(folder, database, had_database, report),
        (_, _, Err(detail)) => return Err(CheckpointError::corrupt(folder, detail)),
    };
    both.agree()
}

/// Handles a folder without a journal: a new folder, one of an earlier version, or one whose journal was
/// lost.
fn make_journal(
    folder: &Path,
    database: Database,
    had: bool,
    report: &dyn Fn(&Recovery),
) -> Result<Opened, CheckpointError> {
    let failed = |error| CheckpointError::of_sled(folder, &error);
    let lost = database.meta.contains_key(JOURNAL_KEY).map_err(failed)? || FolderLock::head(folder).is_some();
    if !had {
        // The folder is new, or the process was killed before the first commit.
        let journal = Journal::create(&folder.join(FILE_NAME))?;
        mark(&database)?;
        let (catalogue, recovery) = (Catalogue::default(), Recovery::default());
        return Ok(Opened { database, journal, catalogue, recovery });
    }
    let new = Journal::create(&new_path(folder))?;
    let (file, loaded) = (new.file().clone(), Loaded::default());
    let both = Both { folder, file, loaded, database: Ok(database), report };
    let mut opened = both.write_anew("the journal is missing", &Compared::default())?;
    if !lost {
        tracing::info!(folder = %folder.display(), "adding a journal to the checkpoint");
        opened.recovery.journal = None;
    }
    Ok(opened)
}

/// Records in the database that a journal exists.
fn mark(database: &Database) -> Result<(), CheckpointError> {
    let failed = |error| CheckpointError::of_sled(&database.folder, &error);
    if database.meta.insert(JOURNAL_KEY, &[1]).map_err(failed)?.is_none() {
        database.flush()?;
    }
    Ok(())
}

/// Runs a read of a database that may be damaged, and converts panics to errors: sled panics on some damage.
fn guarded<T>(read: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(read)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it cannot be read");
        text.lines().next().unwrap_or_default().to_owned()
    })
}

/// Both copies before reconciliation.
struct Both<'a> {
    folder: &'a Path,
    file: JournalFile,
    loaded: Loaded,
    /// The database, or the reason why it cannot be opened.
    database: Result<Database, String>,
    /// Called with what both copies lost, before the journal is replaced.
    report: &'a dyn Fn(&Recovery),
}

impl Both<'_> {
    fn agree(self) -> Result<Opened, CheckpointError> {
        let compared = match &self.database {
            Err(detail) => Err(detail.clone()),
            Ok(database) => match guarded(|| self.compare(database)) {
                Ok(Ok(compared)) => Ok(compared),
                Ok(Err(CheckpointError::Corrupt { detail, .. })) | Err(detail) => Err(detail),
                Ok(Err(error)) => return Err(error),
            },
        };
        let compared = match compared {
            Ok(compared) => compared,
            Err(detail) => self.all_but(detail),
        };
        if !self.loaded.is_intact() || compared.database_is_damaged() {
            let cause = self.journal_cause();
            return self.write_anew(&cause, &compared);
        }
        self.copy_the_last(&compared)
    }

    /// Describes the damage to the journal.
    fn journal_cause(&self) -> String {
        let scanned = &self.loaded.scanned;
        match (scanned.damaged_entries, scanned.head) {
            (0, None) => "its header".to_owned(),
            (0, Some(_)) => format!("{} bytes between its entries", scanned.damaged_bytes),
            (1, _) => "1 entry".to_owned(),
            (count, _) => format!("{count} entries"),
        }
    }

    /// Handles intact copies: copies entries that a killed process or an earlier version wrote to only one of
    /// them.
    fn copy_the_last(self, compared: &Compared) -> Result<Opened, CheckpointError> {
        let folder = self.folder;
        if compared.journal_lacks() {
            let mut opened = self.write_anew("", compared)?;
            let more = compared.more_records + compared.more_items;
            if more > 0 {
                tracing::info!(folder = %folder.display(), "added {more} entries of the database to the journal");
            }
            opened.recovery = Recovery::default();
            return Ok(opened);
        }
        let Both { file, loaded, database, .. } = self;
        let database = database.map_err(|detail| CheckpointError::corrupt(folder, detail))?;
        let catalogue = loaded.catalogue;
        let failed = |error| CheckpointError::of_sled(folder, &error);
        for (benchmark, index) in &compared.late_items {
            if let Some(location) = catalogue.item(benchmark, *index) {
                let value = file.read(location)?;
                database.items.insert(item_key(benchmark, *index), value).map_err(failed)?;
            }
        }
        for (benchmark, places) in catalogue.items.iter().filter(|_| !compared.late_items.is_empty()) {
            write_identities(&database, &file, benchmark, places)?;
        }
        if let (Some(first), Some(last)) = (compared.late_records.first(), compared.late_records.last()) {
            write_records(&database, &file, &catalogue, *first..*last + 1)?;
        }
        for key in &compared.notes {
            if let Some(location) = catalogue.notes.get(key) {
                database.meta.insert(key.as_slice(), file.read(*location)?).map_err(failed)?;
            }
        }
        mark(&database)?;
        let mut journal = Journal::open(folder, &loaded.scanned, &catalogue)?;
        let changed = !compared.late_items.is_empty() || !compared.late_records.is_empty();
        if changed || !compared.notes.is_empty() {
            database.flush()?;
        }
        journal.commit()?;
        Ok(Opened { database, journal, catalogue, recovery: Recovery::default() })
    }

    /// Rewrites the journal from both copies, and also the database if it is damaged.
    fn write_anew(self, cause: &str, compared: &Compared) -> Result<Opened, CheckpointError> {
        let folder = self.folder;
        let mut merging = Merging::new(&self)?;
        let merged = merging.merge();
        let Merging { journal, catalogue, restored, lost, .. } = merging;
        if let Err(error) = merged {
            // Report the merge error, not an error of the clean-up.
            let _ = fs::remove_file(new_path(folder));
            return Err(error);
        }
        let mut recovery = Recovery { lost, ..Recovery::default() };
        if !self.loaded.is_intact() {
            recovery.journal = Some(Entries { cause: cause.to_owned(), ..restored });
        }
        let renumbered = recovery.lost.outcomes > 0;
        let database_is_damaged = compared.database_is_damaged();
        if database_is_damaged {
            recovery.database = Some(self.restored_in_database(compared)?);
        }
        journal.sync()?;
        let failed = |error: std::io::Error| CheckpointError::of_io(folder, &error);
        let kept = (recovery.database.is_some() || recovery.journal.is_some())
            .then(|| database::new_place(folder))
            .transpose()?;
        let path = folder.join(FILE_NAME);
        if let Some(kept) = kept.as_ref().filter(|_| recovery.journal.is_some() && path.exists()) {
            fs::copy(&path, kept.join(FILE_NAME)).map_err(failed)?;
        }
        if recovery.has_lost() {
            (self.report)(&recovery);
        }
        fs::rename(new_path(folder), &path).map_err(failed)?;
        let _ = crate::atomic_file::sync_folder(folder);
        // From here on the journal is complete without the database.
        let database = match (self.database, &kept) {
            (Ok(database), _) if !database_is_damaged && !renumbered && recovery.lost.items == 0 => {
                mark(&database)?;
                database
            }
            (database, kept) => {
                if let Ok(database) = database {
                    database.abandon();
                }
                if let Some(kept) = kept {
                    database::set_aside(folder, kept)?;
                }
                let database = Database::open(folder)?;
                database.ensure_layout()?;
                fill(&database, journal.file(), &catalogue)?;
                mark(&database)?;
                database
            }
        };
        if let Some(kept) = kept {
            // Nothing was moved if the journal was missing and the database is intact.
            let empty = fs::read_dir(&kept).map_err(failed)?.next().is_none();
            if empty {
                fs::remove_dir(&kept).map_err(failed)?;
            } else {
                recovery.kept = Some(kept);
            }
        }
        Ok(Opened { database, journal, catalogue, recovery })
    }

    /// Lists what the database lacked and the journal has.
    fn restored_in_database(&self, compared: &Compared) -> Result<Entries, CheckpointError> {
        let catalogue = &self.loaded.catalogue;
        let mut restored = Entries {
            cause: match &compared.unreadable {
                Some(cause) => cause.clone(),
                None if compared.items.is_empty() && compared.records.is_empty() => "its index".to_owned(),
                None => "parts of it".to_owned(),
            },
            items: compared.items.len() as u64,
            outcomes: compared.records.len() as u64,
            ..Entries::default()
        };
        for (benchmark, index) in &compared.items {
            restored.named.items.entry(benchmark.clone()).or_default().push(*index);
        }
        for number in &compared.records {
            if let Some(location) = catalogue.records.get(*number as usize) {
                let record: Record = decode(self.folder, &self.file.read(*location)?)?;
                restored.named.outcomes.entry(record.configuration).or_default().push(record.item);
            }
        }
        Ok(restored)
    }
}
