//! Browsers: normal use of pages, hostile pages, and cleanup after processes that ended.
//!
//! These tests require `chromium` and `chromedriver`; if one of them is missing, they are skipped with a
//! message.

pub(crate) mod support;

mod hostile;
mod lifetime;
mod use_of_pages;
