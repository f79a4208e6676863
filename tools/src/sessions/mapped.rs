//! Memory-mapped files of a shop's index.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::path::Path;

use memmap2::Mmap;

/// Maps a file into memory, read-only.
pub(super) fn map(path: &Path) -> io::Result<Mmap> {
    let file = File::open(path)?;
    // SAFETY: the mapping is read-only. If another process truncates the file, this one is terminated by
    // SIGBUS; if bytes are changed, product data changes, but every read is bounds-checked. An index is
    // written under another name and renamed into place, and is never written while it is read.
    unsafe { Mmap::map(&file) }
}
