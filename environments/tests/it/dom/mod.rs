//! Compares pages as text with those of the original.

mod golden;
mod hostile;
