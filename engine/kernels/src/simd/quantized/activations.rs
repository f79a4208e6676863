//! Quantizes activations to 8 bits.

use super::BLOCK;

/// Words of 32 bits per row and block: eight of four values each, then the words below.
pub(crate) const ROW_WORDS: usize = 13;
/// Index of the block's scale (float32).
pub(super) const SCALE: usize = 8;
/// Index of −128 times the sum of the block's values.
pub(super) const START_Q8_0: usize = 9;
/// Index of the scale times the sum of the block's values, negated (float32).
pub(super) const MINIMUM: usize = 10;
/// Index of −32 times the sums of the first and the second half of the block's values.
pub(super) const START_Q6K: usize = 11;

/// Magnitudes below which a block counts as zero, because the inverse of its scale would be infinite.
const SMALLEST: f32 = 1e-36;

/// Quantizes rows of activations (each `inputs` floats, a multiple of [`BLOCK`]), at most a path's block of
/// rows, and writes them as `[block][word][row]`.
///
/// A block's scale is its largest magnitude over 127; values are rounded to nearest, ties to even. A block
/// with an infinity or NaN gets a scale that makes every result NaN.
#[inline(always)]
pub(crate) fn pack_rows(input: &[f32], inputs: usize, packed: &mut [i32]) {
    let rows = input.len() / inputs;
    for (row, values) in input.chunks_exact(inputs).enumerate() {
        let (blocks, _) = values.as_chunks::<BLOCK>();
        for (values, packed) in blocks.iter().zip(packed.chunks_exact_mut(ROW_WORDS * rows)) {
            let words = round_block(values);
            for (word, packed) in words.iter().zip(packed[row..].iter_mut().step_by(rows)) {
                *packed = *word;
            }
        }
    }
}

/// The words of one block of one row.
#[inline(always)]
fn round_block(values: &[f32; BLOCK]) -> [i32; ROW_WORDS] {
    // As integers, magnitudes have the same order, and NaN is above infinity.
    let mut largest = 0;
    for value in values {
        largest = largest.max(value.to_bits() & 0x7fff_ffff);
    }
    let largest = f32::from_bits(largest);
    let scale = if largest < f32::INFINITY { largest / 127.0 } else { f32::NAN };
    let inverse = if largest < SMALLEST { 0.0 } else { 127.0 / largest };
    let mut rounded = [0i32; BLOCK];
    for (rounded, value) in rounded.iter_mut().zip(values) {
        // Within ±127 if the scale is a number; otherwise arbitrary.
        *rounded = (value * inverse).round_ties_even() as i32;
    }
    let mut words = [0; ROW_WORDS];
    for (word, four) in words.iter_mut().zip(rounded.as_chunks::<4>().0) {
        *word = i32::from_le_bytes(four.map(|value| value as u8));
    }
    let (first, second) = rounded.split_at(BLOCK / 2);
    let halves =
        [first, second].map(|half| half.iter().fold(0i32, |sum, value| sum + i32::from(*value as i8)));
    let sum = halves[0] + halves[1];
    words[SCALE] = scale.to_bits().cast_signed();
    words[START_Q8_0] = -128 * sum;
    words[MINIMUM] = (-(scale * sum as f32)).to_bits().cast_signed();
    words[START_Q6K] = -32 * halves[0];
    words[START_Q6K + 1] = -32 * halves[1];
    words
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn values_are_within_half_a_step(values in proptest::array::uniform32(-1e3f32..1e3)) {
            let words = round_block(&values);
            let scale = f32::from_bits(words[SCALE].cast_unsigned());
            let rounded: Vec<i8> =
                words[..8].iter().flat_map(|word| word.to_le_bytes()).map(u8::cast_signed).collect();
            for (value, rounded) in values.iter().zip(&rounded) {
                prop_assert!((value - f32::from(*rounded) * scale).abs() <= scale * 0.50001);
            }
            let sum = |values: &[i8]| values.iter().map(|value| i32::from(*value)).sum::<i32>();
            prop_assert_eq!(words[START_Q8_0], -128 * sum(&rounded));
            prop_assert_eq!(words[START_Q6K], -32 * sum(&rounded[..16]));
            prop_assert_eq!(words[START_Q6K + 1], -32 * sum(&rounded[16..]));
            let minimum = f32::from_bits(words[MINIMUM].cast_unsigned());
            prop_assert_eq!(minimum, -(scale * sum(&rounded) as f32));
        }
    }

    #[test]
    fn zeros_and_the_smallest_numbers_are_zero_and_what_is_no_number_shows() {
        for values in [[0.0; BLOCK], [f32::MIN_POSITIVE; BLOCK]] {
            assert_eq!(round_block(&values)[..8], [0; 8]);
        }
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut values = [1.0; BLOCK];
            values[7] = odd;
            assert!(f32::from_bits(round_block(&values)[SCALE].cast_unsigned()).is_nan());
        }
    }
}
