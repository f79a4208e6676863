//! Encoders: models that read a text as a whole and say one thing about it.

mod bert;
mod config;
mod elementwise;
mod reader;

pub use reader::{ReadError, Reader, ReaderPassage};
