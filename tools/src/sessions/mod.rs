//! Sessions: tools with separate state for each episode.

pub mod browser_shop;
pub mod catalogue;
mod mapped;
mod screenshots;
pub mod shop;
pub mod site;
pub mod sql;
mod web;

pub use web::{BrowserPages, WebPages};
