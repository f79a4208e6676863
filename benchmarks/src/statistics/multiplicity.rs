//! Corrections of p values for several tests.

/// Adjusts p values so that all rejections together are wrong with the stated probability (Holm 1979): for decisions
/// such as a gate. The result is in the order of the input.
///
/// ```
/// use lumos_benchmarks::statistics::{benjamini_hochberg, holm};
///
/// assert_eq!(holm(&[0.04, 0.01, 0.03]), [0.06, 0.03, 0.06]);
/// assert_eq!(benjamini_hochberg(&[0.5]), [0.5]);
/// ```
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut adjusted = vec![0.0; p.len()];
    let mut largest = 0.0f64;
    for (rank, index) in ascending(p).into_iter().enumerate() {
        largest = largest.max((p.len() - rank) as f64 * p[index]).min(1.0);
        adjusted[index] = largest;
    }
    adjusted
}

/// Adjusts p values so that the stated share of rejections is wrong on average (Benjamini and Hochberg 1995): for
/// exploring many differences. The result is in the order of the input.
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let mut adjusted = vec![0.0; p.len()];
    let mut smallest = 1.0f64;
    for (rank, index) in ascending(p).into_iter().enumerate().rev() {
        smallest = smallest.min(p.len() as f64 / (rank + 1) as f64 * p[index]);
        adjusted[index] = smallest;
    }
    adjusted
}

/// Returns the positions of the values in ascending order.
fn ascending(values: &[f64]) -> Vec<usize> {
    let mut positions: Vec<usize> = (0..values.len()).collect();
    positions.sort_by(|&left, &right| values[left].total_cmp(&values[right]));
    positions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_and_nothing_exceeds_one() {
        assert_eq!(holm(&[]), Vec::<f64>::new());
        assert_eq!(holm(&[0.9, 0.8, 0.001]), [1.0, 1.0, 0.003]);
        assert_eq!(benjamini_hochberg(&[0.9, 0.8, 0.001]), [0.9, 0.9, 0.003]);
    }
}
