//! Actions on pages, carried out in a real browser: those of the shipped samples, those that cannot be done, and pages
//! that mean harm.
//!
//! These tests need `chromium` and `chromedriver`; where one is missing they say that they are skipped.

#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "browser/support.rs"]
mod support;

#[path = "pages_browser/hostile.rs"]
mod hostile;
#[path = "pages_browser/samples.rs"]
mod samples;
#[path = "pages_browser/stage.rs"]
mod stage;
#[path = "pages_browser/use.rs"]
mod use_of_pages;
