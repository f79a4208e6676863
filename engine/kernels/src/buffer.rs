//! [`AlignedBuffer`]: numbers that start at a cache line, so that a vector load never crosses two lines.
//!
//! Large buffers, such as weights that are read as a whole in every step, are mappings on huge pages: with pages of
//! 4 KiB, a processor spends part of its time on finding the pages. Linux gives out pages of 2 MiB where a program asks
//! for them (`/sys/kernel/mm/transparent_hugepage/enabled` is `madvise` or `always`), if they are free.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use bytemuck::Pod;
use memmap2::MmapMut;

/// Size of a cache line in bytes.
const LINE: usize = 64;
/// Smallest mapping in bytes: two huge pages, so that at least one is whole.
const SMALLEST_MAPPING: usize = 4 << 20;

/// One cache line.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

/// Zeros at first.
enum Memory {
    Lines(Vec<Line>),
    /// Each page gets its memory when it is first written, by the thread that writes it.
    Mapping(MmapMut),
}

impl Memory {
    fn zeros(bytes: usize) -> Self {
        if bytes >= SMALLEST_MAPPING
            && let Ok(mapping) = MmapMut::map_anon(bytes)
        {
            // An error means that there are no huge pages.
            #[cfg(target_os = "linux")]
            let _ = mapping.advise(memmap2::Advice::HugePage);
            return Self::Mapping(mapping);
        }
        Self::Lines(bytemuck::zeroed_vec(bytes.div_ceil(LINE)))
    }
}

impl Deref for Memory {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Lines(lines) => bytemuck::cast_slice(lines),
            Self::Mapping(mapping) => mapping,
        }
    }
}

impl DerefMut for Memory {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Lines(lines) => bytemuck::cast_slice_mut(lines),
            Self::Mapping(mapping) => mapping,
        }
    }
}

/// A growable `[T]` aligned to 64 bytes, for numbers whose size divides 64.
pub struct AlignedBuffer<T = f32> {
    memory: Memory,
    length: usize,
    number: PhantomData<T>,
}

impl<T: Pod> AlignedBuffer<T> {
    /// A buffer of `length` zeros.
    pub fn zeros(length: usize) -> Self {
        Self { memory: Memory::zeros(length * size_of::<T>()), length, number: PhantomData }
    }

    /// Changes the length. Previous contents become unspecified values.
    pub fn resize(&mut self, length: usize) {
        let bytes = length * size_of::<T>();
        if self.memory.len() < bytes {
            self.memory = Memory::zeros(bytes.max(self.memory.len() * 2));
        }
        self.length = length;
    }
}

impl<T: Pod> Default for AlignedBuffer<T> {
    fn default() -> Self {
        Self::zeros(0)
    }
}

impl<T: Pod> Deref for AlignedBuffer<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(&self.memory[..self.length * size_of::<T>()])
    }
}

impl<T: Pod> DerefMut for AlignedBuffer<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.memory[..self.length * size_of::<T>()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_any_size_are_zero_and_aligned() {
        let mapped = SMALLEST_MAPPING / size_of::<u32>();
        for length in [0, 1, 63, 4095, mapped - 1, mapped, mapped + 17] {
            let mut buffer = AlignedBuffer::<u32>::zeros(length);
            assert!(buffer.len() == length && buffer.iter().all(|number| *number == 0));
            assert!(buffer.as_ptr().addr().is_multiple_of(LINE));
            buffer.fill(7);
            buffer.resize(2 * length + 1);
            buffer.fill(8);
            assert!(buffer.len() == 2 * length + 1 && buffer.as_ptr().addr().is_multiple_of(LINE));
            buffer.resize(1);
            assert_eq!(buffer[..], [8]);
        }
    }
}
