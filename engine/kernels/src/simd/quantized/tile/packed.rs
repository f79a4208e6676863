//! Products of weights as they are stored: 8, 4 and 6 bits, widened in registers.

use super::super::super::PANEL;
use super::super::activations::{ROW_WORDS, START_Q6K, START_Q8_0};
use super::super::lanes::QuantizedLanes;
use super::super::layout::{
    FOUR, Q4K_BLOCK_MINIMA, Q4K_BLOCK_SCALES, Q4K_BLOCK_VALUES, Q4K_MINIMUM_SCALES, Q4K_VALUES,
    Q6K_BLOCK_SCALES, Q6K_BLOCK_VALUES, Q6K_VALUES, Q8_0_SCALES, QuantizedFormat,
};
use super::{Block, Dots, Format, Sums, load_four, load_scales, scaled, vectors};

pub(super) struct Q8_0;

impl Format for Q8_0 {
    const FORMAT: QuantizedFormat = QuantizedFormat::Q8_0;

    #[inline(always)]
    unsafe fn multiply<L: QuantizedLanes, const VECTORS: usize, const ROWS: usize>(
        block: Block,
        sums: &mut Sums<L, VECTORS, ROWS>,
    ) {
        let Block { weights, column, activations, .. } = block;
        // SAFETY: the caller's promise and the layout of a block.
        unsafe {
            // The offset of the weights is subtracted from them, or from the sum.
            let mut dots = Dots::<L, VECTORS, ROWS>::new(activations, (!L::SUBTRACTS).then_some(START_Q8_0));
            block.prefetch::<L>(0);
            for four in 0..8 {
                if four == 4 {
                    block.prefetch::<L>(1);
                }
                let weights = load_four::<L, VECTORS>(weights.add(four * FOUR + 4 * column));
                if L::SUBTRACTS {
                    dots.add_offset(four, weights);
                } else {
                    dots.add(four, weights);
                }
            }
            dots.finish(load_scales::<L, VECTORS>(weights.add(Q8_0_SCALES + 2 * column)), sums);
        }
    }
}

pub(super) struct Q4K;

impl Format for Q4K {
    const FORMAT: QuantizedFormat = QuantizedFormat::Q4K;

    #[inline(always)]
    unsafe fn multiply<L: QuantizedLanes, const VECTORS: usize, const ROWS: usize>(
        block: Block,
        sums: &mut Sums<L, VECTORS, ROWS>,
    ) {
        let Block { weights, column, activations, .. } = block;
        // SAFETY: the caller's promise and the layout of a block.
        unsafe {
            let scale_scales = load_scales::<L, VECTORS>(weights.add(2 * column));
            let minimum_scales = load_scales::<L, VECTORS>(weights.add(Q4K_MINIMUM_SCALES + 2 * column));
            // The scales, then each part.
            block.prefetch::<L>(0);
            for part in 0..8 {
                block.prefetch::<L>(1 + part);
                let activations = activations.add(part * ROW_WORDS * ROWS);
                let values = weights.add(Q4K_VALUES + part * Q4K_BLOCK_VALUES + 4 * column);
                let mut dots = Dots::<L, VECTORS, ROWS>::new(activations, None);
                for pair in 0..4 {
                    let bytes = load_four::<L, VECTORS>(values.add(pair * FOUR));
                    dots.add(2 * pair, vectors!(vector, L::zero_integers() => L::low(bytes[vector])));
                    dots.add(2 * pair + 1, vectors!(vector, L::zero_integers() => L::high(bytes[vector])));
                }
                dots.add_pairs();
                let scales = weights.add(Q4K_BLOCK_SCALES + part * PANEL + column);
                dots.finish(scaled::<L, VECTORS>(scales, scale_scales), sums);
                let minima = weights.add(Q4K_BLOCK_MINIMA + part * PANEL + column);
                Dots::<L, VECTORS, ROWS>::add_minima(
                    activations,
                    scaled::<L, VECTORS>(minima, minimum_scales),
                    sums,
                );
            }
        }
    }
}

pub(super) struct Q6K;

impl Format for Q6K {
    const FORMAT: QuantizedFormat = QuantizedFormat::Q6K;

    #[inline(always)]
    unsafe fn multiply<L: QuantizedLanes, const VECTORS: usize, const ROWS: usize>(
        block: Block,
        sums: &mut Sums<L, VECTORS, ROWS>,
    ) {
        let Block { weights, column, activations, .. } = block;
        // SAFETY: the caller's promise and the layout of a block.
        unsafe {
            let scale_scales = load_scales::<L, VECTORS>(weights.add(2 * column));
            block.prefetch::<L>(0);
            for part in 0..16 {
                // Four parts have as many lines as three prefetches fetch.
                if part % 4 < 3 {
                    block.prefetch::<L>(1 + part - part / 4);
                }
                let activations = activations.add(part / 2 * ROW_WORDS * ROWS);
                let values = weights.add(Q6K_VALUES + part * Q6K_BLOCK_VALUES + 4 * column);
                let mut dots = Dots::<L, VECTORS, ROWS>::new(activations, Some(START_Q6K + part % 2));
                let pairs = load_four::<L, VECTORS>(values.add(2 * FOUR));
                for half in 0..2 {
                    let four = part % 2 * 4 + 2 * half;
                    let bytes = load_four::<L, VECTORS>(values.add(half * FOUR));
                    let low = vectors!(vector, L::zero_integers() => {
                        L::or(L::low(bytes[vector]), L::pair(pairs[vector], 2 * half))
                    });
                    dots.add(four, low);
                    let high = vectors!(vector, L::zero_integers() => {
                        L::or(L::high(bytes[vector]), L::pair(pairs[vector], 2 * half + 1))
                    });
                    dots.add(four + 1, high);
                    dots.add_pairs();
                }
                let scales = weights.add(Q6K_BLOCK_SCALES + part * PANEL + column);
                let scales = vectors!(vector, L::zero() => {
                    L::multiply(scale_scales[vector], L::load_signed(scales.add(vector * L::LANES)))
                });
                dots.finish(scales, sums);
            }
        }
    }
}
