//! Browsers: pages as people use them, pages that mean harm, and what is left when things die.
//!
//! These tests need `chromium` and `chromedriver`; where one is missing they say that they are skipped.

#[path = "browser/support.rs"]
mod support;

#[path = "browser/hostile.rs"]
mod hostile;
#[path = "browser/lifetime.rs"]
mod lifetime;
#[path = "browser/use.rs"]
mod use_of_pages;
