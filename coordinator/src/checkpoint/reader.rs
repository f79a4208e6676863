//! Reading a checkpoint, while it is written or long afterwards.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lumos_tasks::{Item, ItemId, UnitId};
use serde::de::DeserializeOwned;

use super::catalogue::{Catalogue, Identities, Loaded};
use super::codec::decode;
use super::error::CheckpointError;
use super::index::{SettledIndex, UnitStatus};
use super::journal::{JournalFile, Location};
use super::lock::FolderLock;
use super::record::Record;
use super::recovery::Recovery;
use super::{COMPUTING_KEY, DUPLICATES_KEY, PLAN_KEY, PlanMark, SECONDS_KEY, WORKERS_KEY, recover};
use crate::computing::{Computing, WorkerComputing};
use crate::manifest;
use crate::unit_key::UnitKey;

/// A checkpoint that can be read: that of a run in progress too, as far as it has come.
///
/// Everything is read from the journal, and nothing is written to the checkpoint's folder. If the journal is damaged or
/// missing, both copies are put together in a temporary folder, which is read instead.
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
    pub(super) recovery: Recovery,
    in_use: bool,
    _copy: Option<tempfile::TempDir>,
}

impl CheckpointReader {
    /// Opens a checkpoint to be read. What is damaged is said in warnings and in [`CheckpointReader::recovery`].
    ///
    /// # Errors
    /// If the folder has no checkpoint, it cannot be read, or it was written by another version.
    pub fn open(folder: &Path) -> Result<Self, CheckpointError> {
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
                            folder.parent().unwrap_or(folder).display()
                        );
                    }
                    return Self::new(folder, file, loaded.catalogue, Recovery::default(), in_use);
                }
            }
            None if !super::is_there(folder) => {
                return Err(CheckpointError::Missing { folder: folder.to_owned() });
            }
            // An earlier version, which writes no journal.
            None if in_use => return Err(CheckpointError::InUse { folder: folder.to_owned() }),
            None => {}
        }
        Self::open_copy(folder)
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
            in_use,
            _copy: None,
        };
        let duplicates = reader.note(DUPLICATES_KEY)?.unwrap_or_default();
        reader.duplicates.store(duplicates, Ordering::Relaxed);
        Ok(reader)
    }

    /// Puts both copies together elsewhere.
    fn open_copy(folder: &Path) -> Result<Self, CheckpointError> {
        let failed = |error: io::Error| CheckpointError::of_io(&std::env::temp_dir(), &error);
        let copy = tempfile::Builder::new().prefix("lumos-checkpoint-").tempdir().map_err(failed)?;
        let inner = copy.path().join("checkpoint");
        copy_folder(folder, &inner).map_err(failed)?;
        // Names of lost outcomes are found by it.
        if let Some(run) = folder.parent() {
            let _ = fs::copy(run.join(manifest::FILE_NAME), copy.path().join(manifest::FILE_NAME));
        }
        let opened = recover::open(&inner)?;
        let recovery = Recovery { kept: None, ..opened.recovery };
        recovery.log(folder);
        if !recovery.is_empty() {
            let run = folder.parent().unwrap_or(folder);
            tracing::warn!("the checkpoint was not changed; repair it with `lumos repair {}`", run.display());
        }
        let file = opened.journal.file().clone();
        let reader = Self::new(folder, file, opened.catalogue, recovery, false)?;
        Ok(Self { _copy: Some(copy), ..reader })
    }

    /// The checkpoint's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What was found damaged when it was opened.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Whether another process was writing it when it was opened.
    pub fn is_in_use(&self) -> bool {
        self.in_use
    }

    /// The mark of the plan; `None` where planning was interrupted or has not happened.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn plan(&self) -> Result<Option<PlanMark>, CheckpointError> {
        self.note(PLAN_KEY)
    }

    /// Positions and identities of a benchmark's items, in order, without reading the items.
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

    /// One item.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn item(&self, benchmark: &str, index: u64) -> Result<Option<Item>, CheckpointError> {
        let location = self.lock().item(benchmark, index);
        location.map(|location| self.read(location)).transpose()
    }

    /// How many items are stored, all benchmarks together.
    pub fn item_count(&self) -> u64 {
        self.lock().item_count()
    }

    /// All records, in the order they were recorded.
    pub fn records(&self) -> impl Iterator<Item = Result<Record, CheckpointError>> + Send + use<> {
        let (catalogue, file) = (Arc::clone(&self.catalogue), self.file.clone());
        let folder = self.folder.clone();
        (0..).map_while(move |number| {
            let location = lock(&catalogue).records.get(number).copied()?;
            Some(read(&file, &folder, location))
        })
    }

    /// The records of a unit: faults by attempt, the outcome that settled it last.
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

    /// Where a unit stands, from memory.
    pub fn status(&self, unit: &UnitId) -> UnitStatus {
        let unit = UnitKey::of(unit);
        self.with_index(|index| index.status(&unit))
    }

    /// How many units are settled.
    pub fn settled(&self) -> u64 {
        self.with_index(SettledIndex::settled)
    }

    /// How many outcomes were dropped because their unit was settled already, over the run's whole life.
    pub fn duplicates(&self) -> u64 {
        self.duplicates.load(Ordering::Relaxed)
    }

    /// Seconds that all sessions so far took, up to the latest record of each; `None` before the first.
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

    /// What the engines of workers did for the run, by worker; of one that began anew under its name twice.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn workers(&self) -> Result<Vec<WorkerComputing>, CheckpointError> {
        let locations: Vec<Location> = {
            let catalogue = self.lock();
            let notes = catalogue.notes.range(WORKERS_KEY.as_bytes().to_vec()..);
            let of_workers = notes.take_while(|(key, _)| key.starts_with(WORKERS_KEY.as_bytes()));
            of_workers.map(|(_, location)| *location).collect()
        };
        locations.into_iter().map(|location| self.read(location)).collect()
    }

    /// Looks at the index of settled units.
    pub(crate) fn with_index<T>(&self, look: impl FnOnce(&SettledIndex) -> T) -> T {
        look(&self.lock().index)
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

fn lock(catalogue: &Mutex<Catalogue>) -> MutexGuard<'_, Catalogue> {
    catalogue.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T: DeserializeOwned>(
    file: &JournalFile,
    folder: &Path,
    location: Location,
) -> Result<T, CheckpointError> {
    decode(&file.read(location)?).map_err(|error| error.at(folder))
}

/// Copies a checkpoint without the files of earlier damage.
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
