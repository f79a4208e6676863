//! From a specification to configurations, items and units. Pure: models, tools and items are handed in.

mod matrix;
mod selection;
mod units;

pub use matrix::{MatrixError, expand};
pub use selection::{SelectError, Selected, select};
pub use units::{PlannedUnit, units, units_of};
