//! Finds single records and renders them as text, for `lumos show`.
//!
//! [`find()`] returns the units that match a position, a name or a unit's first digits, and [`show`] renders
//! one with its prompts, replies, actions and scores.

mod find;
mod layout;
mod render;

pub use find::{FoundUnit, find};
pub use render::{Show, show};

#[cfg(test)]
mod tests;
