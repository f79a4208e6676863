//! Products of weights that are unpacked into bytes once, for all rows of a unit.

use super::super::super::PANEL;
use super::super::activations::{ROW_WORDS, START_Q6K};
use super::super::lanes::QuantizedLanes;
use super::super::layout::{
    FOUR, Q4K_BLOCK_MINIMA, Q4K_BLOCK_SCALES, Q4K_MINIMUM_SCALES, Q4K_VALUES, Q6K_BLOCK_SCALES,
    Q6K_BLOCK_VALUES, Q6K_VALUES, QuantizedFormat,
};
use super::{Ahead, Block, Dots, Format, Sums, load_four, vectors};

/// One block of a panel with all weights as bytes and all scales as floats.
#[repr(C, align(64))]
pub(super) struct Unpacked {
    /// `[four][output][input]`.
    values: [u8; 64 * FOUR],
    /// `[part][output]`: the 16 parts of Q6_K, or the 8 parts of Q4_K.
    scales: [f32; 16 * PANEL],
    /// `[part][output]`, of Q4_K.
    minima: [f32; 8 * PANEL],
}

/// Unpacked blocks of Q4_K.
pub(super) struct UnpackedQ4K;

impl UnpackedQ4K {
    /// Unpacks a block of a panel.
    ///
    /// # Safety
    /// As for [`QuantizedLanes`]; `target` may be written.
    #[inline(always)]
    pub(super) unsafe fn unpack<L: QuantizedLanes>(weights: *const u8, target: *mut Unpacked) {
        // SAFETY: the caller's promise and the layout of a block.
        unsafe {
            Ahead::best().prefetch_block::<L>(weights, QuantizedFormat::Q4K.panel_bytes());
            let values = (&raw mut (*target).values).cast::<u8>();
            for pair in 0..8 * 4 {
                for lane in (0..FOUR).step_by(4 * L::LANES) {
                    let bytes = L::load_bytes(weights.add(Q4K_VALUES + pair * FOUR + lane));
                    L::store_bytes(values.add(2 * pair * FOUR + lane), L::low(bytes));
                    L::store_bytes(values.add((2 * pair + 1) * FOUR + lane), L::high(bytes));
                }
            }
            let (scales, minima) = (&raw mut (*target).scales, &raw mut (*target).minima);
            for column in (0..PANEL).step_by(L::LANES) {
                let scale_scales = L::load_f16(weights.add(2 * column).cast());
                let minimum_scales = L::load_f16(weights.add(Q4K_MINIMUM_SCALES + 2 * column).cast());
                for part in 0..8 {
                    let at = part * PANEL + column;
                    let scale = L::load_unsigned(weights.add(Q4K_BLOCK_SCALES + at));
                    L::store(scales.cast::<f32>().add(at), L::multiply(scale_scales, scale));
                    let minimum = L::load_unsigned(weights.add(Q4K_BLOCK_MINIMA + at));
                    L::store(minima.cast::<f32>().add(at), L::multiply(minimum_scales, minimum));
                }
            }
        }
    }
}

/// Unpacked blocks of Q6_K.
pub(super) struct UnpackedQ6K;

impl UnpackedQ6K {
    /// Unpacks a block of a panel.
    ///
    /// # Safety
    /// As for [`QuantizedLanes`]; `target` may be written.
    #[inline(always)]
    pub(super) unsafe fn unpack<L: QuantizedLanes>(weights: *const u8, target: *mut Unpacked) {
        // SAFETY: the caller's promise and the layout of a block.
        unsafe {
            Ahead::best().prefetch_block::<L>(weights, QuantizedFormat::Q6K.panel_bytes());
            let values = (&raw mut (*target).values).cast::<u8>();
            for part in 0..16 {
                for lane in (0..FOUR).step_by(4 * L::LANES) {
                    let source = weights.add(Q6K_VALUES + part * Q6K_BLOCK_VALUES + lane);
                    let target = values.add(4 * part * FOUR + lane);
                    let pairs = L::load_bytes(source.add(2 * FOUR));
                    for half in 0..2 {
                        let bytes = L::load_bytes(source.add(half * FOUR));
                        let low = L::or(L::low(bytes), L::pair(pairs, 2 * half));
                        let high = L::or(L::high(bytes), L::pair(pairs, 2 * half + 1));
                        L::store_bytes(target.add(2 * half * FOUR), low);
                        L::store_bytes(target.add((2 * half + 1) * FOUR), high);
                    }
                }
            }
            let scales = &raw mut (*target).scales;
            for column in (0..PANEL).step_by(L::LANES) {
                let scale_scales = L::load_f16(weights.add(2 * column).cast());
                for part in 0..16 {
                    let at = part * PANEL + column;
                    let scale = L::load_signed(weights.add(Q6K_BLOCK_SCALES + at));
                    L::store(scales.cast::<f32>().add(at), L::multiply(scale_scales, scale));
                }
            }
        }
    }
}

/// Loads the vectors' floats.
///
/// # Safety
/// As for [`load_four`].
#[inline(always)]
unsafe fn load_floats<L: QuantizedLanes, const VECTORS: usize>(floats: *const f32) -> [L::Vector; VECTORS] {
    // SAFETY: the caller's promise.
    unsafe { vectors!(vector, L::zero() => L::load(floats.add(vector * L::LANES))) }
}

impl Format for UnpackedQ4K {
    const FORMAT: QuantizedFormat = QuantizedFormat::Q4K;

    #[inline(always)]
    unsafe fn multiply<L: QuantizedLanes, const VECTORS: usize, const ROWS: usize>(
        block: Block,
        sums: &mut Sums<L, VECTORS, ROWS>,
    ) {
        let Block { weights, column, activations, .. } = block;
        // SAFETY: the caller's promise; `weights` is an `Unpacked`.
        unsafe {
            let unpacked = weights.cast::<Unpacked>();
            let values = (&raw const (*unpacked).values).cast::<u8>();
            let scales = (&raw const (*unpacked).scales).cast::<f32>();
            let minima = (&raw const (*unpacked).minima).cast::<f32>();
            for part in 0..8 {
                let activations = activations.add(part * ROW_WORDS * ROWS);
                let values = values.add(8 * part * FOUR + 4 * column);
                let mut dots = Dots::<L, VECTORS, ROWS>::new(activations, None);
                for four in 0..8 {
                    dots.add(four, load_four::<L, VECTORS>(values.add(four * FOUR)));
                }
                dots.add_pairs();
                dots.finish(load_floats::<L, VECTORS>(scales.add(part * PANEL + column)), sums);
                let minima = load_floats::<L, VECTORS>(minima.add(part * PANEL + column));
                Dots::<L, VECTORS, ROWS>::add_minima(activations, minima, sums);
            }
        }
    }
}

impl Format for UnpackedQ6K {
    const FORMAT: QuantizedFormat = QuantizedFormat::Q6K;

    #[inline(always)]
    unsafe fn multiply<L: QuantizedLanes, const VECTORS: usize, const ROWS: usize>(
        block: Block,
        sums: &mut Sums<L, VECTORS, ROWS>,
    ) {
        let Block { weights, column, activations, .. } = block;
        // SAFETY: the caller's promise; `weights` is an `Unpacked`.
        unsafe {
            let unpacked = weights.cast::<Unpacked>();
            let values = (&raw const (*unpacked).values).cast::<u8>();
            let scales = (&raw const (*unpacked).scales).cast::<f32>();
            for part in 0..16 {
                let activations = activations.add(part / 2 * ROW_WORDS * ROWS);
                let values = values.add(4 * part * FOUR + 4 * column);
                let mut dots = Dots::<L, VECTORS, ROWS>::new(activations, Some(START_Q6K + part % 2));
                for four in 0..4 {
                    dots.add(part % 2 * 4 + four, load_four::<L, VECTORS>(values.add(four * FOUR)));
                    if four % 2 == 1 {
                        dots.add_pairs();
                    }
                }
                dots.finish(load_floats::<L, VECTORS>(scales.add(part * PANEL + column)), sums);
            }
        }
    }
}
