//! Memory-mapped files of a shop's index.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::path::Path;

use memmap2::Mmap;

/// Maps a file into memory, read only.
pub(super) fn map(path: &Path) -> io::Result<Mmap> {
    let file = File::open(path)?;
    // SAFETY: the mapping is read only. A file that another process cuts off meanwhile would end this one with SIGBUS;
    // changed bytes would change what products say, and every read is checked for its bounds. An index is written
    // under another name and then put in place, never written while it is read.
    unsafe { Mmap::map(&file) }
}
