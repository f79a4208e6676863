//! The world of InterCode's SQL environment (Yang et al. 2023; upstream `intercode/envs/sql/sql_env.py`), without a
//! database: how rows are printed, what a statement leaves behind, what a result is worth.
//!
//! Whoever holds a database runs a statement, hands what came of it in as a [`Fetched`], and takes [`Observation`]s and
//! [`Grade`]s out. Recorded results do as well.

mod cell;
pub mod dump;
pub mod guard;
pub mod lexer;
mod reward;
mod world;

pub use cell::{Cell, Row, row_text};
pub use reward::{Reward, is_same, reward};
/// The database of the shipped samples, as a dump.
pub const LIBRARY: &str = include_str!("library.sql");

pub use world::{Action, Fetched, Grade, Observation, World, has_order};
