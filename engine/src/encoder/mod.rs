//! Encoders: models that read a text as a whole and say one thing about it.

mod attention;
mod config;
mod cross_encoder;
mod elementwise;
mod reader;
mod service;
mod transformer;

pub use cross_encoder::CrossEncoder;
pub use reader::{Reader, ReaderPassage};
pub use service::ReadError;
