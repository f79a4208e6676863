//! Pure worlds and their rewards: exact maths, pages and their ranking.

pub mod maths;
pub mod retrieval;
