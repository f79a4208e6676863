//! The vector operations that a tile needs from an instruction set, and a portable implementation.

use half::f16;

/// Vectors of one instruction set.
///
/// # Safety
/// Every function may only be called where the processor has the instruction set, from code compiled for it;
/// pointers need to be valid for one vector (one float for [`Lanes::splat`]) and need no alignment.
pub(super) trait Lanes {
    /// Floats per vector.
    const LANES: usize;
    /// Sums of adjacent outputs.
    type Vector: Copy;

    /// All zeros.
    unsafe fn zero() -> Self::Vector;
    /// One activation word in all lanes.
    unsafe fn splat(word: *const f32) -> Self::Vector;
    /// Adjacent words of weights.
    unsafe fn load(words: *const f32) -> Self::Vector;
    /// Writes sums.
    unsafe fn store(words: *mut f32, vector: Self::Vector);
    /// Adds lane by lane.
    unsafe fn add(left: Self::Vector, right: Self::Vector) -> Self::Vector;
    /// `activation × weight + sum`.
    unsafe fn multiply_add(activation: Self::Vector, weight: Self::Vector, sum: Self::Vector)
    -> Self::Vector;
    /// Prefetches a cache line; any address is valid.
    unsafe fn prefetch(line: *const u8);
    /// Whether [`prefetch_far`](Self::prefetch_far) does anything.
    const PREFETCHES: bool = false;
    /// As [`prefetch`](Self::prefetch), into the second-level cache.
    #[inline(always)]
    unsafe fn prefetch_far(_: *const u8) {}
}

/// Lanes that widen 16-bit weights.
///
/// # Safety
/// As for [`Lanes`].
pub(super) trait Widen: Lanes {
    /// One vector of float16 values.
    unsafe fn load_f16(values: *const u16) -> Self::Vector;
    /// The first of each pair of bfloat16 values.
    unsafe fn load_even(pairs: *const u16) -> Self::Vector;
    /// The second of each pair of bfloat16 values.
    unsafe fn load_odd(pairs: *const u16) -> Self::Vector;
}

/// The storage of weights in a panel.
///
/// # Safety
/// As for [`Lanes`].
pub(super) trait Weight<L: Lanes> {
    /// One stored number.
    type Element;
    /// Activation words consumed per step.
    const STEP: usize;
    /// Stored numbers per output and step.
    const ELEMENTS: usize;

    /// The weights of one vector of outputs, the first of which is stored at `first`, for one word of the step.
    unsafe fn load(first: *const Self::Element, word: usize) -> L::Vector;
}

/// Words used as stored: float32 weights, or pairs of bfloat16 for instructions that multiply pairs.
pub(super) struct Words;

impl<L: Lanes> Weight<L> for Words {
    type Element = f32;
    const STEP: usize = 1;
    const ELEMENTS: usize = 1;

    #[inline(always)]
    unsafe fn load(first: *const f32, _: usize) -> L::Vector {
        // SAFETY: the caller's promise.
        unsafe { L::load(first) }
    }
}

/// Float16 weights, widened.
pub(super) struct Float16;

impl<L: Widen> Weight<L> for Float16 {
    type Element = u16;
    const STEP: usize = 1;
    const ELEMENTS: usize = 1;

    #[inline(always)]
    unsafe fn load(first: *const u16, _: usize) -> L::Vector {
        // SAFETY: the caller's promise.
        unsafe { L::load_f16(first) }
    }
}

/// Pairs of bfloat16 weights, widened.
pub(super) struct Bfloat16Pairs;

impl<L: Widen> Weight<L> for Bfloat16Pairs {
    type Element = u16;
    const STEP: usize = 2;
    const ELEMENTS: usize = 2;

    #[inline(always)]
    unsafe fn load(first: *const u16, word: usize) -> L::Vector {
        // SAFETY: the caller's promise.
        unsafe { if word == 0 { L::load_even(first) } else { L::load_odd(first) } }
    }
}

/// Plain Rust, for any processor.
pub(super) struct Portable;

/// Lanes of [`Portable`].
const LANES: usize = 8;

impl Lanes for Portable {
    const LANES: usize = LANES;
    type Vector = [f32; LANES];

    #[inline(always)]
    unsafe fn zero() -> Self::Vector {
        [0.0; LANES]
    }

    #[inline(always)]
    unsafe fn splat(word: *const f32) -> Self::Vector {
        // SAFETY: the caller's promise.
        [unsafe { *word }; LANES]
    }

    #[inline(always)]
    unsafe fn load(words: *const f32) -> Self::Vector {
        // SAFETY: the caller's promise.
        unsafe { words.cast::<Self::Vector>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(words: *mut f32, vector: Self::Vector) {
        // SAFETY: the caller's promise.
        unsafe { words.cast::<Self::Vector>().write_unaligned(vector) }
    }

    #[inline(always)]
    unsafe fn add(left: Self::Vector, right: Self::Vector) -> Self::Vector {
        std::array::from_fn(|lane| left[lane] + right[lane])
    }

    #[inline(always)]
    unsafe fn multiply_add(
        activation: Self::Vector,
        weight: Self::Vector,
        sum: Self::Vector,
    ) -> Self::Vector {
        std::array::from_fn(|lane| activation[lane].mul_add(weight[lane], sum[lane]))
    }

    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}
}

impl Widen for Portable {
    #[inline(always)]
    unsafe fn load_f16(values: *const u16) -> Self::Vector {
        // SAFETY: the caller's promise.
        let values = unsafe { values.cast::<[u16; LANES]>().read_unaligned() };
        values.map(|bits| f16::from_bits(bits).to_f32_const())
    }

    #[inline(always)]
    unsafe fn load_even(pairs: *const u16) -> Self::Vector {
        // SAFETY: the caller's promise.
        let pairs = unsafe { pairs.cast::<[[u16; 2]; LANES]>().read_unaligned() };
        pairs.map(|pair| f32::from_bits(u32::from(pair[0]) << 16))
    }

    #[inline(always)]
    unsafe fn load_odd(pairs: *const u16) -> Self::Vector {
        // SAFETY: the caller's promise.
        let pairs = unsafe { pairs.cast::<[[u16; 2]; LANES]>().read_unaligned() };
        pairs.map(|pair| f32::from_bits(u32::from(pair[1]) << 16))
    }
}
