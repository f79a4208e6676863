//! Fixed-point sums that do not depend on the order of summands.

use serde::{Deserialize, Serialize};

/// A number in steps of 2⁻⁶⁰. Each summand is rounded separately and sums are computed in integers, so a sum
/// is independent of order and grouping. The values of scores (counts, rewards in hundredths) are exact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "f64", into = "f64")]
pub(super) struct Fixed(i128);

/// 2⁶⁰.
const STEPS: f64 = (1u64 << 60) as f64;

impl From<f64> for Fixed {
    fn from(value: f64) -> Self {
        // Scaling by a power of two is exact. The conversion saturates and maps NaN to 0.
        Self((value * STEPS).round() as i128)
    }
}

impl From<Fixed> for f64 {
    fn from(value: Fixed) -> Self {
        value.0 as f64 / STEPS
    }
}

impl std::ops::AddAssign for Fixed {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }
}
