//! The pages of the KV cache: which numbers a page stores, at which offsets, and its memory.
//!
//! A model's [`KeyValueShape`] and the number of positions per page define a [`PageLayout`]. The CPU's
//! attention kernels read pages in this layout; a model on a device lays out its pages itself
//! ([`Storage::Device`]). [`PageMemory`] is the memory of one page.

use crate::vector::AlignedBuffer;

/// Positions per tile: their keys are adjacent, and their values are summed in one chain.
pub(crate) const TILE: usize = 16;

/// Whether pages may have this many positions: a power of two up to [`TILE`], or a multiple of it, so that a
/// tile is never split unevenly.
pub(crate) fn page_size_is_supported(positions: usize) -> bool {
    positions > 0 && (TILE.is_multiple_of(positions) || positions.is_multiple_of(TILE))
}

/// Shape of the keys and values that a model stores per position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyValueShape {
    pub(crate) layers: usize,
    /// Key-value heads.
    pub(crate) heads: usize,
    pub(crate) head_size: usize,
}

/// Which memory holds the pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Storage {
    /// Host memory of the engine, as float32.
    #[default]
    Memory,
    /// Device memory; the model on the device defines its own layout.
    Device {
        /// Size of one number in bytes.
        width: usize,
    },
}

/// The layout of one page in host memory. For every layer and key-value head it stores the keys, tile after
/// tile (`head_size` × positions of the tile, transposed so that scores of neighbouring positions are
/// computed together), then the values (positions × `padded_head`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageLayout {
    pub(crate) shape: KeyValueShape,
    /// Positions per page.
    pub(crate) positions: usize,
    pub(crate) storage: Storage,
}

impl PageLayout {
    /// Positions per tile of keys: [`TILE`], or the whole page if it is smaller.
    pub(crate) fn tile(&self) -> usize {
        self.positions.min(TILE)
    }

    /// `head_size` rounded up to whole vectors.
    pub(crate) fn padded_head(&self) -> usize {
        self.shape.head_size.next_multiple_of(TILE)
    }

    /// Size of a page in floats.
    pub(crate) fn floats(&self) -> usize {
        self.shape.layers * self.shape.heads * self.head()
    }

    /// Size of a page in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self.storage {
            Storage::Memory => self.floats() * size_of::<f32>(),
            Storage::Device { width } => {
                let KeyValueShape { layers, heads, head_size } = self.shape;
                2 * layers * self.positions * heads * head_size * width
            }
        }
    }

    /// Number of pages that hold this many positions.
    pub(crate) fn pages(&self, positions: usize) -> usize {
        positions.div_ceil(self.positions)
    }

    /// Size of one head's keys in floats.
    pub(super) fn keys(&self) -> usize {
        self.shape.head_size * self.positions
    }

    /// Size of one head's keys and values in floats.
    pub(super) fn head(&self) -> usize {
        self.keys() + self.positions * self.padded_head()
    }

    /// Offset of a head's keys in a page, in floats.
    pub(super) fn start(&self, layer: usize, head: usize) -> usize {
        (layer * self.shape.heads + head) * self.head()
    }
}

/// A page in host memory, or a page in device memory that is addressed by its number.
#[derive(Default)]
pub(crate) struct PageMemory {
    pub(super) number: u32,
    /// Empty for a page in device memory.
    pub(super) floats: AlignedBuffer,
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
}
