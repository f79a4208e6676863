//! The shop as a website: one server, with a separate visit for each user.
//!
//! The `<main>` element of a page has exactly the texts of the observation, in the same order: a clickable is
//! a button, a link or a radio button with the clickable's text. Reading the texts and clicking by role and
//! text, manually or with a browser driver, therefore has the same effect as the in-memory shop.

mod render;
mod server;
mod visits;

pub use server::{Site, router, serve};
