//! The pages of the KV cache: which numbers a page stores, at which offsets, and its memory.
//!
//! A model's [`KeyValueShape`] and the number of positions per page define a [`PageLayout`]. The CPU's
//! attention kernels read pages in this layout; a model on a device lays out its pages itself
//! ([`Storage::Device`]). [`PageMemory`] is the memory of one page.

use lumos_kernels::AlignedBuffer;

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

/// Which memory holds the pages, and as numbers of which type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Storage {
    /// Host memory of the engine, as float32.
    #[default]
    F32,
    /// Host memory of the engine, as bfloat16; only where the processor multiplies that type.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(dead_code, reason = "the instructions for it are those of x86-64")
    )]
    Bf16,
    /// Device memory; the model on the device defines its own layout.
    Device {
        /// Size of one number in bytes.
        width: usize,
    },
}

/// The layout of one page in host memory. For every layer and key-value head it stores the keys, tile after
/// tile (`head_size` × positions of the tile, transposed so that scores of neighbouring positions are
/// computed together), then the values (positions × `padded_head`).
///
/// In bfloat16, pages of whole tiles store pairs, as the instructions for them read: keys are `padded_head` / 2 ×
/// positions of the tile × 2 dimensions, values are positions / 2 × `padded_head` × 2 positions.
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

    /// Size of one number in bytes.
    pub(super) fn width(&self) -> usize {
        match self.storage {
            Storage::F32 => size_of::<f32>(),
            Storage::Bf16 => size_of::<u16>(),
            Storage::Device { width } => width,
        }
    }

    /// Size of a page in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let KeyValueShape { layers, heads, head_size } = self.shape;
        let head = match self.storage {
            Storage::Device { .. } => 2 * self.positions * head_size,
            _ => self.head(),
        };
        layers * heads * head * self.width()
    }

    /// The same numbers in pages of one tile.
    pub(super) fn of_one_tile(&self) -> Self {
        Self { positions: TILE, ..*self }
    }

    /// Whether a page consists of whole tiles.
    pub(crate) fn has_whole_tiles(&self) -> bool {
        self.positions >= TILE
    }

    /// Whether numbers are stored in pairs.
    pub(super) fn is_paired(&self) -> bool {
        self.storage == Storage::Bf16 && self.has_whole_tiles()
    }

    /// Whether the engine reads and writes the pages, instead of a device.
    pub(crate) fn is_in_host_memory(&self) -> bool {
        !matches!(self.storage, Storage::Device { .. })
    }

    /// Number of pages that hold this many positions.
    pub(crate) fn pages(&self, positions: usize) -> usize {
        positions.div_ceil(self.positions)
    }

    /// Numbers stored for one position's key.
    pub(crate) fn key_width(&self) -> usize {
        if self.is_paired() { self.padded_head() } else { self.shape.head_size }
    }

    /// Numbers of one head's keys.
    pub(super) fn keys(&self) -> usize {
        self.key_width() * self.positions
    }

    /// Numbers of one head's keys and values.
    pub(super) fn head(&self) -> usize {
        self.keys() + self.positions * self.padded_head()
    }

    /// Index of one dimension of a position's key in the keys of its head.
    #[inline(always)]
    pub(super) fn key_index(&self, slot: usize, dimension: usize) -> usize {
        let (tile, start) = (self.tile(), slot / self.tile() * self.tile() * self.key_width());
        if self.is_paired() {
            start + dimension / 2 * 2 * tile + slot % tile * 2 + dimension % 2
        } else {
            start + dimension * tile + slot % tile
        }
    }

    /// Index of one dimension of a position's value in the values of its head.
    #[inline(always)]
    pub(super) fn value_index(&self, slot: usize, dimension: usize) -> usize {
        if self.is_paired() {
            (slot / 2 * self.padded_head() + dimension) * 2 + slot % 2
        } else {
            slot * self.padded_head() + dimension
        }
    }

    /// Offset of a head's keys in a page, in numbers.
    pub(super) fn start(&self, layer: usize, head: usize) -> usize {
        (layer * self.shape.heads + head) * self.head()
    }
}

/// A page in host memory, or a page in device memory that is addressed by its number.
#[derive(Default)]
pub(crate) struct PageMemory {
    pub(super) number: u32,
    /// Empty for a page in device memory.
    pub(super) bytes: AlignedBuffer<u8>,
}

impl PageMemory {
    /// Creates the page with this number; pages count from 0.
    pub(super) fn new(number: usize, layout: &PageLayout) -> Self {
        let bytes = if layout.is_in_host_memory() { layout.bytes() } else { 0 };
        let number = u32::try_from(number).expect("fewer than 2³² pages fit in memory");
        Self { number, bytes: AlignedBuffer::zeros(bytes) }
    }
}
