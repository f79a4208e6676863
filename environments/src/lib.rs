//! Pure worlds and their rewards: exact maths, pages and their ranking, pages as text, SQL results, the shop.

pub mod dom;
pub mod lines;
pub mod maths;
pub mod retrieval;
pub mod shop;
pub mod sql;
