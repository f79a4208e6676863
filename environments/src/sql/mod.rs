//! InterCode's SQL environment (Yang et al. 2023; upstream `intercode/envs/sql/sql_env.py`) without a
//! database: how rows are printed, the state that a statement leaves, and the reward of a result.
//!
//! The caller runs a statement on a database, or looks up a recorded result, and passes the result as a
//! [`Fetched`]. [`World`] returns [`SqlObservation`]s and [`Grade`]s.

mod cell;
pub mod dump;
pub mod guard;
pub mod lexer;
mod reward;
mod world;

pub use cell::{Cell, Row, row_text};
pub use reward::{SqlReward, reward};
/// The database of the shipped samples, as a dump.
pub const LIBRARY: &str = include_str!("library.sql");

pub use world::{Fetched, Grade, SqlObservation, World, has_order};
