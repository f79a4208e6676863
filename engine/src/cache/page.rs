//! The memory of one page.

use std::ops::{Deref, DerefMut};

use super::layout::{PageLayout, Storage};
use crate::aligned::AlignedBuffer;

/// A page in host memory, or a page in device memory that is addressed by its number.
#[derive(Default)]
pub(crate) struct PageMemory {
    number: u32,
    /// Empty for a page in device memory.
    floats: AlignedBuffer,
}

impl PageMemory {
    /// Creates the page with this number; pages count from 0.
    pub(super) fn new(number: usize, layout: &PageLayout) -> Self {
        let floats = match layout.storage {
            Storage::Memory => layout.floats(),
            Storage::Device { .. } => 0,
        };
        let number = u32::try_from(number).expect("fewer than 2³² pages fit in memory");
        Self { number, floats: AlignedBuffer::zeros(floats) }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }
}

impl Deref for PageMemory {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.floats
    }
}

impl DerefMut for PageMemory {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.floats
    }
}
