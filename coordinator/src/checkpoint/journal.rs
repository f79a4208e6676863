//! The journal copy of a checkpoint: one append-only file, from which everything is read.
//!
//! A batch is written to the journal, then to the database, which is flushed; then the journal's header is
//! updated to mark the batch as committed. Only then is the batch acknowledged. Entries before the committed
//! end are therefore in both copies, and a missing one was lost. Entries after it were never acknowledged:
//! they are a batch, possibly incomplete, of a process that was killed.

use std::collections::BTreeSet;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::catalogue::{Catalogue, parse_record_key};
use super::error::CheckpointError;
use super::frame::{self, Frame, HEADER, Head, HeadRead, Kind, LONGEST_START, MARKER, PREFIX};
use super::index::SettledIndex;

/// Name of the journal in a checkpoint's folder.
pub(super) const FILE_NAME: &str = "journal";

/// Bytes read at a time while scanning.
const WINDOW: usize = 1 << 20;
/// Bytes read at a time while only keys are read; most values are longer.
const KEY_WINDOW: usize = 4096;
/// Maximum length of prefix and key where only keys are read. Those of items and records are shorter.
const KEY_START: usize = 512;

/// Location and checksum of a value in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) offset: u64,
    pub(super) length: u32,
    pub(super) checksum: u32,
}

impl Location {
    /// Whether the value has this location's length and checksum.
    pub(super) fn matches(&self, value: &[u8]) -> bool {
        value.len() == self.length as usize && crc32fast::hash(value) == self.checksum
    }
}

/// The journal's file, opened for reading at any offset.
#[derive(Debug, Clone)]
pub(super) struct JournalFile {
    path: Arc<Path>,
    file: Arc<File>,
}

impl JournalFile {
    /// Opens a journal for reading. Returns `None` if the folder has no journal.
    pub(super) fn open(folder: &Path) -> Result<Option<Self>, CheckpointError> {
        let path = folder.join(FILE_NAME);
        match File::open(&path) {
            Ok(file) => Ok(Some(Self { path: path.into(), file: Arc::new(file) })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(CheckpointError::of_io(&path, &error)),
        }
    }

    /// Reads a value and verifies its checksum.
    pub(super) fn read(&self, location: Location) -> Result<Vec<u8>, CheckpointError> {
        let value = self.bytes_at(location.offset, location.length as usize)?;
        if location.matches(&value) {
            return Ok(value);
        }
        let detail =
            format!("the entry at byte {} has changed since the journal was opened", location.offset);
        Err(CheckpointError::corrupt(self.path.parent().unwrap_or(&self.path), detail))
    }

    /// Reads bytes without verifying a checksum.
    pub(super) fn bytes_at(&self, offset: u64, length: usize) -> Result<Vec<u8>, CheckpointError> {
        let mut bytes = vec![0; length];
        read_exact_at(&self.file, &mut bytes, offset)
            .map_err(|error| CheckpointError::of_io(&self.path, &error))?;
        Ok(bytes)
    }

    pub(super) fn length(&self) -> Result<u64, CheckpointError> {
        Ok(self.file.metadata().map_err(|error| CheckpointError::of_io(&self.path, &error))?.len())
    }

    /// Returns the header; `None` if it is damaged.
    pub(super) fn head(&self) -> Result<Option<Head>, CheckpointError> {
        let mut header = [0; HEADER as usize];
        let head = match read_exact_at(&self.file, &mut header, 0) {
            Ok(()) => Head::decode(&header),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => HeadRead::Damaged,
            Err(error) => return Err(CheckpointError::of_io(&self.path, &error)),
        };
        match head {
            HeadRead::Intact(head) => Ok(Some(head)),
            HeadRead::Damaged => Ok(None),
            HeadRead::Version(found) => Err(CheckpointError::Schema {
                folder: self.path.parent().unwrap_or(&self.path).to_owned(),
                found: format!("journal {found}"),
                known: super::database::SCHEMA,
            }),
        }
    }

    /// Scans all entries and passes each to `visit`, whether its value is intact or damaged.
    pub(super) fn scan(&self, visit: impl FnMut(Entry<'_>)) -> Result<Scanned, CheckpointError> {
        // Read the header before the file length: entries that are appended meanwhile lie after the committed
        // end.
        let head = self.head()?;
        let start = Scanned { head, end: HEADER, ..Scanned::default() };
        let mut scanned = self.scan_to(self.length()?, start, visit)?;
        if let Some(head) = scanned.head
            && head.entries > scanned.next
        {
            // The file is truncated, or unreadable up to its end.
            scanned.damaged_entries += head.entries - scanned.next;
        }
        Ok(scanned)
    }

    /// Continues a scan with the entries that were appended since, up to a length of the file.
    pub(super) fn scan_to(
        &self,
        length: u64,
        mut scanned: Scanned,
        mut visit: impl FnMut(Entry<'_>),
    ) -> Result<Scanned, CheckpointError> {
        let failed = |error: io::Error| CheckpointError::of_io(&self.path, &error);
        let mut window = Window { file: &self.file, length, size: WINDOW, start: 0, bytes: Vec::new() };
        let mut at = scanned.end;
        while at < window.length {
            let frame = Frame::decode(window.at(at, LONGEST_START).map_err(failed)?);
            let length = frame.as_ref().map(Frame::length);
            let follows = frame.is_some_and(|frame| follows(&frame, scanned.next, at));
            let Some(length) = length.filter(|length| follows && at + length <= window.length) else {
                let Some(found) = window.next_entry(at + 1, scanned.next).map_err(failed)? else { break };
                scanned.damaged_bytes += found - at;
                at = found;
                continue;
            };
            let bytes = window.at(at, usize::try_from(length).unwrap_or(usize::MAX)).map_err(failed)?;
            let Some(frame) = Frame::decode(bytes) else { break };
            let start = PREFIX + frame.key.len();
            let value = &bytes[start..];
            let location = Location {
                offset: at + start as u64,
                length: frame.value_length,
                checksum: frame.value_checksum,
            };
            scanned.damaged_entries += frame.sequence - scanned.next;
            scanned.next = frame.sequence + 1;
            let intact = location.matches(value);
            scanned.damaged_entries += u64::from(!intact);
            visit(Entry { kind: frame.kind, key: frame.key, location, intact });
            at += length;
            scanned.end = at;
        }
        Ok(scanned)
    }

    /// Counts the settled units among the committed entries. Reads prefixes and keys only, so damaged values are
    /// not detected. Returns `None` if the header, a prefix or a key is damaged.
    pub(super) fn count_settled(&self) -> Result<Option<u64>, CheckpointError> {
        let failed = |error: io::Error| CheckpointError::of_io(&self.path, &error);
        let Some(head) = self.head()? else { return Ok(None) };
        let length = head.bytes.min(self.length()?);
        let mut window = Window { file: &self.file, length, size: KEY_WINDOW, start: 0, bytes: Vec::new() };
        let mut index = SettledIndex::default();
        let mut at = HEADER;
        for sequence in 0..head.entries {
            let Some(frame) = Frame::decode(window.at(at, KEY_START).map_err(failed)?) else {
                return Ok(None);
            };
            if frame.sequence != sequence {
                return Ok(None);
            }
            if frame.kind == Kind::Record {
                let loaded =
                    parse_record_key(frame.key).and_then(|(number, entry)| index.load(number, entry));
                if loaded.is_none() {
                    return Ok(None);
                }
            }
            at += frame.length();
        }
        Ok((at == head.bytes && at == length).then(|| index.settled()))
    }

    /// Whether the file at the journal's path is another one by now, or shorter than `length`.
    pub(super) fn is_replaced(&self, length: u64) -> Result<bool, CheckpointError> {
        let failed = |error: io::Error| CheckpointError::of_io(&self.path, &error);
        let opened = self.file.metadata().map_err(failed)?;
        let found = match std::fs::metadata(&*self.path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(error) => return Err(failed(error)),
        };
        Ok(found.len() < length || !is_same(&opened, &found))
    }
}

#[cfg(unix)]
fn is_same(opened: &Metadata, found: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (opened.dev(), opened.ino()) == (found.dev(), found.ino())
}

/// Other systems do not replace a file that is open.
#[cfg(not(unix))]
fn is_same(_opened: &Metadata, _found: &Metadata) -> bool {
    true
}

/// An entry found by a scan. Its key is always intact.
pub(super) struct Entry<'a> {
    pub(super) kind: Kind,
    pub(super) key: &'a [u8],
    pub(super) location: Location,
    /// Whether the value is intact.
    pub(super) intact: bool,
}

/// Result of a scan.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Scanned {
    /// The header; `None` if it is damaged.
    pub(super) head: Option<Head>,
    /// Offset after the last entry.
    pub(super) end: u64,
    /// The next sequence number.
    pub(super) next: u64,
    /// Committed entries that are missing or damaged.
    pub(super) damaged_entries: u64,
    /// Bytes that do not belong to any entry.
    pub(super) damaged_bytes: u64,
}

impl Scanned {
    /// Whether the header is valid and everything committed is present.
    pub(super) fn is_intact(&self) -> bool {
        self.head.is_some() && self.damaged_entries == 0 && self.damaged_bytes == 0
    }
}

/// Whether an entry at this offset can have its sequence number: not lower than `next`, and not higher than
/// the number of entries that fit before it.
fn follows(frame: &Frame<'_>, next: u64, at: u64) -> bool {
    (next..=(at - HEADER) / PREFIX as u64).contains(&frame.sequence)
}

/// A window that reads the file in parts.
struct Window<'a> {
    file: &'a File,
    length: u64,
    /// Bytes read at a time.
    size: usize,
    start: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    /// Returns up to `wanted` bytes from an offset; fewer at the end of the file.
    fn at(&mut self, offset: u64, wanted: usize) -> io::Result<&[u8]> {
        let left = usize::try_from(self.length.saturating_sub(offset)).unwrap_or(usize::MAX);
        let wanted = wanted.min(left);
        let within = offset >= self.start && offset + wanted as u64 <= self.start + self.bytes.len() as u64;
        if !within {
            self.bytes.resize(wanted.max(self.size.min(left)), 0);
            read_exact_at(self.file, &mut self.bytes, offset)?;
            self.start = offset;
        }
        let from = usize::try_from(offset - self.start).unwrap_or(usize::MAX);
        Ok(&self.bytes[from..from + wanted])
    }

    /// Finds the offset of the next entry.
    fn next_entry(&mut self, mut from: u64, sequence: u64) -> io::Result<Option<u64>> {
        while from < self.length {
            let bytes = self.at(from, LONGEST_START)?;
            let found = bytes.windows(MARKER.len()).position(|four| four == MARKER);
            let Some(found) = found else {
                // A marker may span the end of the window.
                from += (bytes.len() - bytes.len().min(MARKER.len() - 1)).max(1) as u64;
                continue;
            };
            let at = from + found as u64;
            let frame = Frame::decode(self.at(at, LONGEST_START)?);
            if frame.is_some_and(|frame| follows(&frame, sequence, at)) {
                return Ok(Some(at));
            }
            from = at + 1;
        }
        Ok(None)
    }
}

/// The journal, opened for appending.
#[derive(Debug)]
pub(super) struct Journal {
    file: JournalFile,
    end: u64,
    next: u64,
    records: u32,
    items: u64,
    notes: BTreeSet<Vec<u8>>,
    buffer: Vec<u8>,
    /// A second copy of the header in the lock file, so that losses can be counted if the whole journal is
    /// lost.
    mirror: Option<File>,
}

/// Capacity that the buffer keeps after a write.
const KEPT: usize = 1 << 20;

impl Journal {
    /// Creates an empty journal and replaces an existing file.
    pub(super) fn create(path: &Path) -> Result<Self, CheckpointError> {
        let failed = |error: io::Error| CheckpointError::of_io(path, &error);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path);
        let scanned = Scanned { end: HEADER, ..Scanned::default() };
        let mut journal = Self::new(path, file.map_err(failed)?, &scanned, &Catalogue::default());
        journal.commit()?;
        Ok(journal)
    }

    /// Also writes the header to this file, now and on every commit.
    pub(super) fn mirror_in(&mut self, mirror: File) -> Result<(), CheckpointError> {
        self.mirror = Some(mirror);
        self.commit()
    }

    /// Opens the journal in a folder to append after the entries that a scan found.
    pub(super) fn open(
        folder: &Path,
        scanned: &Scanned,
        catalogue: &Catalogue,
    ) -> Result<Self, CheckpointError> {
        let path = folder.join(FILE_NAME);
        let failed = |error: io::Error| CheckpointError::of_io(&path, &error);
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(failed)?;
        if file.metadata().map_err(failed)?.len() > scanned.end {
            // The rest of an entry that was being written when the process was killed.
            file.set_len(scanned.end).map_err(failed)?;
        }
        Ok(Self::new(&path, file, scanned, catalogue))
    }

    fn new(path: &Path, file: File, scanned: &Scanned, catalogue: &Catalogue) -> Self {
        Self {
            file: JournalFile { path: path.into(), file: Arc::new(file) },
            end: scanned.end,
            next: scanned.next,
            records: catalogue.index.next(),
            items: catalogue.item_count(),
            notes: catalogue.notes.keys().cloned().collect(),
            buffer: Vec::new(),
            mirror: None,
        }
    }

    /// Sets the number of items for the next commit.
    pub(super) fn set_items(&mut self, items: u64) {
        self.items = items;
    }

    pub(super) fn file(&self) -> &JournalFile {
        &self.file
    }

    /// Adds an entry to the write buffer and returns the location that its value will have.
    pub(super) fn push(&mut self, kind: Kind, key: &[u8], value: &[u8]) -> Result<Location, CheckpointError> {
        let start = self.buffer.len();
        let Some(checksum) = frame::push(&mut self.buffer, kind, self.next, key, value) else {
            self.buffer.truncate(start);
            return Err(CheckpointError::Io {
                folder: self.file.path.to_path_buf(),
                detail: format!("a value of {} bytes is too large for the journal", value.len()),
            });
        };
        self.next += 1;
        self.records += u32::from(kind == Kind::Record);
        if kind == Kind::Note && !self.notes.contains(key) {
            self.notes.insert(key.to_vec());
        }
        Ok(Location {
            offset: self.end + (self.buffer.len() - value.len()) as u64,
            // `frame::push` verified that the length fits.
            length: u32::try_from(value.len()).unwrap_or(u32::MAX),
            checksum,
        })
    }

    /// Number of buffered bytes.
    pub(super) fn waiting(&self) -> usize {
        self.buffer.len()
    }

    /// Appends the buffered entries to the file.
    pub(super) fn write(&mut self) -> Result<(), CheckpointError> {
        write_all_at(&self.file.file, &self.buffer, self.end).map_err(|error| self.failed(&error))?;
        self.end += self.buffer.len() as u64;
        self.buffer.clear();
        self.buffer.shrink_to(KEPT);
        Ok(())
    }

    /// Updates the header: everything written so far is in both copies.
    pub(super) fn commit(&mut self) -> Result<(), CheckpointError> {
        let head = Head {
            entries: self.next,
            bytes: self.end,
            records: self.records,
            items: self.items,
            notes: u32::try_from(self.notes.len()).unwrap_or(u32::MAX),
        };
        for file in [Some(&*self.file.file), self.mirror.as_ref()].into_iter().flatten() {
            write_all_at(file, &head.encode(), 0).map_err(|error| self.failed(&error))?;
        }
        Ok(())
    }

    /// Flushes the file to disk.
    pub(super) fn sync(&self) -> Result<(), CheckpointError> {
        self.file.file.sync_data().map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &io::Error) -> CheckpointError {
        CheckpointError::of_io(&self.file.path, error)
    }
}

/// Path of a new journal before it replaces the old one.
pub(super) fn new_path(folder: &Path) -> PathBuf {
    folder.join("journal.new")
}

#[cfg(unix)]
fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(unix)]
fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, offset)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                bytes = &mut bytes[read..];
                offset += read as u64;
            }
        }
    }
    Ok(())
}

#[cfg(windows)]
fn write_all_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = std::os::windows::fs::FileExt::seek_write(file, bytes, offset)?;
        bytes = &bytes[written..];
        offset += written as u64;
    }
    Ok(())
}
