//! One record as a person reads it, and finding it.

mod find;
mod layout;
mod render;

pub use find::{Found, find};
pub use render::{Show, show};

#[cfg(test)]
mod tests;
