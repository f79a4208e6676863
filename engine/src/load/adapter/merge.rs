//! Adds the product of two low-rank matrices to a weight matrix.

use lumos_kernels::arch;
use rayon::prelude::*;

/// Columns summed at a time: as many as fit in registers.
const COLUMNS: usize = 64;

/// `weight += scale · up · down`, where `up` has `rank` columns and `down` has `rank` rows; all are
/// row-major.
///
/// Every product is summed over the rank in ascending order, scaled, and added; each step rounds to float32.
/// The result is therefore bit-identical on every processor and with any number of threads.
pub(super) fn add_product(weight: &mut [f32], up: &[f32], down: &[f32], rank: usize, scale: f32) {
    let columns = down.len() / rank;
    let arch = arch();
    let rows = weight.par_chunks_exact_mut(columns).zip(up.par_chunks_exact(rank));
    rows.for_each(|(weight, up)| arch.dispatch(|| add_row(weight, up, down, scale)));
}

#[inline(always)]
fn add_row(weight: &mut [f32], up: &[f32], down: &[f32], scale: f32) {
    let columns = weight.len();
    for (block, weight) in weight.chunks_mut(COLUMNS).enumerate() {
        let mut sums = [0.0; COLUMNS];
        let sums = &mut sums[..weight.len()];
        for (factor, row) in up.iter().zip(down.chunks_exact(columns)) {
            let row = &row[block * COLUMNS..][..sums.len()];
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum += factor * value;
            }
        }
        for (value, sum) in weight.iter_mut().zip(sums) {
            *value += scale * *sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_value_is_the_sum_in_its_order(
            rows in 1usize..40, columns in 1usize..200, rank in 1usize..20, seed in any::<u64>(),
        ) {
            let mut random = crate::fixtures::Uniform::new(seed);
            let base = random.values(rows * columns, 1.0);
            let (up, down) = (random.values(rows * rank, 1.0), random.values(rank * columns, 1.0));
            let mut merged = base.clone();
            add_product(&mut merged, &up, &down, rank, 0.3);
            for row in 0..rows {
                for column in 0..columns {
                    let products = (0..rank).map(|index| up[row * rank + index] * down[index * columns + column]);
                    let sum = products.fold(0.0, |sum: f32, product| sum + product);
                    let index = row * columns + column;
                    prop_assert_eq!(merged[index].to_bits(), (base[index] + 0.3f32 * sum).to_bits());
                }
            }
        }
    }
}
