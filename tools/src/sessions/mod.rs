//! Sessions: tools with separate state for each episode.

#[cfg(feature = "browser")]
pub(crate) mod browser_shop;
pub mod catalogue;
pub mod shop;
pub mod site;
pub mod sql;
pub(crate) mod web;
