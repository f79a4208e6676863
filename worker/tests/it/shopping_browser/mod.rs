//! The shop in a browser replies as the shop in memory does, whatever happens.
//!
//! These tests need `chromium` and `chromedriver`; where one is missing they say that they are skipped.

mod support;

mod faults;
mod hostile;
mod sequences;
