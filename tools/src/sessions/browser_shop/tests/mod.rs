//! The shop in a browser gives the same replies as the shop in memory.
//!
//! These tests require `chromium` and `chromedriver`; if one of them is missing, they are skipped with a
//! message.

mod support;

mod faults;
mod hostile;
mod sequences;
