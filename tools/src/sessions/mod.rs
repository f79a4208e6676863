//! Sessions: tools with separate state for each episode.

pub mod browser_shop;
pub mod catalogue;
pub mod shop;
pub mod site;
pub mod sql;
mod web;

pub use web::{BrowserPages, WebPages};
