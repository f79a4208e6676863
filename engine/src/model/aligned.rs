//! Float buffers that start on a cache line, so that a vector load never straddles two.

use std::ops::{Deref, DerefMut};

/// Floats in one cache line.
const LINE: usize = 16;

/// One cache line of floats.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([f32; LINE]);

/// A growable `[f32]` aligned to 64 bytes.
#[derive(Clone, Default)]
pub(crate) struct AlignedBuffer {
    lines: Vec<Line>,
    length: usize,
}

impl AlignedBuffer {
    /// A buffer of `length` zeros.
    pub(crate) fn zeros(length: usize) -> Self {
        Self { lines: vec![Line([0.0; LINE]); length.div_ceil(LINE)], length }
    }

    /// Changes the length; what the buffer held before is kept only as unspecified values.
    pub(crate) fn resize(&mut self, length: usize) {
        let lines = length.div_ceil(LINE);
        if self.lines.len() < lines {
            self.lines.resize(lines, Line([0.0; LINE]));
        }
        self.length = length;
    }
}

impl Deref for AlignedBuffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &bytemuck::cast_slice(&self.lines)[..self.length]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.length]
    }
}
