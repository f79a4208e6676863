//! Browsers: pages as people use them, pages that mean harm, and what is left when things die.
//!
//! These tests need `chromium` and `chromedriver`; where one is missing they say that they are skipped.

pub(crate) mod support;

mod hostile;
mod lifetime;
mod use_of_pages;
