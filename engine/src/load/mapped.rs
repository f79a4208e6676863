//! Memory-mapped files. The engine's other unsafe code is in `model/simd` (vector kernels) and `cuda/driver`
//! (CUDA's functions); every other module is safe Rust, enforced by the crate's `unsafe_code` lint.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::path::Path;

use memmap2::Mmap;

/// Maps a file into memory, read-only.
pub(super) fn map(path: &Path) -> io::Result<Mmap> {
    let file = File::open(path)?;
    // SAFETY: the mapping is read only and private to the loader, which drops it as soon as the weights are
    // copied. If another process truncates the file meanwhile, SIGBUS ends this process; if it changes
    // bytes, weights change; neither breaks memory safety of what is copied out. Model files are not written
    // while they are loaded: the hub's clients replace them by renaming.
    unsafe { Mmap::map(&file) }
}
