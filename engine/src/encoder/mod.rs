//! Encoders: models that read a whole text at once and return scores.
//!
//! [`DprReader`] scores passages for a question, [`CrossEncoder`] scores texts for a query. Each runs on its own
//! thread.

mod attention;
mod config;
mod cross_encoder;
mod elementwise;
mod reader;
mod service;
mod transformer;

pub use cross_encoder::CrossEncoder;
pub use reader::{DprReader, ReaderPassage};
pub use service::EncoderError;
