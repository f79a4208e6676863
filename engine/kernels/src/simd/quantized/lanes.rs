//! The integer vector operations that a quantized tile needs from an instruction set, and a portable
//! implementation.

use super::super::lanes::{Portable, Widen};

/// Integers of one instruction set: as many of 32 bits as a vector of floats has lanes.
///
/// An instruction set without a dot product of bytes ([`PAIRS`](Self::PAIRS)) adds adjacent products to 16-bit sums first
/// and, which is faster, several of them before they are widened. The formats keep them exact:
///
/// | format | weights | activations | products per 16-bit sum | at most |
/// |---|---|---|---|---|
/// | Q4_K | 0 to 15 | ±127 | 16: eight fours | 16 · 15 · 127 = 30,480 |
/// | Q6_K | 0 to 63 | ±127 | 4: two fours | 4 · 63 · 127 = 32,004 |
/// | Q8_0 | ±128 | ±127 | 2: one four | 2 · 128 · 127 = 32,512 |
///
/// (A block of activations with an infinity or NaN may contain −128, but its scale makes every result NaN.)
///
/// # Safety
/// Every function may only be called where the processor has the instruction set, from code compiled for it;
/// pointers need to be valid for one number for each lane (one number for the splat) and need no alignment.
pub(super) trait QuantizedLanes: Widen {
    /// One integer, or four bytes, per lane.
    type Integers: Copy;

    /// All zeros.
    unsafe fn zero_integers() -> Self::Integers;
    /// One word in all lanes.
    unsafe fn splat_integer(word: *const i32) -> Self::Integers;
    /// Loads four bytes per lane.
    unsafe fn load_bytes(bytes: *const u8) -> Self::Integers;
    /// Stores four bytes per lane.
    unsafe fn store_bytes(bytes: *mut u8, integers: Self::Integers);
    /// Adds the products of unsigned `weights` and signed `activations`, four per lane. Not called if [`Self::PAIRS`]; if
    /// [`Self::SUBTRACTS`], weights are below 128.
    unsafe fn dot(
        sum: Self::Integers,
        weights: Self::Integers,
        activations: Self::Integers,
    ) -> Self::Integers;
    /// Whether the instruction set has [`Self::dot_pairs`] and [`Self::add_pairs`] instead of [`Self::dot`].
    const PAIRS: bool = false;
    /// Whether products of 8-bit weights use [`Self::dot_offset`], because [`Self::dot`] has no unsigned bytes.
    const SUBTRACTS: bool = Self::PAIRS;
    /// Adds the products of unsigned `weights` and signed `activations` to two 16-bit sums per lane.
    unsafe fn dot_pairs(_: Self::Integers, _: Self::Integers, _: Self::Integers) -> Self::Integers {
        unreachable!("an instruction set with `dot`")
    }
    /// Adds the two 16-bit sums of every lane to its 32-bit sum.
    unsafe fn add_pairs(_: Self::Integers, _: Self::Integers) -> Self::Integers {
        unreachable!("an instruction set with `dot`")
    }
    /// Adds the products of `weights`, from which 128 is subtracted, and signed `activations`, four per lane.
    unsafe fn dot_offset(_: Self::Integers, _: Self::Integers, _: Self::Integers) -> Self::Integers {
        unreachable!("an instruction set with `dot`")
    }
    /// The low half of every byte.
    unsafe fn low(bytes: Self::Integers) -> Self::Integers;
    /// The high half of every byte.
    unsafe fn high(bytes: Self::Integers) -> Self::Integers;
    /// Bit pair number `four` of every byte, shifted to the bits with values 16 and 32.
    unsafe fn pair(bytes: Self::Integers, four: usize) -> Self::Integers;
    /// Bitwise or.
    unsafe fn or(left: Self::Integers, right: Self::Integers) -> Self::Integers;
    /// Converts integers to floats.
    unsafe fn to_floats(integers: Self::Integers) -> Self::Vector;
    /// Loads one unsigned byte per lane.
    unsafe fn load_unsigned(bytes: *const u8) -> Self::Vector;
    /// Loads one signed byte per lane.
    unsafe fn load_signed(bytes: *const u8) -> Self::Vector;
    /// Multiplies lane by lane.
    unsafe fn multiply(left: Self::Vector, right: Self::Vector) -> Self::Vector;
}

/// Lanes of [`Portable`].
const LANES: usize = 8;

/// Applies `run` to every byte of every lane.
#[inline(always)]
fn bytes(lanes: [i32; LANES], run: impl Fn(u8) -> u8) -> [i32; LANES] {
    lanes.map(|lane| i32::from_le_bytes(lane.to_le_bytes().map(&run)))
}

impl QuantizedLanes for Portable {
    type Integers = [i32; LANES];

    #[inline(always)]
    unsafe fn zero_integers() -> Self::Integers {
        [0; LANES]
    }

    #[inline(always)]
    unsafe fn splat_integer(word: *const i32) -> Self::Integers {
        // SAFETY: the caller's promise.
        [unsafe { *word }; LANES]
    }

    #[inline(always)]
    unsafe fn load_bytes(bytes: *const u8) -> Self::Integers {
        // SAFETY: the caller's promise.
        unsafe { bytes.cast::<[[u8; 4]; LANES]>().read_unaligned() }.map(i32::from_le_bytes)
    }

    #[inline(always)]
    unsafe fn store_bytes(bytes: *mut u8, integers: Self::Integers) {
        // SAFETY: the caller's promise.
        unsafe { bytes.cast::<[[u8; 4]; LANES]>().write_unaligned(integers.map(i32::to_le_bytes)) }
    }

    #[inline(always)]
    unsafe fn dot(
        sum: Self::Integers,
        weights: Self::Integers,
        activations: Self::Integers,
    ) -> Self::Integers {
        std::array::from_fn(|lane| {
            let pairs = weights[lane].to_le_bytes().into_iter().zip(activations[lane].to_le_bytes());
            pairs.fold(sum[lane], |sum, (weight, activation)| {
                sum + i32::from(weight) * i32::from(activation.cast_signed())
            })
        })
    }

    #[inline(always)]
    unsafe fn low(lanes: Self::Integers) -> Self::Integers {
        bytes(lanes, |byte| byte & 15)
    }

    #[inline(always)]
    unsafe fn high(lanes: Self::Integers) -> Self::Integers {
        bytes(lanes, |byte| byte >> 4)
    }

    #[inline(always)]
    unsafe fn pair(lanes: Self::Integers, four: usize) -> Self::Integers {
        bytes(lanes, |byte| ((byte >> (2 * four)) & 3) << 4)
    }

    #[inline(always)]
    unsafe fn or(left: Self::Integers, right: Self::Integers) -> Self::Integers {
        std::array::from_fn(|lane| left[lane] | right[lane])
    }

    #[inline(always)]
    unsafe fn to_floats(integers: Self::Integers) -> Self::Vector {
        integers.map(|integer| integer as f32)
    }

    #[inline(always)]
    unsafe fn load_unsigned(bytes: *const u8) -> Self::Vector {
        // SAFETY: the caller's promise.
        unsafe { bytes.cast::<[u8; LANES]>().read_unaligned() }.map(f32::from)
    }

    #[inline(always)]
    unsafe fn load_signed(bytes: *const u8) -> Self::Vector {
        // SAFETY: the caller's promise.
        unsafe { bytes.cast::<[i8; LANES]>().read_unaligned() }.map(f32::from)
    }

    #[inline(always)]
    unsafe fn multiply(left: Self::Vector, right: Self::Vector) -> Self::Vector {
        std::array::from_fn(|lane| left[lane] * right[lane])
    }
}
