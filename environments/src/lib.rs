//! Pure worlds and their rewards: exact maths.

pub mod maths;
