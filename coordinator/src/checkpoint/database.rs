//! The database copy of a checkpoint: sled's trees, opened within a limited time.
//!
//! sled panics on some damage and waits forever for threads that cannot be started, so it is opened on a
//! separate thread with a timeout.
//!
//! The database states the version of its layout; the journal has a version of its own in its header (`frame`).
//!
//! The tree of identities contains packed values ([`Identities`]). Recovery reads them to name items that are
//! lost in both copies; everything else uses the keys of the journal.

use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use lumos_tasks::ItemId;

use super::catalogue::{ID, decode_id, encode_id};
use super::error::CheckpointError;

/// How long to wait for a locked database. The caller already holds the folder's lock, so the database is
/// locked either by an earlier open in this process that sled is still closing on background threads, or by
/// an earlier version of lumos.
const PATIENCE: Duration = Duration::from_secs(5);

/// Maximum time for opening. A database of a million records opens in less than a second.
const LONGEST: Duration = Duration::from_secs(600);
/// Interval between checks that opening can still succeed.
const CHECK: Duration = Duration::from_secs(1);

/// Number of threads that sled starts when it is first used. If one of them is missing, sled waits forever.
const THREADS: usize = 7;

/// Layout version.
pub(super) const SCHEMA: u32 = 2;

const SCHEMA_KEY: &str = "schema";
/// Present in the database of a checkpoint that has a journal.
pub(super) const JOURNAL_KEY: &str = "journal";

/// Whether a key of the `meta` tree is the database's own, which the journal does not have.
pub(super) fn is_own_key(key: &[u8]) -> bool {
    [SCHEMA_KEY, JOURNAL_KEY].iter().any(|own| own.as_bytes() == key)
}

/// The database and its trees.
#[derive(Debug, Clone)]
pub(super) struct Database {
    pub(super) folder: PathBuf,
    pub(super) database: sled::Db,
    pub(super) items: sled::Tree,
    pub(super) identities: sled::Tree,
    pub(super) records: sled::Tree,
    pub(super) index: sled::Tree,
    pub(super) meta: sled::Tree,
}

impl Database {
    /// Opens or creates the database in a folder.
    pub(super) fn open(folder: &Path) -> Result<Self, CheckpointError> {
        remove_unfinished_snapshots(folder)?;
        match Self::open_trees(folder) {
            Err(CheckpointError::Corrupt { detail, .. }) if set_snapshots_aside(folder)? > 0 => {
                // A snapshot only speeds up reading the log, so the database can be read without it.
                tracing::debug!(detail, "reading the database without its snapshot");
                Self::open_trees(folder)
            }
            opened => opened,
        }
    }

    fn open_trees(folder: &Path) -> Result<Self, CheckpointError> {
        let owned = folder.to_owned();
        bounded(folder, move || {
            let failed = |error| CheckpointError::of_sled(&owned, &error);
            let database = open_sled(&owned)?;
            let tree = |name: &str| database.open_tree(name).map_err(failed);
            Ok(Self {
                items: tree("items")?,
                identities: tree("identities")?,
                records: tree("log")?,
                index: tree("index")?,
                meta: tree("meta")?,
                database,
                folder: owned.clone(),
            })
        })
    }

    /// Marks a new database with the layout version. Fails if the database has another layout.
    pub(super) fn ensure_layout(&self) -> Result<(), CheckpointError> {
        let failed = |error| CheckpointError::of_sled(&self.folder, &error);
        let Some(found) = self.meta.get(SCHEMA_KEY).map_err(failed)? else {
            self.meta.insert(SCHEMA_KEY, &SCHEMA.to_be_bytes()).map_err(failed)?;
            return self.flush();
        };
        if found.as_ref() == SCHEMA.to_be_bytes() {
            return Ok(());
        }
        let number = <[u8; 4]>::try_from(&*found).map(u32::from_be_bytes);
        let found = number.map_or_else(|_| hex::encode(&*found), |number| number.to_string());
        Err(CheckpointError::Schema { folder: self.folder.clone(), found, known: SCHEMA })
    }

    /// Flushes all trees.
    pub(super) fn flush(&self) -> Result<(), CheckpointError> {
        self.database.flush().map_err(|error| CheckpointError::of_sled(&self.folder, &error))?;
        Ok(())
    }

    /// Leaks a damaged database, to skip the work that sled does on close.
    pub(super) fn abandon(self) {
        std::mem::forget(self);
    }
}

pub(super) fn open_sled(folder: &Path) -> Result<sled::Db, CheckpointError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let opened = sled::Config::new()
            .path(folder)
            .cache_capacity(64 * 1024 * 1024)
            .flush_every_ms(None)
            .open()
            .map_err(|error| CheckpointError::of_sled(folder, &error));
        match opened {
            Err(CheckpointError::InUse { .. }) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(25));
            }
            Err(CheckpointError::InUse { .. }) if !can_start(THREADS) => {
                let detail = "failed to start the threads that close it".to_owned();
                return Err(CheckpointError::Memory { folder: folder.to_owned(), detail });
            }
            opened => return opened,
        }
    }
}

/// Runs a sled operation on a separate thread, with a timeout. sled waits forever for threads that could not
/// be started, and panics on some damage.
fn bounded<T: Send + 'static>(
    folder: &Path,
    open: impl FnOnce() -> Result<T, CheckpointError> + Send + 'static,
) -> Result<T, CheckpointError> {
    let memory =
        |detail: &str| CheckpointError::Memory { folder: folder.to_owned(), detail: detail.to_owned() };
    let no_threads = "failed to start its threads";
    if !can_start(THREADS + 1) {
        return Err(memory(no_threads));
    }
    let (send, receive) = mpsc::sync_channel(1);
    std::thread::Builder::new()
        .name("checkpoint-open".to_owned())
        .spawn(move || {
            let opened = catch_unwind(AssertUnwindSafe(open));
            // The receiver may have timed out.
            let _ = send.send(opened);
        })
        .map_err(|_| memory(no_threads))?;
    let began = Instant::now();
    loop {
        match receive.recv_timeout(CHECK) {
            Ok(Ok(opened)) => return opened,
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => {
                return Err(CheckpointError::corrupt(folder, "the database cannot be read"));
            }
            Err(RecvTimeoutError::Timeout) if !can_start(1) => return Err(memory(no_threads)),
            Err(RecvTimeoutError::Timeout) if began.elapsed() > LONGEST => {
                let detail = format!("timed out after {} s while opening it", LONGEST.as_secs());
                return Err(CheckpointError::Io { folder: folder.to_owned(), detail });
            }
            Err(RecvTimeoutError::Timeout) => {
                tracing::debug!(folder = %folder.display(), "still opening the checkpoint");
            }
        }
    }
}

/// Whether this many threads can be started at the same time.
fn can_start(threads: usize) -> bool {
    let (hold, held) = mpsc::channel::<()>();
    let held = std::sync::Arc::new(std::sync::Mutex::new(held));
    let started: Result<Vec<_>, _> = (0..threads)
        .map(|_| {
            let held = std::sync::Arc::clone(&held);
            std::thread::Builder::new().spawn(move || {
                // Returns when the sender is dropped.
                let _ = held.lock().map(|held| held.recv());
            })
        })
        .collect();
    drop(hold);
    match started {
        Ok(threads) => {
            for thread in threads {
                let _ = thread.join();
            }
            true
        }
        Err(_) => false,
    }
}

/// Lists sled's files in a folder.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if ["db", "conf", "blobs"].contains(&&*name) || name.starts_with("snap.") {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Removes snapshots that sled did not finish writing. sled writes `snap.*.generating` and renames it. If a
/// full disk or a killed process leaves such a file behind, sled treats it as a snapshot and reports the
/// database as damaged.
pub(super) fn remove_unfinished_snapshots(folder: &Path) -> Result<(), CheckpointError> {
    let failed = |error: io::Error| CheckpointError::of_io(folder, &error);
    for file in files(folder).map_err(failed)? {
        if file.extension().is_some_and(|ending| ending == "generating") {
            fs::remove_file(&file).map_err(failed)?;
            tracing::info!(file = %file.display(), "removed an unfinished snapshot of the database");
        }
    }
    Ok(())
}

/// Moves snapshots aside. Returns how many there were.
fn set_snapshots_aside(folder: &Path) -> Result<usize, CheckpointError> {
    let failed = |error: io::Error| CheckpointError::of_io(folder, &error);
    let mut files = files(folder).map_err(failed)?;
    files.retain(|file| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("snap.")));
    if !files.is_empty() {
        move_into(&new_place(folder)?, &files).map_err(failed)?;
    }
    Ok(files.len())
}

/// Moves the database's files into a separate folder.
pub(super) fn set_aside(folder: &Path, place: &Path) -> Result<(), CheckpointError> {
    let failed = |error: io::Error| CheckpointError::of_io(folder, &error);
    move_into(place, &files(folder).map_err(failed)?).map_err(failed)
}

fn move_into(place: &Path, files: &[PathBuf]) -> io::Result<()> {
    for file in files {
        if let Some(name) = file.file_name() {
            fs::rename(file, place.join(name))?;
        }
    }
    Ok(())
}

/// Creates a new folder for damaged files.
pub(super) fn new_place(folder: &Path) -> Result<PathBuf, CheckpointError> {
    let mut number = 1u32;
    loop {
        let place = folder.join(format!("damaged-{number}"));
        match fs::create_dir(&place) {
            Ok(()) => return Ok(place),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(CheckpointError::of_io(&place, &error)),
        }
    }
}

/// Number of identities in one stored value.
const TOGETHER: usize = 256;
/// Length of an entry in bytes: position, identity.
const ENTRY: usize = 8 + ID;

/// Collects the identities of one benchmark's items.
#[derive(Debug, Default)]
pub(super) struct Identities(Vec<(u64, [u8; ID])>);

impl Identities {
    /// Adds an item. Returns `None` if its hash is invalid.
    pub(super) fn add(&mut self, index: u64, id: &ItemId) -> Option<()> {
        self.0.push((index, encode_id(id)?));
        Some(())
    }

    /// Returns the packed values, to be stored under ascending numbers.
    pub(super) fn packed(mut self) -> impl Iterator<Item = Vec<u8>> {
        self.0.sort_unstable();
        let mut rest = self.0.into_iter();
        std::iter::from_fn(move || {
            let mut value = Vec::with_capacity(TOGETHER * ENTRY);
            for (index, id) in rest.by_ref().take(TOGETHER) {
                value.extend_from_slice(&index.to_be_bytes());
                value.extend_from_slice(&id);
            }
            (!value.is_empty()).then_some(value)
        })
    }
}

/// Unpacks positions and identities from a value. Returns `None` if the value is malformed.
pub(super) fn unpack_identities(value: &[u8]) -> Option<Vec<(u64, ItemId)>> {
    let (entries, rest) = value.as_chunks::<ENTRY>();
    if !rest.is_empty() {
        return None;
    }
    entries
        .iter()
        .map(|entry| Some((u64::from_be_bytes(entry[..8].try_into().ok()?), decode_id(&entry[8..]))))
        .collect()
}
