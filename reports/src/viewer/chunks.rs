//! Chunks: the trajectories of consecutive units, which the page loads when one of them is opened.
//!
//! A chunk is the script `data/NAME.js`. It passes its units (JSON, gzip, base64) to a function of the page,
//! because browsers do not let a page read files next to it in another way. Threads pack and write chunks
//! while the checkpoint is read.

use std::fs::{self, File};
use std::io::{self, Write};
use std::num::NonZero;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use serde::Serialize;

use super::index::pack_bytes;
use crate::export::ExportError;

/// Maximum number of units in a chunk.
pub(super) const UNITS: usize = 200;
/// Length of a chunk's JSON in bytes after which no unit is added.
const BYTES: usize = 4 << 20;
/// Folder of the chunks.
pub(super) const FOLDER: &str = "data";

/// A chunk before packing.
struct PlainChunk {
    name: String,
    json: Vec<u8>,
}

/// Collects units into chunks.
pub(super) struct ChunkWriter {
    prefix: String,
    json: Vec<u8>,
    units: usize,
    chunks: u32,
    sender: SyncSender<PlainChunk>,
}

/// Number of chunks and bytes that were written.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Written {
    pub(super) chunks: u32,
    pub(super) bytes: u64,
}

impl ChunkWriter {
    /// Runs `collect` with a writer of chunks below a page's folder. Chunk names begin with `prefix`.
    ///
    /// # Errors
    /// Errors of `collect`, and of writing.
    pub(super) fn run(
        page: &Path,
        prefix: &str,
        collect: impl FnOnce(&mut Self) -> Result<(), ExportError>,
    ) -> Result<Written, ExportError> {
        let folder = page.join(FOLDER);
        fs::create_dir_all(&folder).map_err(ExportError::at(&folder))?;
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        let (sender, receiver) = sync_channel(threads);
        let receiver = Mutex::new(receiver);
        thread::scope(|scope| {
            let start = |_| scope.spawn(|| write_all(&folder, &receiver));
            let threads: Vec<_> = (0..threads).map(start).collect();
            let mut writer =
                Self { prefix: prefix.to_owned(), json: Vec::new(), units: 0, chunks: 0, sender };
            let collected = collect(&mut writer);
            let mut written = Written { chunks: writer.chunks, bytes: 0 };
            // The threads end when the sender is gone.
            drop(writer);
            for thread in threads {
                let bytes = thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
                written.bytes += bytes.map_err(ExportError::at(&folder))?;
            }
            collected.map(|()| written)
        })
    }

    /// Adds a unit. Returns whether the chunk is full.
    ///
    /// # Errors
    /// If the unit cannot be written as JSON.
    pub(super) fn add(&mut self, unit: &impl Serialize) -> io::Result<bool> {
        self.json.push(if self.units == 0 { b'[' } else { b',' });
        serde_json::to_writer(&mut self.json, unit)?;
        self.units += 1;
        Ok(self.units >= UNITS || self.json.len() >= BYTES)
    }

    /// Ends the chunk. Returns the number of its units and its name, or `None` if it is empty.
    pub(super) fn end_chunk(&mut self) -> Option<(usize, String)> {
        let units = std::mem::take(&mut self.units);
        if units == 0 {
            return None;
        }
        let name = format!("{}{:04}", self.prefix, self.chunks);
        self.chunks += 1;
        let mut json = std::mem::take(&mut self.json);
        json.push(b']');
        // Fails only if all threads have panicked, which joining them reports.
        let _ = self.sender.send(PlainChunk { name: name.clone(), json });
        Some((units, name))
    }
}

/// Packs and writes chunks until the sender is gone. Returns the number of bytes. After an error, chunks are
/// taken and dropped, so that the sender does not wait.
fn write_all(folder: &Path, receiver: &Mutex<Receiver<PlainChunk>>) -> io::Result<u64> {
    let next = || receiver.lock().unwrap_or_else(PoisonError::into_inner).recv().ok();
    let mut written = Ok(0);
    while let Some(chunk) = next() {
        written = written.and_then(|bytes| Ok(bytes + write(folder, &chunk)?));
    }
    written
}

fn write(folder: &Path, chunk: &PlainChunk) -> io::Result<u64> {
    let PlainChunk { name, json } = chunk;
    let script = format!("lumosChunk(\"{name}\",\"{}\");\n", pack_bytes(json)?);
    let mut file = File::create(folder.join(format!("{name}.js")))?;
    file.write_all(script.as_bytes())?;
    // The folder gets its final name afterwards, which must not survive a power failure without this.
    file.sync_all()?;
    Ok(script.len() as u64)
}
