//! From a specification to configurations and items. Pure: models, tools and items are handed in.

mod matrix;
mod selection;

pub use matrix::{MatrixError, expand};
pub use selection::{SelectError, Selected, SelectedItem, select};
