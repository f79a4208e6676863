//! Actions on pages in a real browser: those of the built-in samples, impossible ones, and those on hostile
//! pages.
//!
//! These tests require `chromium` and `chromedriver`; if one of them is missing, they are skipped with a
//! message.

mod hostile;
mod samples;
mod stage;
mod use_of_pages;
