//! The shop as web pages: one server, visits apart.
//!
//! A page holds in `<main>` exactly the texts of the observation, in the same order: what can be clicked is a button, a
//! link or a radio button whose visible text is the clickable's. So whoever reads the page's texts and clicks by role
//! and text, a person or a driver of a browser, does what the shop in memory does.

mod render;
mod server;
mod visits;

pub use server::{Site, router, serve};
