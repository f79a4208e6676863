//! Plans a run: turns a specification into configurations and items.
//!
//! [`expand`] returns the configurations of the matrix, and [`select`] the items of a data set. Both perform
//! no I/O; callers pass models, tools and items.

mod matrix;
mod selection;

pub use matrix::{MatrixError, expand};
pub use selection::{SelectError, Selected, SelectedItem, select};
