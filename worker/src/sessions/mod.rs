//! Sessions: tools with a world of their own for each episode.

pub mod catalogue;
mod mapped;
pub mod shop;
pub mod site;
pub mod sql;
mod web;

pub use web::{BrowserPages, WebPages};
