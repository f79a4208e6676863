//! Read access to a checkpoint, during the run or afterwards.
//!
//! [`CheckpointReader`] reads the journal and never writes to the checkpoint's folder. `Checkpoint`
//! dereferences to it, so that the writing process reads in the same way.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lumos_tasks::{Item, ItemId, UnitId};
use serde::de::DeserializeOwned;

use super::catalogue::{Catalogue, Identities, Loaded, lock};
use super::codec::decode;
use super::error::{CheckpointError, run_in_shell};
use super::index::UnitStatus;
use super::journal::{JournalFile, Location, Scanned};
use super::lock::FolderLock;
use super::recovery::{Damage, Recovery};
use super::{
    COMPUTING_KEY, DUPLICATES_KEY, PLAN_KEY, PlanMark, QUEUE_KEY, Record, SECONDS_KEY, WORKERS_KEY, recover,
};
use crate::computing::{Computing, WorkerComputing};
use crate::manifest;
use crate::unit_key::UnitKey;

/// Read access to a checkpoint, including that of a run in progress up to its current state.
///
/// Everything is read from the journal; nothing is written to the checkpoint's folder. If the journal is
/// damaged or missing, both copies are merged in a temporary folder, which is read instead.
///
/// ```no_run
/// use std::path::Path;
/// use lumos_coordinator::CheckpointReader;
///
/// let reader = CheckpointReader::open(Path::new("runs/sample/checkpoint"))?;
/// for record in reader.records() {
///     println!("item {}", record?.item);
/// }
/// # Ok::<_, lumos_coordinator::CheckpointError>(())
/// ```
#[derive(Debug)]
pub struct CheckpointReader {
    pub(super) folder: PathBuf,
    pub(super) file: JournalFile,
    pub(super) catalogue: Arc<Mutex<Catalogue>>,
    pub(super) duplicates: Arc<AtomicU64>,
    pub(crate) recovery: Recovery,
    in_use: AtomicBool,
    /// How far the journal was read; `None` if the writer updates the catalogue, or a copy is read.
    position: Mutex<Option<Scanned>>,
    copy: Option<tempfile::TempDir>,
}

impl CheckpointReader {
    /// Opens a checkpoint for reading. Damage is reported as warnings and in [`CheckpointReader::damage`].
    ///
    /// # Errors
    /// If the folder has no checkpoint, it cannot be read, or another version wrote it.
    pub fn open(folder: &Path) -> Result<Self, CheckpointError> {
        if let Some(reader) = Self::open_intact(folder) {
            return Ok(reader);
        }
        // Keep writers out while damage is examined and both copies are merged.
        let held = FolderLock::share(folder);
        let in_use = held.is_none();
        match JournalFile::open(folder)? {
            Some(file) => {
                let loaded = Loaded::read(&file)?;
                if loaded.is_intact() || in_use {
                    if !loaded.is_intact() {
                        tracing::warn!(
                            "the journal of {} is damaged and another process is writing it: {} entries cannot be \
                             read; when it has ended, restore them with `lumos repair {}`",
                            folder.display(),
                            loaded.scanned.damaged_entries,
                            run_in_shell(folder)
                        );
                    }
                    let reader = Self::new(folder, file, loaded.catalogue, Recovery::default(), in_use)?;
                    return Ok(Self { position: Mutex::new(Some(loaded.scanned)), ..reader });
                }
            }
            None if !super::is_there(folder) => {
                return Err(CheckpointError::Missing { folder: folder.to_owned() });
            }
            // An earlier version, which writes no journal, has it open.
            None if in_use => return Err(CheckpointError::InUse { folder: folder.to_owned() }),
            None => {}
        }
        Self::opencopy(folder)
    }

    /// Opens a checkpoint whose journal is intact without holding the lock meanwhile, so that a writer does not wait for
    /// a long journal. Writers append to the journal, cut off an entry that was never complete, or replace the file,
    /// which stays open here. Returns `None` if the journal is missing or damaged, or was changed in such a way at this
    /// moment.
    fn open_intact(folder: &Path) -> Option<Self> {
        let in_use = FolderLock::share(folder).is_none();
        let file = JournalFile::open(folder).ok()??;
        let loaded = Loaded::read(&file).ok().filter(Loaded::is_intact)?;
        let reader = Self::new(folder, file, loaded.catalogue, Recovery::default(), in_use).ok()?;
        Some(Self { position: Mutex::new(Some(loaded.scanned)), ..reader })
    }

    /// Returns the number of settled units and whether another process is writing the checkpoint. Reads only the keys of
    /// committed entries, which is faster than [`CheckpointReader::open`], and does not detect damaged values.
    ///
    /// # Errors
    /// As for [`CheckpointReader::open`].
    pub fn count_settled(folder: &Path) -> Result<(u64, bool), CheckpointError> {
        let in_use = FolderLock::share(folder).is_none();
        if let Some(file) = JournalFile::open(folder)?
            && let Ok(Some(settled)) = file.count_settled()
        {
            return Ok((settled, in_use));
        }
        let reader = Self::open(folder)?;
        Ok((reader.settled(), reader.is_in_use()))
    }

    pub(super) fn new(
        folder: &Path,
        file: JournalFile,
        catalogue: Catalogue,
        recovery: Recovery,
        in_use: bool,
    ) -> Result<Self, CheckpointError> {
        let reader = Self {
            folder: folder.to_owned(),
            file,
            catalogue: Arc::new(Mutex::new(catalogue)),
            duplicates: Arc::default(),
            recovery,
            in_use: AtomicBool::new(in_use),
            position: Mutex::new(None),
            copy: None,
        };
        reader.read_duplicates()?;
        Ok(reader)
    }

    fn read_duplicates(&self) -> Result<(), CheckpointError> {
        let duplicates = self.note(DUPLICATES_KEY)?.unwrap_or_default();
        self.duplicates.store(duplicates, Ordering::Relaxed);
        Ok(())
    }

    /// Reads what another process has recorded since the checkpoint was opened or last refreshed. Returns the number
    /// of new records, or `None` if the checkpoint has to be opened again, because the journal was repaired or
    /// replaced.
    ///
    /// Only records that are flushed are read, so that a record which is being written is never taken for damage.
    ///
    /// # Errors
    /// If the journal cannot be read.
    pub fn refresh(&self) -> Result<Option<u64>, CheckpointError> {
        let in_use = FolderLock::share(&self.folder).is_none();
        self.in_use.store(in_use, Ordering::Relaxed);
        let mut position = self.position.lock().unwrap_or_else(PoisonError::into_inner);
        // A copy of a damaged checkpoint is valid until a process repairs the original.
        let Some(from) = *position else { return Ok((!in_use || self.copy.is_none()).then_some(0)) };
        let (before, after, next);
        {
            let mut catalogue = self.lock();
            before = catalogue.records.len();
            next = Loaded::extend(&mut catalogue, &self.file, from)?;
            after = catalogue.records.len();
        }
        if next.is_some() {
            *position = next;
            self.read_duplicates()?;
        }
        Ok(next.map(|_| (after - before) as u64))
    }

    /// Merges both copies in a temporary folder.
    fn opencopy(folder: &Path) -> Result<Self, CheckpointError> {
        let failed = |error: io::Error| CheckpointError::of_io(&std::env::temp_dir(), &error);
        let copy = tempfile::Builder::new().prefix("lumos-checkpoint-").tempdir().map_err(failed)?;
        let inner = copy.path().join("checkpoint");
        copy_folder(folder, &inner).map_err(failed)?;
        // Recovery uses the manifest to list the items of lost outcomes.
        if let Some(run) = folder.parent() {
            let _ = fs::copy(run.join(manifest::FILE_NAME), copy.path().join(manifest::FILE_NAME));
        }
        let opened = recover::open(&inner, &|recovery| recovery.log_lost(folder))?;
        let recovery = Recovery { kept: None, ..opened.recovery };
        recovery.log(folder);
        if !recovery.is_empty() {
            tracing::warn!(
                "the checkpoint was not changed; repair it with `lumos repair {}`",
                run_in_shell(folder)
            );
        }
        let file = opened.journal.file().clone();
        let reader = Self::new(folder, file, opened.catalogue, recovery, false)?;
        Ok(Self { copy: Some(copy), ..reader })
    }

    /// Path of the checkpoint's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Damage that was found on opening.
    pub fn damage(&self) -> Damage {
        match (self.recovery.is_empty(), self.recovery.has_lost()) {
            (true, _) => Damage::None,
            (false, false) => Damage::Repaired,
            (false, true) => Damage::Lost,
        }
    }

    /// Whether another process was writing the checkpoint when it was opened or last refreshed.
    pub fn is_in_use(&self) -> bool {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Returns the mark of the complete plan, or `None` if planning was interrupted or has not happened.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn plan(&self) -> Result<Option<PlanMark>, CheckpointError> {
        self.note(PLAN_KEY)
    }

    /// Positions and identities of a benchmark's items, in order. Does not read the items.
    pub fn item_ids(
        &self,
        benchmark: &str,
    ) -> impl Iterator<Item = Result<(u64, ItemId), CheckpointError>> + Send + use<> {
        let places = self.lock().items.get(benchmark).cloned().unwrap_or_default();
        Identities::new(self.file.clone(), places)
    }

    /// The items of a benchmark, in order.
    pub fn items(
        &self,
        benchmark: &str,
    ) -> impl Iterator<Item = Result<Item, CheckpointError>> + Send + use<> {
        let places = self.lock().items.get(benchmark).cloned().unwrap_or_default();
        let (file, folder) = (self.file.clone(), self.folder.clone());
        (0..places.len()).map(move |at| read(&file, &folder, places[at].1))
    }

    /// Returns one item, or `None` if it is not stored.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn item(&self, benchmark: &str, index: u64) -> Result<Option<Item>, CheckpointError> {
        let location = self.lock().item(benchmark, index);
        location.map(|location| self.read(location)).transpose()
    }

    /// Number of stored items of all benchmarks.
    pub fn item_count(&self) -> u64 {
        self.lock().item_count()
    }

    /// All records, in the order they were recorded.
    pub fn records(&self) -> impl Iterator<Item = Result<Record, CheckpointError>> + Send + use<> {
        self.records_from(0)
    }

    /// The records from a number on, in the order they were recorded.
    pub fn records_from(
        &self,
        first: usize,
    ) -> impl Iterator<Item = Result<Record, CheckpointError>> + Send + use<> {
        let (catalogue, file) = (Arc::clone(&self.catalogue), self.file.clone());
        let folder = self.folder.clone();
        (first..).map_while(move |number| {
            let location = lock(&catalogue).records.get(number).copied()?;
            Some(read(&file, &folder, location))
        })
    }

    /// Returns the records of a unit: faults by attempt, then the outcome that settled it.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn records_of(&self, unit: &UnitId) -> Result<Vec<Record>, CheckpointError> {
        let unit = UnitKey::of(unit);
        let locations: Vec<Location> = {
            let catalogue = self.lock();
            let numbers = catalogue.index.numbers(&unit).into_iter();
            numbers.filter_map(|number| catalogue.records.get(number as usize).copied()).collect()
        };
        locations.into_iter().map(|location| self.read(location)).collect()
    }

    /// Returns the status of a unit, from memory.
    pub(crate) fn status(&self, unit: &UnitId) -> UnitStatus {
        let unit = UnitKey::of(unit);
        self.lock().index.status(&unit)
    }

    /// Number of settled units.
    pub fn settled(&self) -> u64 {
        self.lock().index.settled()
    }

    /// Number of outcomes that were dropped because their unit was already settled, over all sessions of the
    /// run.
    pub fn duplicates(&self) -> u64 {
        self.duplicates.load(Ordering::Relaxed)
    }

    /// Total seconds of all sessions so far, each up to its latest record; `None` before the first record.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn seconds(&self) -> Result<Option<f64>, CheckpointError> {
        self.note(SECONDS_KEY)
    }

    /// How the sessions so far computed the run's models.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn computing(&self) -> Result<Vec<Computing>, CheckpointError> {
        Ok(self.note(COMPUTING_KEY)?.unwrap_or_default())
    }

    /// Address of the queue whose workers executed the latest session, without credentials; `None` for a session in one
    /// process, or if an earlier version wrote the checkpoint.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn queue(&self) -> Result<Option<String>, CheckpointError> {
        Ok(self.note::<Option<String>>(QUEUE_KEY)?.flatten())
    }

    /// Usage figures of workers' engines for the run, by worker. A worker that restarted under its name has
    /// one entry per start.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn workers(&self) -> Result<Vec<WorkerComputing>, CheckpointError> {
        let locations: Vec<Location> = {
            let catalogue = self.lock();
            let notes = catalogue.notes.range(WORKERS_KEY.as_bytes().to_vec()..);
            let of_workers = notes.take_while(|(key, _)| key.starts_with(WORKERS_KEY.as_bytes()));
            of_workers.map(|(_, location)| *location).collect()
        };
        locations.into_iter().map(|location| self.read(location)).collect()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Catalogue> {
        lock(&self.catalogue)
    }

    fn note<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, CheckpointError> {
        let location = self.lock().notes.get(key.as_bytes()).copied();
        location.map(|location| self.read(location)).transpose()
    }

    fn read<T: DeserializeOwned>(&self, location: Location) -> Result<T, CheckpointError> {
        read(&self.file, &self.folder, location)
    }
}

fn read<T: DeserializeOwned>(
    file: &JournalFile,
    folder: &Path,
    location: Location,
) -> Result<T, CheckpointError> {
    decode(folder, &file.read(location)?)
}

/// Copies a checkpoint without the files kept from earlier damage.
fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        } else if kind.is_dir() && entry.file_name() == "blobs" {
            copy_folder(&entry.path(), &to.join("blobs"))?;
        }
    }
    Ok(())
}
