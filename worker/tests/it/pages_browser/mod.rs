//! Actions on pages, carried out in a real browser: those of the shipped samples, those that cannot be done, and pages
//! that mean harm.
//!
//! These tests need `chromium` and `chromedriver`; where one is missing they say that they are skipped.

mod hostile;
mod samples;
mod stage;
mod use_of_pages;
