//! What one page holds, and where.

/// Positions whose keys lie side by side and whose values are summed in one chain.
pub(crate) const TILE: usize = 16;

/// Whether pages may have this many positions: a power of two up to [`TILE`], or a multiple of it, so that a tile is
/// never cut in uneven parts.
pub(crate) fn page_size_is_supported(positions: usize) -> bool {
    positions > 0 && (TILE.is_multiple_of(positions) || positions.is_multiple_of(TILE))
}

/// What a model keeps of one position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyValueShape {
    pub(crate) layers: usize,
    /// Key-value heads.
    pub(crate) heads: usize,
    pub(crate) head_size: usize,
}

/// Whose memory pages are in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Storage {
    /// The engine's own, as float32.
    #[default]
    Memory,
    /// A device's, whose model lays them out by itself.
    Device {
        /// Bytes of one number.
        width: usize,
    },
}

/// What one page holds in the engine's own memory: for every layer and key-value head the keys, tile after tile (`head_size` × positions of the
/// tile, transposed so that scores of neighbouring positions are computed side by side), then the values
/// (positions × `padded_head`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageLayout {
    pub(crate) shape: KeyValueShape,
    /// Positions in a page.
    pub(crate) positions: usize,
    pub(crate) storage: Storage,
}

impl PageLayout {
    /// Positions in a tile of keys: [`TILE`], or all of a smaller page.
    pub(crate) fn tile(&self) -> usize {
        self.positions.min(TILE)
    }

    /// `head_size` rounded up to whole vectors.
    pub(crate) fn padded_head(&self) -> usize {
        self.shape.head_size.next_multiple_of(TILE)
    }

    /// Floats of a page.
    pub(crate) fn floats(&self) -> usize {
        self.shape.layers * self.shape.heads * self.head()
    }

    /// Bytes of a page.
    pub(crate) fn bytes(&self) -> usize {
        match self.storage {
            Storage::Memory => self.floats() * size_of::<f32>(),
            Storage::Device { width } => {
                let KeyValueShape { layers, heads, head_size } = self.shape;
                2 * layers * self.positions * heads * head_size * width
            }
        }
    }

    /// Pages that hold this many positions.
    pub(crate) fn pages(&self, positions: usize) -> usize {
        positions.div_ceil(self.positions)
    }

    /// Floats of one head's keys.
    pub(super) fn keys(&self) -> usize {
        self.shape.head_size * self.positions
    }

    /// Floats of one head's keys and values.
    pub(super) fn head(&self) -> usize {
        self.keys() + self.positions * self.padded_head()
    }

    /// Where the keys of a head start in a page.
    pub(super) fn start(&self, layer: usize, head: usize) -> usize {
        (layer * self.shape.heads + head) * self.head()
    }
}
