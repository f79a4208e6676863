//! Finds single records and renders them as text.

mod find;
mod layout;
mod render;

pub use find::{Found, find};
pub use render::{Show, show};

#[cfg(test)]
mod tests;
