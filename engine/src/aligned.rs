//! Buffers aligned to cache lines, so that a vector load never crosses two lines.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use bytemuck::Pod;

/// Size of a cache line in bytes.
const LINE: usize = 64;

/// One cache line.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

/// A growable `[T]` aligned to 64 bytes, for numbers whose size divides 64.
#[derive(Clone)]
pub(crate) struct AlignedBuffer<T = f32> {
    lines: Vec<Line>,
    length: usize,
    number: PhantomData<T>,
}

impl<T: Pod> AlignedBuffer<T> {
    /// A buffer of `length` zeros.
    pub(crate) fn zeros(length: usize) -> Self {
        let lines = (length * size_of::<T>()).div_ceil(LINE);
        Self { lines: vec![Line([0; LINE]); lines], length, number: PhantomData }
    }

    /// Changes the length. Previous contents become unspecified values.
    pub(crate) fn resize(&mut self, length: usize) {
        let lines = (length * size_of::<T>()).div_ceil(LINE);
        if self.lines.len() < lines {
            self.lines.resize(lines, Line([0; LINE]));
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

    fn deref(&self) -> &[T] {
        &bytemuck::cast_slice(&self.lines)[..self.length]
    }
}

impl<T: Pod> DerefMut for AlignedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.length]
    }
}
