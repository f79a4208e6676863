//! Plans a run: turns a specification into configurations and items. Performs no I/O; callers pass models,
//! tools and items.

mod matrix;
mod selection;

pub use matrix::{MatrixError, expand};
pub use selection::{SelectError, Selected, SelectedItem, select};
